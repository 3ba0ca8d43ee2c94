"""Reports: the files that a tool leaves behind."""

from collections.abc import Mapping
from pathlib import Path

import click

from shoal.console import err
from shoal.tools import drawing
from shoal.tools.drawing import Kind
from shoal.tools.files import write_whole


def write_report(kind: Kind, base: Path, files: Mapping[str, str | bytes]) -> None:
    """Write a report's files by their endings, `json` among them, and a picture of it; say what was written."""
    written = {ending: write_whole(base.with_name(f"{base.name}.{ending}"), data) for ending, data in files.items()}
    picture = base.with_name(f"{base.name}.png")
    if problem := drawing.draw(kind, written["json"], picture):
        err.print(f"no picture: {problem}", markup=False, soft_wrap=True)
    else:
        written["png"] = picture
    click.echo(f"wrote {', '.join(map(str, written.values()))}")

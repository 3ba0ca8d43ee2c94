"""`shoal doctor`: says of another server's models what will work here, what differs, and what to change."""

import sys
from pathlib import Path

import click
import msgspec
from rich.table import Table

from shoal.archive.store import ENDINGS
from shoal.console import out
from shoal.errors import InvalidInput
from shoal.tools.bench.target import is_address
from shoal.tools.calls import site_of
from shoal.tools.doctor.archives import check_archive
from shoal.tools.doctor.findings import COUNTED, ORDER, WORDS, Diagnosis
from shoal.tools.doctor.repositories import check_repository, is_model, is_repository
from shoal.tools.doctor.servers import check_server
from shoal.tools.doctor.stores import check_settings, check_store, is_store, plain_deployment

STYLES = {"works": "green", "differs": "yellow", "fails": "red"}


@click.command(context_settings={"max_content_width": 100})
@click.argument("target")
@click.option(
    "--config", "settings", default="", metavar="FILE", help="config.properties that goes with a model store."
)
@click.option("--token", envvar="MANAGEMENT_TOKEN", default="", help="Management key.  [or MANAGEMENT_TOKEN]")
@click.option("-k", "--insecure", is_flag=True, help="Take any certificate.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def doctor(target: str, settings: str, token: str, insecure: bool, as_json: bool) -> None:
    """Look at TARGET and say per model what will work here, what differs, and the exact change to make.

    TARGET is a TorchServe or MMS model store, a .mar, a config.properties, a Triton repository, or the URL of a
    running TorchServe, MMS, Triton or Shoal. Nothing is started and no code of a model is run.

    The exit code is 0 when everything works, 1 when something will not, 2 when there is nothing to look at.

    \b
    Examples:
      shoal doctor model_store --config config.properties
      shoal doctor resnet.mar
      shoal doctor /models --json
      shoal doctor http://127.0.0.1:8081
    """
    if is_address(target):
        found = check_server(site_of(target, verifies=not insecure), token)
    else:
        found = _looked(Path(target), settings)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(_plain(found))).decode())
    else:
        _show(found)
    if found.level == "fails":
        sys.exit(1)


def _looked(path: Path, settings: str) -> Diagnosis:
    """Find out what a path is, and look at it."""
    file = Path(settings) if settings else None
    if file is not None and not file.is_file():
        raise InvalidInput(f"--config: there is no file {file}")
    if path.is_file():
        if path.suffix == ".properties":
            return check_settings(path)
        if path.name == "config.pbtxt":
            return _of_one(path.parent)
        if path.name.lower().endswith(ENDINGS):
            return Diagnosis(str(path), "an archive", [check_archive(path, plain_deployment())], f"shoal serve {path}")
        raise InvalidInput(f"{path} is no archive ({', '.join(ENDINGS)}), no config.properties and no config.pbtxt")
    if not path.is_dir():
        raise InvalidInput(f"there is no file or folder {path}")
    if (path / "MAR-INF").is_dir():
        return Diagnosis(
            str(path), "an unpacked archive", [check_archive(path, plain_deployment())], f"shoal serve {path}"
        )
    if is_model(path):
        return _of_one(path)
    if is_store(path):
        return check_store(path, file)
    if is_repository(path):
        return check_repository(path)
    if (path / "config.properties").is_file():
        return check_settings(path / "config.properties")
    raise InvalidInput(f"{path} holds no archives ({', '.join(ENDINGS)}) and no models with a config.pbtxt")


def _of_one(folder: Path) -> Diagnosis:
    """One model of a repository."""
    whole = check_repository(folder.absolute().parent)
    named = [subject for subject in whole.subjects if subject.name.split(" ")[0] == folder.absolute().name]
    return msgspec.structs.replace(whole, target=str(folder), what="a model of a Triton repository", subjects=named)


def _show(found: Diagnosis) -> None:
    console = out()
    console.print(f"{found.target}: {found.what}", markup=False, soft_wrap=True)
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("what", "kind", "verdict"):
        drawn.add_column(name, no_wrap=True)
    for subject in found.subjects:
        drawn.add_row(subject.name, subject.kind, WORDS[subject.level], style=STYLES[subject.level])
    console.print(drawn)
    for subject in found.subjects:
        for finding in sorted(subject.findings, key=lambda each: -ORDER.index(each.level)):
            console.print(f"{subject.name}: {WORDS[finding.level]}: {finding.text}", markup=False, soft_wrap=True)
            if finding.change:
                console.print(f"    -> {finding.change}", markup=False, soft_wrap=True)
    counts = {level: sum(subject.level == level for subject in found.subjects) for level in ORDER}
    told = ", ".join(f"{count} {COUNTED[level]}" for level, count in counts.items() if count) or "nothing to look at"
    console.print(told, markup=False, style="bold")
    if found.start and found.level != "fails":
        console.print(f"start it with: {found.start}", markup=False, soft_wrap=True)


def _plain(found: Diagnosis) -> dict[str, object]:
    values = msgspec.to_builtins(found)
    for subject, made in zip(found.subjects, values["subjects"], strict=True):
        made["level"] = subject.level
    return {**values, "level": found.level}

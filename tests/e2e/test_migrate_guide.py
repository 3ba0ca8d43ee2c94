"""The stories of the migration guide, command for command: files written, commands run, output compared."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.e2e.test_docs import BLOCK, ROOT, free_port

PAGE = ROOT / "docs" / "migrate-from-torchserve.md"
PORTS = ("8080", "8081")


def matches(expected: list[str], got: list[str]) -> bool:
    """Whether output is as written: a line of three dots is any number of lines, three dots in a line any text."""
    if not expected:
        return not got
    if expected[0] == "...":
        return any(matches(expected[1:], got[start:]) for start in range(len(got) + 1))
    pattern = ".*".join(map(re.escape, expected[0].split("...")))
    return bool(got) and re.fullmatch(pattern, got[0].rstrip()) is not None and matches(expected[1:], got[1:])


def sessions(text: str) -> list[tuple[str, list[str]]]:
    """The commands of a block, each with the output that is written under it."""
    found: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found


@pytest.mark.timeout(300)
@pytest.mark.skipif(shutil.which("ab") is None, reason="the stories measure with ab (apache2-utils)")
def test_the_stories_work_as_typed(tmp_path: Path) -> None:
    ports = {port: str(free_port()) for port in PORTS}
    (tmp_path / "tmp").mkdir()
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "TMPDIR": str(tmp_path / "tmp"),
        "SHOAL_METRICS_PORT": "0",
        "SHOAL_GRPC_PORT": "0",
        "SHOAL_GRPC_MANAGEMENT_PORT": "0",
    }
    ran = 0
    try:
        for kind, title, text in BLOCK.findall(PAGE.read_text()):
            for told, ours in ports.items():
                text = text.replace(told, ours)
            if title:
                (tmp_path / title).write_text(text)
            elif kind == "console":
                for command, expected in sessions(text):
                    got = _run(command, tmp_path, environment)
                    assert matches(expected, got.splitlines()), f"$ {command}\n{got}"
                    ran += 1
    finally:
        for name in ("torchserve", "multi-model-server"):
            _run(f"shoal {name} --stop", tmp_path, environment)
    assert ran >= 17


def _run(command: str, folder: Path, environment: dict[str, str]) -> str:
    """Run one command; a server that it leaves behind keeps writing to its file, which is why each has its own."""
    with tempfile.NamedTemporaryFile("wb", dir=folder / "tmp", suffix=".output", delete=False) as output:
        subprocess.run(
            ["bash", "-c", command.replace("curl ", "curl --silent ")],
            cwd=folder,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=200,
            check=False,
        )
    return Path(output.name).read_text()


def test_three_dots_stand_for_anything_and_nothing_else_does() -> None:
    assert matches(["a", "...", "c d...f"], ["a", "x", "y", "c d e f"])
    assert matches(["..."], [])
    assert not matches(["a", "b"], ["a", "x", "b"])
    assert not matches(["a...b"], ["a b c"])
    assert not matches([], ["more"])

"""The pages of the tools, command for command: files written, commands run, output compared."""

import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.e2e.test_docs import BLOCK, ROOT, free_port
from tests.e2e.test_migrate_guide import matches, sessions

PORTS = ("8080", "8081", "8082", "7070")
# commands of each page
LEAST = {
    "profile.md": 7,
    "bench.md": 15,
    "models-command.md": 12,
    "rollout.md": 10,
    "check.md": 4,
    "tune.md": 8,
    "doctor.md": 11,
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", LEAST)
def test_the_page_works_as_typed(name: str, tmp_path: Path) -> None:
    text = (ROOT / "docs" / name).read_text()
    ports = {port: str(free_port()) for port in PORTS}
    text = re.sub(r"\b(808[012]|7070)\b", lambda found: ports[found[1]], text)
    (tmp_path / "tmp").mkdir()
    environment = {
        **{key: value for key, value in os.environ.items() if key not in ("COLUMNS", "FORCE_COLOR")},
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONSAFEPATH": "1",
        "SHOAL_PORT": ports["8080"],
        "SHOAL_MANAGEMENT_PORT": ports["8081"],
        "SHOAL_METRICS_PORT": ports["8082"],
    }
    blocks = BLOCK.findall(text)
    for _, title, code in blocks:
        if title:
            (tmp_path / title).write_text(code)
    ran = 0
    groups: list[int] = []
    try:
        for kind, title, code in blocks:
            if title or kind != "console":
                continue
            for command, expected in sessions(code):
                got = _run(_with_url(command, ports), tmp_path, environment, groups)
                assert matches(expected, got.splitlines()), f"$ {command}\n{got}"
                ran += 1
    finally:
        for group in groups:
            _end(group)
    assert ran >= LEAST[name]


def _with_url(command: str, ports: dict[str, str]) -> str:
    """The management address that is meant where none is said."""
    if command.startswith("shoal models") and "--url" not in command:
        return command.replace("shoal models", f"shoal models --url http://127.0.0.1:{ports['8081']}", 1)
    return command


def _run(command: str, folder: Path, environment: dict[str, str], groups: list[int]) -> str:
    """Run one command; a server that it leaves behind keeps its process group, which ends with the test."""
    with tempfile.NamedTemporaryFile("wb", dir=folder / "tmp", suffix=".output", delete=False) as output:
        shell = subprocess.Popen(
            ["bash", "-c", command.replace("curl ", "curl --silent ")],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        groups.append(shell.pid)
        shell.wait(timeout=300)
    return Path(output.name).read_text()


def _end(group: int) -> None:
    try:
        os.killpg(group, signal.SIGTERM)
    except ProcessLookupError:
        return

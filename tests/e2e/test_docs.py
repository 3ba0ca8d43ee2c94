"""Every snippet of the README and the guides is run: files are written, commands executed, links followed."""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```", re.MULTILINE | re.DOTALL)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize("page", [page for page in PAGES if "```sh" in page.read_text()], ids=lambda page: page.name)
def test_the_commands_of_a_page_work_as_written(page: Path, tmp_path: Path) -> None:
    ports = {"8080": str(free_port()), "8081": str(free_port()), "8082": str(free_port())}
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "SHOAL_MANAGEMENT_PORT": ports["8081"],
        "SHOAL_METRICS_PORT": ports["8082"],
        "SHOAL_PORT": ports["8080"],
    }
    answers = []
    for kind, title, text in BLOCK.findall(page.read_text()):
        for told, ours in ports.items():
            text = text.replace(told, ours)
        if title:
            (tmp_path / title).write_text(text)
        elif kind == "sh":
            shell = subprocess.Popen(
                ["bash", "-euo", "pipefail", "-c", text + "\necho\n"],  # an answer need not end its line
                cwd=tmp_path,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
            assert shell.stdout is not None
            try:
                answer = ""
                while not answer:
                    line = shell.stdout.readline()
                    assert line, shell.stderr.read() if shell.stderr else ""
                    answer = line.replace("Model server started.", "").strip()  # an answer may come before it
                answers.append(answer)
            finally:
                os.killpg(shell.pid, signal.SIGTERM)
                shell.communicate(timeout=20)

    assert answers == EXPECTED[page.name]


EXPECTED = {"README.md": ["FISH!"], "guide.md": ["FISH!", '{"sum":12.0}', '{"sum":12.0}']}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text())

    missing = [target for target in targets if "://" not in target and not (page.parent / target).exists()]

    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_a_page_names_exists(page: Path) -> None:
    named = re.findall(r"`((?:src|docs|tests|benchmarks|examples)/[\w./-]+)`", page.read_text())

    assert not [name for name in named if not (ROOT / name).exists()]

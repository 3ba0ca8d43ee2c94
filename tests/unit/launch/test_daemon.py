"""The pid file and the start in the background, with real processes."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from shoal.errors import ConfigError
from shoal.launch import daemon
from tests.serving import eventually, is_alive


def script(code: str, *arguments: object) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)], stdout=subprocess.PIPE, text=True
    )


HOLD = """
import signal, sys
from pathlib import Path
from shoal.launch import daemon
signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
with daemon.holding(Path(sys.argv[1])):
    print("held", flush=True)
    signal.pause()
"""


def held(path: Path) -> "subprocess.Popen[str]":
    process = script(HOLD, path)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def end(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.wait()
    if process.stdout:
        process.stdout.close()


def test_nobody_runs_where_there_is_no_file(tmp_path: Path) -> None:
    assert daemon.running(tmp_path / "pid") == 0


def test_a_server_is_found_by_its_file_and_takes_it_along(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    process = held(path)
    try:
        assert path.read_text() == str(process.pid)
        assert daemon.running(path) == process.pid
        assert daemon.stop(process.pid, path)
        process.wait(10)
        assert not path.exists()
    finally:
        end(process)


def test_a_server_that_was_killed_leaves_an_orphan(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    process = held(path)
    end(process)

    assert path.exists()
    assert daemon.running(path) == 0
    assert daemon.remove_orphan(path)
    assert not daemon.remove_orphan(path)


def test_a_number_that_belongs_to_another_program_is_no_server(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    path.write_text(str(os.getpid()))

    assert daemon.running(path) == 0


def test_there_is_one_server_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    process = held(path)
    try:
        with pytest.raises(ConfigError, match="another server was started just now"), daemon.holding(path):
            pass
        assert daemon.running(path) == process.pid
        assert path.read_text() == str(process.pid)
    finally:
        end(process)


def test_a_server_removes_only_its_own_file(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    with daemon.holding(path):
        path.unlink()
        path.write_text("another's")

    assert path.read_text() == "another's"


def test_the_file_is_removed_when_the_server_fails(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    with pytest.raises(OSError, match="in use"), daemon.holding(path):
        raise OSError("in use")

    assert not path.exists()


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("keep me")
    (tmp_path / "pid").symlink_to(tmp_path / "precious")

    with pytest.raises(ConfigError, match="cannot write"), daemon.holding(tmp_path / "pid"):
        pass
    with pytest.raises(ConfigError, match="cannot read"):
        daemon.running(tmp_path / "pid")
    assert (tmp_path / "precious").read_text() == "keep me"


def test_a_server_that_does_not_stop_is_said_to_be_there(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    process = script(HOLD.replace("lambda *_: sys.exit(3)", "signal.SIG_IGN"), path)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        assert not daemon.stop(process.pid, path, patience=0.2)
        assert is_alive(process.pid)
    finally:
        end(process)


START = """
import os, sys, time
from shoal.launch import daemon

def serve(report):
    print(os.getpid(), os.getsid(0) == os.getpid(), repr(sys.stdin.read()), flush=True)
    {body}

code = daemon.start_in_background(serve)
print("code", code, flush=True)
sys.exit(code)
"""


def started(body: str) -> tuple[int, list[str]]:
    """Run a start whose server does `body`; the exit code of the command and the lines of both."""
    process = script(START.format(body=body))
    try:
        output, _ = process.communicate(timeout=60)
        return process.returncode, output.splitlines()
    finally:
        end(process)


def test_a_start_returns_when_the_server_has_started(tmp_path: Path) -> None:
    process = script(START.format(body="report(); time.sleep(60); return 0"))
    assert process.stdout is not None
    pid = 0
    try:
        first, second = process.stdout.readline().split(maxsplit=1), process.stdout.readline()
        pid = int(first[0])
        assert first[1] == "True ''\n"
        assert second == "code 0\n"
        assert process.wait(10) == 0
        assert is_alive(pid)
    finally:
        if pid:
            os.kill(pid, signal.SIGKILL)
        end(process)
    eventually(lambda: not is_alive(pid), "the server is gone")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("return 5", 5),
        ("return 0", 1),
        ("sys.exit(4)", 4),
        ("raise ValueError", 1),
        ("os.kill(os.getpid(), 9)", 1),
    ],
)
def test_a_server_that_ends_before_it_has_started_fails_the_start(body: str, code: int) -> None:
    found, lines = started(body)

    assert found == code
    assert lines[-1] == f"code {code}"

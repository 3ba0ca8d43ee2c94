"""`torchserve --start` and `--stop` as real commands: background, pid file, orphans, ports in use, logs."""

import contextlib
import http.client
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serving import SHOAL, eventually, is_alive, kill

PORTS = (
    "inference_address=http://127.0.0.1:0\nmanagement_address=http://127.0.0.1:0\nmetrics_address=http://127.0.0.1:0\n"
)
GRPC = "grpc_inference_port=0\ngrpc_management_port=0\n"


class Place:
    """A folder with a temporary folder, a store and settings of its own, and the commands run in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pid_file = folder / "tmp" / ".model_server.pid"
        self.output = folder / "output"
        self.servers: set[int] = set()
        (folder / "tmp").mkdir()
        (folder / "store").mkdir()
        (folder / "config.properties").write_text(f"{PORTS}{GRPC}model_store=store\n")

    @property
    def pid(self) -> int:
        return int(self.pid_file.read_text())

    @property
    def said(self) -> str:
        return self.output.read_text()

    def command(self, *arguments: str, name: str = "torchserve") -> "subprocess.Popen[bytes]":
        """Start a command; like a script that redirects it, the server's output goes to a file."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("TS_", "LOG_", "MMS_"))}
        environment |= {"TMPDIR": str(self.folder / "tmp"), "CUDA_VISIBLE_DEVICES": ""}
        with open(self.output, "ab") as output:
            return subprocess.Popen(
                [*SHOAL, name, *arguments], cwd=self.folder, env=environment, stdout=output, stderr=output
            )

    def do(self, *arguments: str, name: str = "torchserve") -> tuple[int, list[str]]:
        """Run a command to its end; its exit code and what was written meanwhile."""
        before = len(self.said) if self.output.exists() else 0
        code = self.command(*arguments, name=name).wait(60)
        with contextlib.suppress(OSError, ValueError):
            self.servers.add(self.pid)
        return code, self.said[before:].splitlines()

    def port(self, name: str) -> int:
        found = re.findall(rf"{name} API bind to: http://127\.0\.0\.1:(\d+)", self.said)
        return int(found[-1])


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    for pid in made.servers:
        with contextlib.suppress(OSError):
            if b"shoal" in Path(f"/proc/{pid}/cmdline").read_bytes():
                kill(pid)


def ping(port: int) -> int:
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        link.request("GET", "/ping")
        return link.getresponse().status
    finally:
        link.close()


def test_a_start_returns_with_the_server_up_and_a_stop_with_it_gone(place: Place) -> None:
    code, lines = place.do("--start", "--ncs", "--dt")

    assert code == 0
    assert "Model server started." in lines
    pid = place.pid
    assert is_alive(pid)
    assert ping(place.port("Inference")) == 200

    code, lines = place.do("--stop")
    assert code == 0
    assert lines[-1] == "TorchServe has stopped."
    assert not is_alive(pid)
    assert not place.pid_file.exists()
    with pytest.raises(OSError):
        ping(place.port("Inference"))


def test_a_second_start_is_refused_and_hurts_nobody(place: Place) -> None:
    place.do("--start", "--ncs", "--dt")
    pid = place.pid

    code, lines = place.do("--start", "--ncs")
    assert code == 1
    assert lines == ["TorchServe is already running, please use torchserve --stop to stop TorchServe."]
    code, lines = place.do("--start", name="multi-model-server")
    assert code == 1
    assert lines == ["Model server is already running, please use multi-model-server --stop to stop MMS."]
    assert place.pid == pid
    assert ping(place.port("Inference")) == 200
    assert place.do("--stop")[0] == 0


def test_in_the_foreground_the_command_is_the_server(place: Place) -> None:
    process = place.command("--start", "--ncs", "--foreground", "--dt")
    try:
        eventually(lambda: "Model server started.\n" in place.said, "the server started")
        assert place.pid == process.pid
        assert place.do("--stop", "--foreground")[0] == 0
        assert process.wait(20) == 0
    finally:
        process.kill()


def test_a_server_that_is_told_to_end_takes_its_files_along(place: Place) -> None:
    place.do("--start", "--ncs")
    pid = place.pid
    eventually(lambda: (place.folder / "key_file.json").exists(), "the keys are written")

    os.kill(pid, signal.SIGTERM)
    eventually(lambda: not is_alive(pid), "the server is gone")
    assert not place.pid_file.exists()
    assert not (place.folder / "key_file.json").exists()
    assert place.do("--stop") == (0, ["TorchServe is not currently running."])


def test_a_server_that_was_killed_leaves_an_orphan_that_a_stop_removes(place: Place) -> None:
    place.do("--start", "--ncs", "--dt")
    pid = place.pid
    kill(pid)
    eventually(lambda: not is_alive(pid), "the server is gone")

    assert place.do("--stop") == (0, ["Removing orphan pid file.", "TorchServe is not currently running."])
    assert not place.pid_file.exists()


def test_a_start_removes_an_orphan_and_starts(place: Place) -> None:
    place.pid_file.write_text("999999")

    code, lines = place.do("--start", "--ncs", "--dt")
    assert (code, lines[0]) == (0, "Removing orphan pid file.")
    assert is_alive(place.pid)
    assert place.do("--stop")[0] == 0


def test_another_program_with_the_number_of_a_server_is_left_alone(place: Place) -> None:
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        place.pid_file.write_text(str(bystander.pid))

        assert place.do("--stop") == (0, ["Removing orphan pid file.", "TorchServe is not currently running."])
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_a_port_in_use_fails_the_start_where_it_was_asked_for(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        text = f"{PORTS}{GRPC}model_store=store\n".replace(":0\n", f":{port}\n", 1)
        (place.folder / "config.properties").write_text(text)
        code, lines = place.do("--start", "--ncs", "--dt")

    assert code == 1
    assert any(line.startswith("error: ") and str(port) in line for line in lines)
    assert "Model server started." not in lines
    assert not place.pid_file.exists()


def test_the_server_logs_to_its_output_and_to_upstreams_files(place: Place) -> None:
    (place.folder / "config.properties").write_text(f"{PORTS}{GRPC}model_store=store\nasync_logging=true\nio_ratio=9\n")
    place.do("--start", "--ncs", "--dt")
    place.do("--stop")

    logs = place.folder / "logs"
    assert {path.name for path in logs.iterdir()} >= {"access_log.log", "ts_log.log", "model_log.log", "ts_metrics.log"}
    written = (logs / "ts_log.log").read_text().splitlines()
    assert set(written) <= set(place.said.splitlines())
    assert any(
        re.fullmatch(r"\d{4}-\S+,\d{3} \[WARN \] main shoal - io_ratio has no effect: .*", line) for line in written
    )


def test_mms_starts_and_stops_by_its_own_words(place: Place) -> None:
    (place.folder / "config.properties").write_text(PORTS.rpartition("metrics")[0])

    code, lines = place.do("--start", name="multi-model-server")
    assert code == 0
    assert "Model server started." in lines
    assert ping(place.port("Inference")) == 200
    code, lines = place.do("--stop", name="multi-model-server")
    assert (code, lines[-1]) == (0, "Model server stopped.")
    assert (place.folder / "logs" / "mms_log.log").exists()

"""Starts a server with the settings of a run: upstream's own, or Shoal in its place on the same archives."""

import contextlib
import functools
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from tests.upstream import build
from tests.upstream.rows import Run

PORTS = {
    "inference": "inference_address",
    "management": "management_address",
    "metrics": "metrics_address",
    "grpc inference": "grpc_inference_port",
    "grpc management": "grpc_management_port",
}
STARTED = "Model server started."
PEERS = Path(os.environ.get("PEERS_HOME") or Path.home() / ".cache/peers")
COMMANDS = {"torchserve": "torchserve", "mms": "multi-model-server"}
# What upstream's image handlers import and its own package does not bring.
VISION = (
    "torchvision==0.28.0",
    "captum==0.9.0",
    "tqdm",
    "matplotlib",
    "contourpy",
    "cycler",
    "fonttools",
    "kiwisolver",
    "pyparsing",
    "python-dateutil",
    "six",
)
Kind = Literal["upstream", "shoal"]


class Server:
    """A running server: where it listens and what it keeps in its folder."""

    def __init__(self, folder: Path, ports: dict[str, int]) -> None:
        self.folder = folder
        self._ports = ports

    def port(self, name: str) -> int:
        """The port of one of its listeners."""
        return self._ports[name]

    def fill(self, text: str) -> str:
        """A header with the server's tokens put in, where it names them in angle brackets."""
        for name, key in self._keys().items():
            text = text.replace(f"<{name}>", key)
        return text

    def hide(self, text: str) -> str:
        """The same backwards, and without the server's folder."""
        for name, key in self._keys().items():
            text = text.replace(key, f"<{name}>")
        return text.replace(str(self.folder), "<folder>")

    def _keys(self) -> dict[str, str]:
        path = self.folder / "key_file.json"
        return {name: entry["key"] for name, entry in json.loads(path.read_text()).items()} if path.exists() else {}


@contextlib.contextmanager
def serving(run: Run, kind: Kind) -> Iterator[Server]:
    """Start the server, wait for its line, and end everything it started."""
    with tempfile.TemporaryDirectory(prefix="upstream-", ignore_cleanup_errors=True) as name:
        folder = Path(os.path.realpath(name))
        ports = _free_ports()
        _write_settings(folder, run, ports)
        shutil.copytree(build.stores()[run.server], folder / "store", copy_function=_link)
        (folder / "tmp").mkdir()
        log = folder / "server.log"
        environment = _environment(folder, run, kind)
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*_program(run, kind), *_arguments(folder, run)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=folder,
                start_new_session=True,
            )
        try:
            _wait(process, log)
            yield Server(folder, ports)
        finally:
            _end(process)
            if keep := os.environ.get("KEEP_UPSTREAM_LOGS"):
                Path(keep).mkdir(parents=True, exist_ok=True)
                shutil.copy(log, Path(keep) / f"{run.server}-{run.name}-{kind}.log")


def missing(server: str) -> str:
    """Why the real server cannot be started here; empty if it can."""
    command = PEERS / server / "bin" / COMMANDS[server]
    if shutil.which("java") is None:
        return "no java on the path"
    return "" if command.exists() else f"no {command}: run benchmarks/peers/install.sh {server}"


@functools.cache
def vision() -> Path:
    """A folder for upstream's path that lets its image handlers import torchvision beside a CPU torch."""
    folder = build.cache() / "vision-0.28.0"
    python = str(PEERS / "torchserve/bin/python")

    def make(target: Path) -> None:
        build.install(target, *VISION, python=python)
        shutil.copy(Path(__file__).parent / "models/sitecustomize.py", target)

    build.once(folder, make)
    return folder


def _program(run: Run, kind: Kind) -> list[str]:
    if kind == "upstream":
        return [str(PEERS / run.server / "bin" / COMMANDS[run.server])]
    return [sys.executable, "-P", "-m", "shoal", COMMANDS[run.server]]


def _arguments(folder: Path, run: Run) -> list[str]:
    config = "--ts-config" if run.server == "torchserve" else "--mms-config"
    snapshots = ["--ncs"] if run.server == "torchserve" else []
    places = ["--model-store", str(folder / "store"), config, str(folder / "config.properties")]
    return ["--foreground", *snapshots, *places, *run.flags]


def _environment(folder: Path, run: Run, kind: Kind) -> dict[str, str]:
    places = {"TEMP": "tmp", "TMPDIR": "tmp", "LOG_LOCATION": "logs", "METRICS_LOCATION": "logs"}
    environment = {**os.environ, **{name: str(folder / place) for name, place in places.items()}, **run.environment}
    if kind == "upstream":
        environment["PATH"] = f"{PEERS / run.server / 'bin'}:{environment['PATH']}"
        if run.server == "torchserve":
            environment["PYTHONPATH"] = str(vision())
    return environment


def _write_settings(folder: Path, run: Run, ports: dict[str, int]) -> None:
    settings = dict(run.settings)
    for name, key in PORTS.items():
        if run.server == "torchserve" or name in ("inference", "management"):
            settings[key] = f"http://127.0.0.1:{ports[name]}" if key.endswith("address") else str(ports[name])
    lines = [f"{key}={value}\n" for key, value in settings.items()]
    (folder / "config.properties").write_text("".join(lines))


def _free_ports() -> dict[str, int]:
    """Ports nobody listens on, below those that clients are given and that MMS takes for bad ones."""
    ports: dict[str, int] = {}
    while len(ports) < len(PORTS):
        port = random.randrange(20_000, 32_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            ports.setdefault(list(PORTS)[len(ports)], port)
    if len(set(ports.values())) < len(ports):
        return _free_ports()
    return ports


def _link(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
    return target


def _wait(process: "subprocess.Popen[bytes]", log: Path) -> None:
    end = time.monotonic() + 90
    while STARTED not in log.read_text("utf-8", "replace"):
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"the server did not start:\n{log.read_text('utf-8', 'replace')[-4000:]}")
        time.sleep(0.05)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Ask the server to end, then end what is left of its group."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(15)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()

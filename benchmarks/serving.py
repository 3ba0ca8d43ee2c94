"""Servers that a benchmark starts and loads: Shoal on ports of its own, and the load of `shoal bench` beside it."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

ROOT = Path(__file__).parents[1]
T = TypeVar("T")


@dataclass(frozen=True)
class Address:
    """Where a server listens."""

    port: int
    management: int

    def describe(self, model: str = "model") -> dict[str, Any]:
        """What the server says of a model."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.management}/models/{model}", timeout=10) as answer:
            found: dict[str, Any] = json.loads(answer.read())[0]
        return found

    def wait_for(self, names: Iterable[str], within: float = 170) -> None:
        """Until every model has all its workers."""
        end = time.monotonic() + within
        for name in names:
            while not (workers := self._workers(name)) or any(one["status"] != "READY" for one in workers):
                if time.monotonic() > end:
                    raise RuntimeError(f"{name} is not ready: {workers}")
                time.sleep(0.5)
            print(f"{name} is ready", flush=True)

    def _workers(self, name: str) -> list[dict[str, Any]]:
        try:
            found: list[dict[str, Any]] = self.describe(name)["workers"]
        except urllib.error.HTTPError:  # it is not registered yet
            return []
        return found


class Native(NamedTuple):
    """A server of one model: its process, and its ports."""

    pid: int
    port: int
    management: int
    metrics: int


def free_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def spawned(
    command: Sequence[str], log: Path, *, out: int | None = None, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A process that is gone at the end with all it started; what it says goes to the log, unless `out` is a pipe."""
    signal.signal(signal.SIGTERM, _interrupt)
    with log.open("w") as written:
        process = subprocess.Popen(
            command,
            stdout=written if out is None else out,
            stderr=written,
            stdin=subprocess.DEVNULL,
            text=True,
            cwd=ROOT,
            start_new_session=True,
            env={**os.environ, **(environment or {})},
        )
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


@contextmanager
def started(
    command: list[str], port: int, path: str, log: Path, *, environment: Mapping[str, str] | None = None
) -> Iterator[int]:
    """A server that answers at the path; gives its process."""
    with spawned(command, log, environment=environment) as server:
        _wait(server, log, lambda: _answers(port, path))
        yield server.pid


@contextmanager
def logged(command: Sequence[str], log: Path, up: Callable[[str], T | None]) -> Iterator[T]:
    """A server whose log says that it is up; gives what `up` finds in it."""
    with spawned(command, log) as server:
        yield _wait(server, log, lambda: up(log.read_text()))


@contextmanager
def announced(command: Sequence[str], log: Path) -> Iterator[tuple[int, str]]:
    """A server whose first line says that it is up; gives its process and the line."""
    with spawned(command, log, out=subprocess.PIPE) as server:
        assert server.stdout is not None
        line = server.stdout.readline().strip()
        if not line:
            raise _not_started(server, log)
        yield server.pid, line


def _wait(server: subprocess.Popen[str], log: Path, look: Callable[[], T | None]) -> T:
    end = time.monotonic() + 180
    while not (found := look()):
        if server.poll() is not None or time.monotonic() > end:
            raise _not_started(server, log)
        time.sleep(0.1)
    return found


def _not_started(server: subprocess.Popen[str], log: Path) -> RuntimeError:
    return RuntimeError(f"{server.args!r} did not start:\n{log.read_text()[-3000:]}")


def _interrupt(*_: object) -> None:
    """Be told to stop as by Ctrl-C, so that servers are stopped and what was measured is kept."""
    raise KeyboardInterrupt


def _answers(port: int, path: str) -> bool:
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=2).read()
    except OSError:
        return False
    return True


@contextmanager
def serving(
    models: Mapping[str, str], top: str = "", environment: Mapping[str, str] | None = None
) -> Iterator[Address]:
    """Shoal with these models, each with its settings in TOML; the server's own settings in `top`."""
    with tempfile.TemporaryDirectory(prefix="shoal-benchmark-") as folder:
        address = Address(free_port(), free_port())
        settings = Path(folder) / "shoal.toml"
        settings.write_text(
            f"port = {address.port}\nmanagement_port = {address.management}\nmetrics_port = {free_port()}\n{top}\n"
            + "".join(f"[models.{name}]\n{text}\n" for name, text in models.items())
        )
        command = [sys.executable, "-m", "shoal", "serve", "--config", str(settings)]
        with started(command, address.port, "/ping", Path(folder) / "log", environment=environment):
            yield address


@contextmanager
def native(model: Path, log: Path, *options: str) -> Iterator[Native]:
    """Shoal with the model in this file, on free ports."""
    ports = ("--port", "0", "--management-port", "0", "--metrics-port", "0")
    with announced([sys.executable, "-m", "shoal", "serve", str(model), *ports, *options], log) as (pid, _):
        found = re.findall(r"^(?:inference|management|metrics) +http://127\.0\.0\.1:(\d+)", log.read_text(), re.M)
        yield Native(pid, *map(int, found))


@contextmanager
def shoal(model: str, top: str = "", environment: Mapping[str, str] | None = None) -> Iterator[Address]:
    """Shoal with one model, called `model`."""
    with serving({"model": model}, top, environment) as address:
        yield address


def load(
    url: str, body: Path, connections: str, *, content_type: str = "application/octet-stream", **shape: Any
) -> list[dict[str, Any]]:
    """What `shoal bench` measures at each number of connections that send this body; `shape` as `bench` takes it."""
    return bench(url, ["-i", str(body), "--content-type", content_type], connections, **shape)


def bench(
    url: str,
    sent: Sequence[str],
    connections: str,
    *,
    processes: int = 0,
    window: str = "2s",
    windows: int = 5,
    warmup: str = "1s",
) -> list[dict[str, Any]]:
    """What `shoal bench` measures at each number of connections; its own options say what is sent."""
    with tempfile.TemporaryDirectory(prefix="shoal-benchmark-") as folder:
        report = Path(folder) / "bench"
        command = [
            *(sys.executable, "-m", "shoal", "bench", url, *sent),
            *("-c", connections, "--window", window, "--max-windows", str(windows), "-o", str(report)),
            *("--timeout", "60s", "--warmup", warmup, *(("--processes", str(processes)) if processes else ())),
        ]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
        if not report.with_suffix(".json").exists():
            raise RuntimeError(f"no load: {done.stdout[-1000:]}{done.stderr[-2000:]}")
        levels: list[dict[str, Any]] = json.loads(report.with_suffix(".json").read_text())["levels"]
    return levels


def say(level: Mapping[str, Any]) -> str:
    """One level of a load in a line."""
    latency = level["latency"]
    return (
        f"{level['concurrency']} connections: {level['throughput']:,.1f}/s, p50 {1e3 * latency['p50']:.1f} ms, "
        f"p99 {1e3 * latency['p99']:.1f} ms, errors {sum(level['errors'].values())}"
    )

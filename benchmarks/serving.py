"""Servers that a benchmark starts and loads: Shoal on ports of its own, and the load of `shoal bench` beside it."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


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


def free_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def started(
    command: list[str], port: int, path: str, log: Path, *, environment: Mapping[str, str] | None = None
) -> Iterator[int]:
    """A server that answers at the path; gives its process, which is gone at the end with all it started."""
    signal.signal(signal.SIGTERM, _interrupt)
    with log.open("w") as written:
        server = subprocess.Popen(
            command,
            stdout=written,
            stderr=written,
            stdin=subprocess.DEVNULL,
            cwd=ROOT,
            start_new_session=True,
            env={**os.environ, **(environment or {})},
        )
        try:
            end = time.monotonic() + 180
            while not _answers(port, path):
                if server.poll() is not None or time.monotonic() > end:
                    raise RuntimeError(f"{' '.join(command)} did not start:\n{log.read_text()[-3000:]}")
                time.sleep(0.1)
            yield server.pid
        finally:
            with suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                server.wait(20)
            with suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)
            server.wait()


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

"""Starts the tritonserver of the pytriton wheel, or Shoal in its place, on the same model repository."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.upstream import build
from tests.upstream.servers import PEERS
from tests.upstream.triton import repository
from tests.upstream.triton.words import Run

Kind = Literal["upstream", "shoal"]
ROOT = Path(__file__).parents[3]
SITE = PEERS / f"pytriton/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
PROGRAM = SITE / "pytriton/tritonserver/bin/tritonserver"
STARTED = "Started HTTPService at"  # both say so
PATIENCE = 90.0  # seconds for a start


@dataclass(frozen=True)
class Server:
    """A running server: where it listens."""

    http: int
    grpc: int
    metrics: int


def missing() -> str:
    """Why the real server cannot be started here; empty if it can."""
    return "" if PROGRAM.exists() else f"no {PROGRAM}: run benchmarks/peers/install.sh pytriton"


@contextlib.contextmanager
def serving(run: Run, kind: Kind) -> Iterator[Server]:
    """Start the server on the repository of a run, wait until it is live, and end everything it started."""
    with tempfile.TemporaryDirectory(prefix="upstream-triton-", ignore_cleanup_errors=True) as name:
        folder = Path(os.path.realpath(name))
        (folder / "models").mkdir()
        repository.write(folder / "models", run.models)
        with starting(folder / "models", kind, run.flags) as server:
            yield server


@contextlib.contextmanager
def starting(models: Path, kind: Kind, flags: tuple[str, ...] = ()) -> Iterator[Server]:
    """Start the server on a repository that is there."""
    server = Server(*_free_ports())
    log = models.parent / f"{kind}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*_program(kind), f"--model-repository={models}", *_addresses(server), *flags],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=_environment(kind),
            cwd=models.parent,
            start_new_session=True,
        )
    try:
        _wait(process, log)
        yield server
    finally:
        _end(process)
        if keep := os.environ.get("KEEP_UPSTREAM_LOGS"):
            Path(keep).mkdir(parents=True, exist_ok=True)
            shutil.copy(log, Path(keep) / f"triton-{kind}-{server.http}.log")


def _program(kind: Kind) -> list[str]:
    if kind == "upstream":
        return [str(PROGRAM), f"--backend-directory={_backends()}"]
    return [sys.executable, "-P", "-m", "shoal", "tritonserver", "--allow-client-shm=true"]


def _backends() -> Path:
    """The Python backend with the stub of this interpreter's version beside it."""
    carried = SITE / "pytriton/tritonserver"
    folder = build.cache() / f"triton-backends-{sys.version_info.major}.{sys.version_info.minor}"

    def make(target: Path) -> None:
        shutil.copytree(carried / "backends/python", target / "python")
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        stub = target / "python/triton_python_backend_stub"
        shutil.copy(carried / f"python_backend_stubs/{version}/triton_python_backend_stub", stub)
        stub.chmod(0o755)

    build.once(folder, make)
    return folder


def _environment(kind: Kind) -> dict[str, str]:
    environment = dict(os.environ)
    if kind == "upstream":
        libraries = subprocess.run(
            [str(PEERS / "pytriton/bin/python"), "-c", "import sysconfig; print(sysconfig.get_config_var('LIBDIR'))"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        environment["LD_LIBRARY_PATH"] = f"{SITE}/nvidia_pytriton.libs:{libraries}"
        environment["PATH"] = f"{PEERS / 'pytriton/bin'}:{environment['PATH']}"
    return environment


def _addresses(server: Server) -> list[str]:
    ports = {"http": server.http, "grpc": server.grpc, "metrics": server.metrics}
    return [word for name, port in ports.items() for word in (f"--{name}-address=127.0.0.1", f"--{name}-port={port}")]


def _free_ports() -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        return [int(one.getsockname()[1]) for one in sockets]


def _wait(process: "subprocess.Popen[bytes]", log: Path) -> None:
    end = time.monotonic() + PATIENCE
    while STARTED not in log.read_text("utf-8", "replace"):
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"the server did not start:\n{log.read_text('utf-8', 'replace')[-4000:]}")
        time.sleep(0.1)


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(20)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()

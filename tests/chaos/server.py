"""The server under test as a process of its own, and what can be seen of it from outside."""

import contextlib
import json
import os
import re
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MODELS = Path(__file__).parent / "models"
MARK = "CHAOS_RUN"  # in the environment of every process of a run
MALLOC = {"MALLOC_MMAP_THRESHOLD_": "131072"}  # what is freed goes back at once, so that growth is what is held
ARENA = 128 * 2**20  # bytes lent at most
DRAIN = 20.0  # seconds
INSTANCES = 16  # of all models together
OURS = "connection of this process"
HANG = 1.5  # response time-out of the model that is made to hang
# of the front process's own; a handler that fails is told of in another way
MISHAPS = ("Exception in callback", "never retrieved", "AssertionError", "Fatal error", "coroutine ignored")


def settings(ledger: Path) -> str:
    """Write the settings file: each model has its own way to be hurt."""
    deeds = json.dumps(str(MODELS / "deeds.py"))
    book = json.dumps(str(ledger))
    once = json.dumps(f"{ledger}-once")
    return f"""
port = 0
management_port = 0
metrics_port = 0
grpc_port = 0
model_store = {json.dumps(str(MODELS))}
shared_memory = {ARENA}
drain_timeout = {DRAIN}

[models.plain]
path = {deeds}
handler = "plain"
workers = 2
response_timeout = 10
max_attempts = 6

[models.staged]
path = {deeds}
handler = "Staged"
workers = 3
response_timeout = 10
max_attempts = 6
batching = {{batch_size = 8, max_batch_delay = 2}}

[models.fragile]
path = {deeds}
handler = "plain"
response_timeout = 10
max_attempts = 6
batching = {{batch_size = 16, max_batch_delay = 100}}

[models.stream]
path = {deeds}
handler = "plain"
workers = 2
response_timeout = 10
max_attempts = 6

[models.ledger]
path = {deeds}
handler = "plain"
workers = 2
response_timeout = 10
side_effects = true
parameters = {{ledger = {once}, seconds = 0.02}}

[models.hang]
path = {deeds}
handler = "plain"
workers = 3
response_timeout = {HANG}
max_attempts = 6
batching = {{batch_size = 4, max_batch_delay = 2}}

[models.small]
path = {deeds}
handler = "plain"
queue_size = 16
response_timeout = 10
batching = {{policy = "single"}}
parameters = {{seconds = 0.01}}

[models.alone]
path = {deeds}
handler = "plain"
response_timeout = 10
batching = {{policy = "single"}}
parameters = {{ledger = {book}}}

[models.rolling]
path = {deeds}
handler = "slowly"
workers = 1
response_timeout = 10
"""


@dataclass
class Target:
    """The running server."""

    process: subprocess.Popen[str]
    log: Path
    mark: str
    ports: dict[str, int]

    @property
    def pid(self) -> int:
        return self.process.pid

    def files(self) -> Counter[str]:
        """Open files of the front process, by what they are; without connections that this process holds open."""
        found: Counter[str] = Counter()
        sockets = _sockets({port: name for name, port in self.ports.items()})
        for path in _paths(self.pid):
            with contextlib.suppress(OSError):
                kind, _, rest = os.readlink(path).partition(":")
                found[sockets.get(rest.strip("[]"), "socket of no kind") if kind == "socket" else kind] += 1
        del found[OURS]
        return found

    def memory(self) -> int:
        """Bytes of the front process that are its own."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return 1024 * int(re.search(r"RssAnon:\s+(\d+)", status)[1])  # type: ignore[index]  # always there

    def shared(self) -> dict[str, int]:
        """Bytes that its shared memory takes now: that of the bodies, and of each worker's answers."""
        sizes = {}
        for path in _paths(self.pid):
            with contextlib.suppress(OSError):
                found = re.match(r"/?memfd:shoal(-answers)? ", os.readlink(path))
                if found is not None:
                    status = os.stat(path)
                    name = f"answers {status.st_ino}" if found[1] else "bodies"
                    sizes[name] = status.st_blocks * 512
        return sizes

    def mishaps(self) -> list[str]:
        """What the front process says went wrong in its own code."""
        lines = self.log.read_text(errors="replace").splitlines()
        return [line for line in lines if any(word in line for word in MISHAPS)]


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[Target]:
    """Start the server; whatever happens, nothing of it is left afterwards."""
    mark = uuid.uuid4().hex
    log, config = folder / "server.log", folder / "shoal.toml"
    for ledger in folder.glob("ledger*"):
        ledger.unlink()
    config.write_text(settings(folder / "ledger"))
    with open(log, "w") as file:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "shoal", "serve", "--config", str(config)],
            stdout=subprocess.PIPE,
            stderr=file,
            stdin=subprocess.DEVNULL,
            text=True,
            env={**os.environ, MARK: mark, **MALLOC},
            start_new_session=True,
        )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        if line != "Model server started.\n":
            raise RuntimeError(f"the server did not start:\n{log.read_text()}")
        found = re.findall(r"^([\w ]+?) +(?:https?|grpc)://127\.0\.0\.1:(\d+)", log.read_text(), re.MULTILINE)
        yield Target(process, log, mark, {name: int(port) for name, port in found})
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        end = time.monotonic() + 10
        while processes(mark) and time.monotonic() < end:
            time.sleep(0.05)


def processes(mark: str) -> list[int]:
    """Every process of this run that is alive, whoever its parent is now."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                if wanted in Path(f"/proc/{entry}/environ").read_bytes().split(b"\0"):
                    found.append(int(entry))
    return found


def parent(pid: int) -> int:
    """The process that made this one; -1 when it is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except OSError:
        return -1


def _paths(pid: int) -> list[str]:
    return [f"/proc/{pid}/fd/{name}" for name in os.listdir(f"/proc/{pid}/fd")]


def _sockets(names: dict[int, str]) -> dict[str, str]:
    """What kind each socket of this machine is, by its inode; `names` are those of ports."""
    ours = set()
    for path in _paths(os.getpid()):
        with contextlib.suppress(OSError):
            ours.add(os.readlink(path).removeprefix("socket:").strip("[]"))
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    inodes = {(row[1], row[2]): row[9] for row in rows}
    found = {}
    for row in rows:
        name = names.get(int(row[1].partition(":")[2], 16), "another port")
        is_ours = inodes.get((row[2], row[1])) in ours
        found[row[9]] = OURS if is_ours else f"TCP socket of {name} in state {row[3]}"
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        found[line.split()[6]] = "Unix socket"
    return found

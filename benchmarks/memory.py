"""Memory over time: a server at saturation, and a model that is loaded and unloaded again and again.

    python -m benchmarks.memory                                   # 1,000,000 requests, 200 cycles
    python -m benchmarks.memory --requests 50000 --cycles 20      # a short look

Resident memory of the front process and of each worker is read before, during and after. The first part of the
requests is warm-up: caches, pools and the allocator reach their size in it, and growth counts from its end.
"""

import argparse
import json
import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from benchmarks.driving import family
from benchmarks.load import closed_loop
from benchmarks.report import machine, table, write
from benchmarks.serving import Native, native

MODEL = "def predict(items):\n    return items\n"
WARM = 0.1  # of the requests, before growth counts
LOOKS = 20  # readings during the rest
PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass
class Reading:
    """One look at the processes: bytes resident, by their part."""

    requests: int
    front: int
    workers: list[int]


@dataclass
class Saturation:
    """What a run at saturation gave."""

    connections: int
    body: int
    requests: int = 0
    seconds: float = 0.0
    errors: int = 0
    readings: list[Reading] = field(default_factory=list)


@dataclass
class Cycles:
    """What loading and unloading gave."""

    cycles: int
    front: list[int] = field(default_factory=list)  # bytes after each cycle, all processes of the model gone
    files: list[int] = field(default_factory=list)
    processes: list[int] = field(default_factory=list)
    shared: list[int] = field(default_factory=list)  # bytes of the arena that are lent


class Running:
    """A server that runs."""

    def __init__(self, native: Native) -> None:
        self.pid, self.port, self.management, self.metrics = native

    def ask(self, port: int, method: str, path: str, body: bytes | None = None) -> Any:
        """Ask for something that must succeed; its JSON, or its text."""
        link = HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            link.request(method, path, body)
            answer = link.getresponse()
            text = answer.read()
            if answer.status != 200:
                raise SystemExit(f"{method} {path}: {answer.status} {text.decode(errors='replace')}")
        finally:
            link.close()
        try:
            return json.loads(text)
        except ValueError:
            return text.decode(errors="replace")

    def metric(self, name: str) -> float:
        """Give a metric, summed over its labels."""
        page = self.ask(self.metrics, "GET", "/metrics")
        return sum(float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith(name))

    def workers(self, model: str) -> list[int]:
        """Give the processes of a model."""
        return [worker["pid"] for worker in self.ask(self.management, "GET", f"/models/{model}")[0]["workers"]]


@contextmanager
def running(folder: Path) -> Iterator[Running]:
    """Serve the model in a folder, with management on."""
    with native(folder / "echo.py", folder / "server.log", "--model-store", str(folder)) as ports:
        yield Running(ports)


def resident(pid: int) -> int:
    """Bytes of a process that are in memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE


def saturate(server: Running, requests: int, connections: int, body: int, say: Callable[[str], None]) -> Saturation:
    """Send so many requests as fast as they are answered, and look at the memory on the way."""
    found = Saturation(connections, body)
    workers = server.workers("echo")
    began = time.monotonic()
    rps = closed_loop(server.port, "/predictions/echo", b"x" * body, connections, seconds=2.0, warm=0.0).rps
    while found.requests < requests:
        seconds = max(2.0, (requests - found.requests) / rps)
        with ThreadPoolExecutor(1) as apart:  # the same connections to the end: a new one has its own price
            load = apart.submit(
                closed_loop, server.port, "/predictions/echo", b"x" * body, connections, seconds=seconds, warm=0.0
            )
            start, before = time.monotonic(), found.requests
            while not load.done():
                done = before + round(rps * (time.monotonic() - start))
                if found.readings or done >= WARM * requests:
                    found.readings.append(Reading(done, resident(server.pid), [resident(pid) for pid in workers]))
                    say(f"{done:>9} requests, about; front {resident(server.pid) / 2**20:.1f} MiB")
                time.sleep(seconds / LOOKS)
            figures = load.result()
        found.errors += figures.errors
        found.requests += max(1, round(figures.rps * seconds))
    found.readings.append(Reading(found.requests, resident(server.pid), [resident(pid) for pid in workers]))
    found.seconds = time.monotonic() - began
    return found


def cycle(server: Running, cycles: int, say: Callable[[str], None]) -> Cycles:
    """Load a model, use it, unload it; each time look at what is left."""
    found = Cycles(cycles)
    for number in range(cycles):
        server.ask(server.management, "POST", "/models?url=fleeting.py&initial_workers=1&synchronous=true")
        for _ in range(20):
            server.ask(server.port, "POST", "/predictions/fleeting", b"x" * 200_000)
        pids = server.workers("fleeting")
        server.ask(server.management, "DELETE", "/models/fleeting")
        end = time.monotonic() + 20
        while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < end:
            time.sleep(0.02)
        found.front.append(resident(server.pid))
        found.files.append(len(os.listdir(f"/proc/{server.pid}/fd")))
        found.processes.append(len(family(server.pid)) - 1)
        found.shared.append(round(server.metric("shoal_arena_lent_bytes")))
        if number % 20 == 19 or number == cycles - 1:
            say(f"{number + 1:>4} cycles, front {found.front[-1] / 2**20:.1f} MiB")
    return found


def growth(first: float, last: float) -> float:
    """By how many hundredths something has grown."""
    return 100.0 * (last - first) / first if first else math.nan


def describe(saturation: Saturation, cycles: Cycles) -> str:
    """Write the tables."""
    first, last = saturation.readings[0], saturation.readings[-1]
    parts = [("front process", first.front, last.front)]
    parts += [(f"worker {n}", a, b) for n, (a, b) in enumerate(zip(first.workers, last.workers, strict=True))]
    rows = [[name, _mib(a), _mib(b), f"{growth(a, b):+.2f} %"] for name, a, b in parts]
    count = f"{saturation.requests:,} requests of {saturation.body} bytes over {saturation.connections} connections"
    text = f"# Memory\n\n{machine()}\n\n## At saturation\n\n{count} in {saturation.seconds:.0f} s, "
    text += f"{saturation.errors} errors. From the end of the warm-up ({first.requests:,} requests) to the end:\n\n"
    text += table(["process", "before", "after", "growth"], rows)
    if cycles.cycles:
        begin = min(2, cycles.cycles - 1)  # the first ones load code
        shown = [
            ["front process, resident", _mib(cycles.front[begin]), _mib(cycles.front[-1])],
            ["open files", str(cycles.files[begin]), str(cycles.files[-1])],
            ["processes", str(cycles.processes[begin]), str(cycles.processes[-1])],
            ["shared memory lent", str(cycles.shared[begin]), str(cycles.shared[-1])],
        ]
        change = growth(cycles.front[begin], cycles.front[-1])
        text += (
            f"\n## Loading and unloading\n\n{cycles.cycles} cycles of load, 20 requests of 200 kB, unload; the front "
        )
        text += f"process changed by {change:+.2f} %.\n\n"
        text += table(["", f"after cycle {begin + 1}", f"after cycle {cycles.cycles}"], shown)
    return text


def _mib(size: float) -> str:
    return f"{size / 2**20:.1f} MiB"


def main() -> None:
    """Measure both, keep the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--body", type=int, default=1024, help="bytes of each request")
    parser.add_argument("--cycles", type=int, default=200)
    parser.add_argument("--name", default="memory", help="of the files under benchmarks/out")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name in ("echo", "fleeting"):
            (Path(folder) / f"{name}.py").write_text(MODEL)
        with running(Path(folder)) as server:
            saturation = saturate(server, args.requests, args.connections, args.body, print)
        with running(Path(folder)) as server:
            cycles = cycle(server, args.cycles, print)
    text = describe(saturation, cycles)
    write(args.name, text, json.dumps({"saturation": asdict(saturation), "cycles": asdict(cycles)}, indent=1))
    print(text)


if __name__ == "__main__":
    main()

"""What more front processes give: echoes of 64 B through 1, 2 and 4 of them, rounds interleaved, CPU by process.

    python -m benchmarks.frontends                      # about 3 minutes
    python -m benchmarks.frontends --frontends 1,2,4,8 --connections 256 --load 8

All servers stay up; each round asks one after the other. The load is made by several processes, since one is not
enough to fill more than one front process. Each measurement is kept as it comes: an interrupted run reports what it
has.
"""

import argparse
import json
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from benchmarks.driving import cpu_seconds, family, fronts, raise_file_limit
from benchmarks.load import Figures, closed_loop
from benchmarks.report import about, plot_bars, spread, table, write
from benchmarks.serving import ROOT, native

WARM = 0.5  # s of each measurement that are not counted
PATH = "/predictions/echo"


@dataclass(frozen=True)
class Server:
    """A server that is up, and its processes by what they do."""

    frontends: int
    port: int
    core: int
    fronts: list[int]
    workers: list[int]


@dataclass(frozen=True)
class Measured:
    """One measurement. CPU is in microseconds per answer."""

    frontends: int
    connections: int
    rps: float
    p50_ms: float
    p99_ms: float
    errors: int
    core_us: float
    fronts_us: float
    workers_us: float


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--frontends", default="1,2,4")
    parser.add_argument("--connections", default="64,256")
    parser.add_argument("--body", type=int, default=64, help="bytes")
    parser.add_argument("--workers", type=int, default=1, help="of the model")
    parser.add_argument("--load", type=int, default=4, help="processes that make the load")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement")
    parser.add_argument("--name", default="frontends", help="of the files under benchmarks/out")
    args = parser.parse_args()
    counts = [int(text) for text in args.frontends.split(",")]
    levels = [int(text) for text in args.connections.split(",")]
    raise_file_limit(4 * max(levels) + 1000)
    found: list[Measured] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="shoal-benchmark-")))
        pool = stack.enter_context(ProcessPoolExecutor(args.load, mp_context=get_context("spawn")))
        servers = [start(stack, folder, count, args.workers) for count in counts]
        try:
            for number in range(args.rounds):
                for level in levels:
                    for server in servers:
                        found.append(measure(pool, args.load, server, bytes(args.body), level, args.seconds))
                        print(f"round {number + 1} of {args.rounds}: {say(found[-1])}", flush=True)
        except KeyboardInterrupt:
            print("interrupted; what is there is kept", file=sys.stderr)
    keep(args.name, found, args)


def start(stack: ExitStack, folder: Path, frontends: int, workers: int) -> Server:
    """Bring a server up and find its processes."""
    options = ("--workers", str(workers), "--frontends", str(frontends))
    running = native(ROOT / "tests" / "models" / "echo.py", folder / f"log-{frontends}", *options)
    core, port, *_ = stack.enter_context(running)
    closed_loop(port, PATH, b"x", 4, seconds=0.5, warm=0.0)  # by now all of it is there
    below = [pid for pid in family(core) if pid != core]
    accepting = fronts(below)
    print(f"{frontends} front process(es) at port {port}", flush=True)
    return Server(frontends, port, core, accepting, [pid for pid in below if pid not in accepting])


def measure(
    pool: ProcessPoolExecutor, hands: int, server: Server, body: bytes, connections: int, seconds: float
) -> Measured:
    """Load a server from several processes at once."""
    hands = min(hands, connections)
    shares = [connections // hands + (number < connections % hands) for number in range(hands)]
    groups = ([server.core], server.fronts, server.workers)
    before = [cpu_seconds(group) for group in groups]
    run = partial(closed_loop, server.port, PATH, body, seconds=seconds, warm=WARM)
    figures: list[Figures] = list(pool.map(run, shares))
    used = [after - earlier for after, earlier in zip([cpu_seconds(group) for group in groups], before, strict=True)]
    rps = sum(one.rps for one in figures)
    answers = rps * (seconds + WARM)  # the CPU is that of the whole run
    core, fronts, workers = (1e6 * each / answers if answers else 0.0 for each in used)
    return Measured(
        server.frontends,
        connections,
        rps,
        statistics.median(one.p50_ms for one in figures),
        max(one.p99_ms for one in figures),
        sum(one.errors for one in figures),
        core,
        fronts,
        workers,
    )


def say(one: Measured) -> str:
    """One measurement in a line."""
    return (
        f"{one.frontends} front(s), {one.connections} connections: {one.rps:,.0f}/s, p50 {one.p50_ms:.2f} ms, "
        f"p99 {one.p99_ms:.2f} ms, errors {one.errors}; CPU us per answer: core {one.core_us:.1f}, "
        f"fronts {one.fronts_us:.1f}, workers {one.workers_us:.1f}"
    )


def keep(name: str, found: Sequence[Measured], args: argparse.Namespace) -> None:
    """Write the table, the data and the picture."""
    groups: dict[tuple[int, int], list[Measured]] = defaultdict(list)
    for one in found:
        groups[one.connections, one.frontends].append(one)
    rows = []
    for (connections, frontends), runs in sorted(groups.items()):
        alone = groups.get((connections, 1))
        rate = statistics.median(run.rps for run in runs)
        rows.append(
            [
                *(str(connections), str(frontends), spread([run.rps for run in runs])),
                f"{rate / statistics.median(run.rps for run in alone):.2f}x" if alone else "-",
                *(spread([run.p50_ms for run in runs], 2), spread([run.p99_ms for run in runs], 2)),
                *(f"{statistics.median(getattr(run, field) for run in runs):.1f}" for field in CPU),
                str(sum(run.errors for run in runs)),
            ]
        )
    head = ["connections", "frontends", "requests/s", "to one", "p50 ms", "p99 ms"]
    head += ["core us", "fronts us", "workers us", "errors"]
    text = "\n".join(
        [
            about(f"Front processes, echo of {args.body} B", "uvloop", "httptools", "msgspec"),
            f"{args.rounds} rounds of {args.seconds:g} s, interleaved; load by {args.load} processes; {args.workers} "
            "worker(s). CPU is microseconds per answer, of the core, of all front processes and of the model's "
            "processes together; with one front, the core is the front.\n",
            table(head, rows),
        ]
    )
    write(name, text, json.dumps([asdict(one) for one in found], indent=1))
    levels = sorted({one.connections for one in found})
    counts = sorted({one.frontends for one in found})
    series = {
        f"{count} front process(es)": [
            statistics.median([run.rps for run in groups.get((level, count), [])] or [0.0]) for level in levels
        ]
        for count in counts
    }
    if series:
        plot_bars(name, series, levels)
    print(text)


CPU = ("core_us", "fronts_us", "workers_us")

if __name__ == "__main__":
    main()

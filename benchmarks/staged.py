"""Models with stages: what it gives to send the next batch ahead of the one that runs, and what fixed settings reach.

    python -m benchmarks.staged                          four shapes, ten loads, about three minutes

The server is simulated (benchmarks/staged_sim.py). `alone` is the default rule with one batch at a time; fixed settings
have one at a time as well, as upstream. Results go to benchmarks/out/.
"""

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from statistics import median

from rich.progress import track

from benchmarks.policy_sim import Report, Workload
from benchmarks.report import machine, table, write
from benchmarks.staged_sim import StagedSimulation, StagedWorld
from shoal.core.adaptive import Adaptive
from shoal.core.policy import Fixed, Lane, Policy

HANDING = 1e-4  # s an answer takes the front process
SHAPES = {  # ms of any batch and of a row in the middle stage, and of a row before and after it
    "slow": (5.0, 0.2, 0.05, 0.05),
    "reads much": (5.0, 0.2, 0.15, 0.01),
    "writes much": (3.0, 0.1, 0.01, 0.15),
    "fast": (0.9, 0.1, 0.04, 0.001),
}
LOADS = [
    *(Workload("closed", clients) for clients in (5, 10, 20, 50, 100, 200, 500)),
    *(Workload("poisson", share) for share in (0.3, 0.6)),
    Workload("volleys", 0.3),
]
FIXED = (8, 32, 64, 256)  # rows, with a delay of 1 ms
SEEDS = (1, 2, 3)


class Alone(Adaptive):
    """The rule as it would be if nothing overlapped."""

    def ahead(self, lane: Lane, instance: str, now: float) -> float | None:
        """Never."""
        return None


@dataclass(frozen=True)
class Found:
    """Medians over the seeds."""

    throughput: float  # answers a second
    p99: float  # seconds


def world(shape: str, load: Workload, seed: int) -> StagedWorld:
    """A server with a model of that shape."""
    fixed, row, before, after = (1e-3 * value for value in SHAPES[shape])
    seconds = [0.0] + [fixed + row * rows for rows in range(1, 257)]
    return StagedWorld(seconds, load, seed=seed, before=before, after=after, handing=HANDING)


def found(shape: str, load: Workload, policy: Callable[[], Policy]) -> Found:
    """Measure one rule once it had time to learn."""
    requests = 60 * load.clients + 1_000 if load.clients else 6_000
    reports: list[Report] = []
    for seed in SEEDS:
        simulation = StagedSimulation(world(shape, load, seed), policy())
        simulation.run(requests)
        reports.append(simulation.run(requests))
    return Found(median(report.throughput for report in reports), median(report.p99 for report in reports))


def main() -> None:
    """Measure and print."""
    rows, kept = [], []
    for shape, load in track([(shape, load) for shape in SHAPES for load in LOADS], "loads"):
        adaptive, alone = found(shape, load, Adaptive), found(shape, load, Alone)
        fixed = [found(shape, load, partial(Fixed, size, 0.001)) for size in FIXED]
        most, least = max(each.throughput for each in fixed), min(each.p99 for each in fixed)
        kept.append({"shape": shape, "load": f"{load.kind} {load.x:g}", "adaptive": asdict(adaptive)})
        kept[-1] |= {"alone": asdict(alone), "fixed": {"throughput": most, "p99": least}}
        rows.append(
            [
                shape,
                f"{load.kind} {load.x:g}",
                f"{adaptive.throughput:,.0f}",
                f"{adaptive.throughput / alone.throughput:.2f}",
                f"{adaptive.throughput / most:.2f}",
                f"{1e3 * adaptive.p99:.1f}",
                f"{adaptive.p99 / alone.p99:.2f}",
                f"{adaptive.p99 / least:.2f}",
            ]
        )
    command = " ".join(["python -m benchmarks.staged", *sys.argv[1:]])
    head = ["shape", "load", "answers/s", "of alone", "of the best fixed", "p99 ms", "of alone", "of the best fixed"]
    text = f"{machine()}; {time.strftime('%Y-%m-%d')}; `{command}`\n\n" + table(head, rows)
    write("staged", text, json.dumps(kept, indent=1))
    print(text)


if __name__ == "__main__":
    main()

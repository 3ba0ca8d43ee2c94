"""Closed loops that begin anew on a server that knows its model, simulated: the default beside four fixed settings.

    python -m benchmarks.restarts   # about a minute

As `no_knobs` looks at a real server: new clients each time, 0.15 s to find together, 0.9 s that count. They get their
answers one after the other, as from one load generator. The same seeds give the same figures, whatever the machine.
"""

import heapq
import statistics
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from benchmarks.policy_sim import CURVES_MS, Simulation, Workload, World, curve
from benchmarks.report import table
from shoal.core.adaptive import Adaptive
from shoal.core.policy import Fixed, Policy

CURVES_MS["mlp"] = {
    1: 4.7,
    2: 13,
    3: 13.5,
    5: 15.5,
    8: 14.8,
    9: 15.6,
    10: 15.8,
    16: 17,
    32: 20,
    64: 26,
    100: 34,
    256: 66,
}
CURVES = ("rtx3090", "h200", "flat", "dented", "mlp")
CLIENTS = (2, 3, 5, 8, 10, 20, 50, 100, 200)
BEFORE = (100, 400, 1)  # clients of the loops that it has met
FIXED = ((1, 0.0), (8, 1e-3), (32, 1e-3), (128, 1e-3))
SEEDS = (1, 2)
STARTS = 6
PAUSE, SPREAD = 0.4, 3e-3  # s between two loops, and in which a loop's clients begin
HANDING = 35e-6  # s for each answer
WARM, WINDOW = 0.15, 0.9  # s


class Look(NamedTuple):
    """What a loop had."""

    throughput: float
    p99: float


class Restarted(Simulation):
    """A server that one closed loop after the other asks."""

    def __init__(self, world: World, policy: Policy) -> None:
        super().__init__(world, policy)
        self._handed = 0.0
        self._present = range(0)  # the clients of the loop

    def look(self, count: int) -> Look:
        """Have so many new clients, once those before them have their last answers."""
        known = self._present.stop
        self._present = range(known, known)
        while self._events:
            self._go_on()
        self._present = range(known, known + count)
        self.now += PAUSE
        for client in self._present:
            self._at(self.now + SPREAD * self._client.random(), partial(self._arrive, client))
        begins, first = self.now + WARM, 0
        while self._events[0][0] <= begins + WINDOW:
            self._go_on()
            first = first if self.now >= begins else len(self.latencies)
        counted = sorted(self.latencies[first:])
        return Look(len(counted) / WINDOW, counted[int(0.99 * len(counted))])

    def _go_on(self) -> None:
        self.now, _, act = heapq.heappop(self._events)
        act()
        self._offer()

    def _arrive(self, client: int | None) -> None:
        if client in self._present:
            super()._arrive(client)

    def _back(self) -> float:
        self._handed = max(self._handed, self.now) + HANDING
        return self._handed - self.now + super()._back()


def found(name: str, count: int, make: Callable[[], Policy], seed: int) -> Look:
    """The medians of some loops of as many clients."""
    simulation = Restarted(World(curve(name), Workload("closed", 1), seed=seed), make())
    for clients in (*BEFORE, count):
        simulation.look(clients)
    looks = [simulation.look(count) for _ in range(STARTS)]
    return Look(*(statistics.median(values) for values in zip(*looks, strict=True)))


def main() -> None:
    """Print the ratios to the best of the fixed settings."""
    ratios: list[Look] = []
    rows: list[list[str]] = []
    for name in CURVES:
        rows.append([name])
        for count in CLIENTS:
            ours = [found(name, count, Adaptive, seed) for seed in SEEDS]
            fixed = [found(name, count, partial(Fixed, *setting), SEEDS[0]) for setting in FIXED]
            best = Look(max(one.throughput for one in fixed), min(one.p99 for one in fixed))
            rates, p99s = (statistics.median(values) for values in zip(*ours, strict=True))
            ratios.append(Look(rates / best.throughput, p99s / best.p99))
            rows[-1].append(f"{ratios[-1].throughput:.2f}, {ratios[-1].p99:.2f}")
    print("Of the best fixed setting's throughput and p99, by clients\n")
    print(table(["curve", *map(str, CLIENTS)], rows))
    rates, p99s = (statistics.fmean(values) for values in zip(*ratios, strict=True))
    behind = sum(one.p99 > 1.05 for one in ratios)
    print(f"Mean {rates:.3f} and {p99s:.3f}; p99 over 1.05 in {behind} of {len(ratios)}.")


if __name__ == "__main__":
    main()

"""Latencies: how long requests took, counted in steps of a few per cent, so that percentiles can be told."""

from collections.abc import Iterable
from math import log2

STEPS = 16  # per doubling: each is 4.4 % wide


class Latencies:
    """Counts of durations."""

    __slots__ = ("count", "counts")

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.count = 0

    def update(self, seconds: Iterable[float]) -> None:
        """Count several durations; none is shorter than a microsecond here."""
        counts = self.counts
        for duration in seconds:
            step = int(STEPS * log2(1e6 * duration)) if duration > 1e-6 else 0
            counts[step] = counts.get(step, 0) + 1
            self.count += 1


def percentiles(several: Iterable[Latencies], *shares: float) -> list[float | None]:
    """Give the milliseconds below which these shares of all durations are; None where there are none."""
    merged: dict[int, int] = {}
    for latencies in several:
        for step, count in latencies.counts.items():
            merged[step] = merged.get(step, 0) + count
    total = sum(merged.values())
    if not total:
        return [None] * len(shares)
    found: list[float | None] = []
    for share in shares:
        wanted, seen = share * total, 0
        for step in sorted(merged):
            seen += merged[step]
            if seen >= wanted:
                found.append(round(2 ** ((step + 0.5) / STEPS) / 1000, 3))
                break
    return found

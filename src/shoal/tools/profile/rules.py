"""The rules of a profile: how often a size is run, when to stop growing, where the knee is, what a goal allows."""

import statistics
from collections.abc import Mapping, Sequence

import msgspec

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
KNEE = 0.9  # of the best throughput
MOST_RUNS = 1000  # of one size
MEMORY_SHARE = 0.8  # of what is free that a prediction may ask for
DISTURBED = 1.25  # times what a larger batch took: few models are that odd, most likely something else was running


class Limits(msgspec.Struct, frozen=True):
    """How much a profile may spend."""

    per_size: float = 1.0  # s of runs for each size
    least_runs: int = 5
    warmup: int = 3  # runs of the first size that do not count; of each later one, one does not
    total: float = 120.0  # s


class Row(msgspec.Struct, frozen=True):
    """What one batch size gave. Times in seconds, memory in bytes."""

    size: int
    runs: int
    total: float  # median
    low: float  # one run in ten is faster
    high: float  # one run in ten is slower
    per_item: float
    per_second: float
    stages: dict[str, float]  # medians
    memory: int  # most resident while it ran, above what the loaded model takes
    device_memory: int


class Best(msgspec.Struct, frozen=True):
    """The batch that a latency goal allows; between measured sizes its time is interpolated."""

    goal: float
    size: int
    total: float
    per_second: float


def row_of(
    size: int, totals: Sequence[float], stages: Mapping[str, Sequence[float]], memory: int, device_memory: int
) -> Row:
    """Sum up the runs of a size."""
    ordered = sorted(totals)
    total = statistics.median(ordered)
    edge = int(len(ordered) * 0.1)
    return Row(
        size=size,
        runs=len(ordered),
        total=total,
        low=ordered[edge],
        high=ordered[-1 - edge],
        per_item=total / size,
        per_second=size / total if total else 0.0,
        stages={name: statistics.median(times) for name, times in stages.items()},
        memory=memory,
        device_memory=device_memory,
    )


def is_enough(totals: Sequence[float], limits: Limits) -> bool:
    """Whether a size has been run often and long enough."""
    count = len(totals)
    return count >= MOST_RUNS or (count >= limits.least_runs and sum(totals) >= limits.per_size)


def why_stop(rows: Sequence[Row], size: int, spent: float, limits: Limits, free: int) -> str:
    """Say why the next size should not be tried; empty: it should. `free` is bytes of memory, 0 if unknown."""
    if not rows:
        return ""
    last = rows[-1]
    grown = size / last.size
    if spent + last.total * grown * (limits.least_runs + 1) > limits.total:
        return f"time: batch size {size} would not fit into the {limits.total:g} s that were given"
    needed = last.memory * (grown - 1)
    if free and needed > MEMORY_SHARE * free:
        return f"memory: batch size {size} would need about {needed / 1e9:.1f} GB more, {free / 1e9:.1f} GB are free"
    return ""


def can_repeat(row: Row, spent: float, limits: Limits) -> bool:
    """Whether there is time to run a size once more, should it take as long again."""
    return spent + max(limits.per_size, row.total * (limits.least_runs + 1)) <= limits.total


def disturbed(rows: Sequence[Row]) -> list[Row]:
    """The sizes that took clearly longer than a larger one did: hardly the model's own time."""
    found: list[Row] = []
    fastest = float("inf")
    for row in reversed(rows):
        if row.total > DISTURBED * fastest:
            found.append(row)
        fastest = min(fastest, row.total)
    return found[::-1]


def knee(rows: Sequence[Row]) -> int:
    """The smallest size that reaches nine tenths of the best throughput; 0 of none."""
    best = max((row.per_second for row in rows), default=0.0)
    return next((row.size for row in rows if row.per_second >= KNEE * best), 0)


def best_under(rows: Sequence[Row], goal: float) -> Best | None:
    """The size with the most items per second whose batch takes no longer than the goal; None if no batch is that fast.

    On the line between two measured sizes throughput only rises or only falls, so the largest size that is in time
    and the measured ones below it are all that has to be looked at.
    """
    ordered = sorted(rows, key=lambda row: row.size)
    found: list[tuple[int, float]] = []
    for row, after in zip(ordered, [*ordered[1:], None], strict=True):
        if row.total > goal:
            continue
        found.append((row.size, row.total))
        if after is not None and after.total > goal:
            slope = (after.total - row.total) / (after.size - row.size)
            extra = int((goal - row.total) / slope)
            found.append((row.size + extra, row.total + slope * extra))
    if not found:
        return None
    size, total = max(found, key=lambda pair: (pair[0] / pair[1] if pair[1] else 0.0, -pair[0]))
    return Best(goal, size, total, size / total if total else 0.0)

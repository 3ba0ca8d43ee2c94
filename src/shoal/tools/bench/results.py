"""What a bench found: figures of each level of load, and the slices of time they came from."""

from collections.abc import Sequence

import msgspec

from shoal.tools.bench.messages import Slice, Split
from shoal.tools.bench.timing import mean_rows, together
from shoal.tools.histogram import PERCENTILES, Histogram, merged

NEEDED = 3  # windows in a row that must agree
BEHIND = 0.05  # of what came due, more than which is missing where a server does not keep up


class Piece(msgspec.Struct, frozen=True):
    """A slice of time, as far as a comparison needs it."""

    answered: int
    counts: dict[int, int]  # of latencies, by bucket
    waiting: int = 0  # requests that were out when it ended


class Server(msgspec.Struct, frozen=True):
    """What the server said of its own work, from a sample of its answers. Times in seconds."""

    p50: dict[str, float]  # of the queue and each stage
    p99: dict[str, float]
    rows: dict[int, int]  # answers by the rows of the batch they rode in
    mean_rows: float  # of a batch
    reasons: dict[str, int]  # answers by why their batch left


class Level(msgspec.Struct, frozen=True):
    """One level of load. Times in seconds, rates per second."""

    label: str  # such as "8 connections"
    kind: str
    seconds: float
    answered: int
    throughput: float
    latency: dict[str, float]  # mean, max and percentiles
    errors: dict[str, int]
    server: Server
    pieces: list[Piece]
    seconds_each: float  # of a piece
    windows: list[float] = []  # throughput of each
    is_stable: bool = True
    spread: float = 0.0  # the widest that the last windows were from their middle
    offered: float = 0.0  # requests per second that came due; 0: closed loop
    unanswered: int = 0  # requests that were out when the load ended (open loop)
    lag: float = 0.0  # s by which the load processes were late, at worst
    cpu: float = 0.0  # of a core, the busiest load process
    concurrency: int = 0

    @property
    def error_count(self) -> int:
        """How many requests failed."""
        return sum(self.errors.values())

    @property
    def is_behind(self) -> bool:
        """Whether the server did not keep up with an open loop: it refused much, or more and more waited.

        Some are always on their way when a level ends, and a batch of them more now and then. They are told from a
        queue that grows by the least that waited: of the second half of the time, against the first.
        """
        some = BEHIND * self.offered
        if self.offered - self.throughput <= some:
            return False
        if self.error_count > some * self.seconds:
            return True
        waiting = [piece.waiting for piece in self.pieces]
        half = len(waiting) // 2
        grown = 2 * (min(waiting[half:], default=0) - min(waiting[:half], default=0))
        return grown > some * self.seconds

    @property
    def notes(self) -> list[str]:
        """What a reader should know before believing the figures."""
        said = []
        if not self.is_stable and len(self.windows) < NEEDED:
            said.append(f"cut short after {self.seconds:.1f} s")
        elif not self.is_stable:
            said.append(f"not stable: the last windows differ by {100 * self.spread:.0f} %")
        if self.is_behind:
            said.append(f"cannot keep up: {self.unanswered} requests had no answer when it ended")
        if self.lag > 0.01:
            said.append(
                f"the load was up to {1000 * self.lag:.0f} ms late by itself; latencies count from when it was due"
            )
        if self.cpu > 0.9:
            said.append("a load process used a whole core; with more --processes the server may do more")
        return said


class Report(msgspec.Struct, frozen=True):
    """A bench whole."""

    target: str
    body: str
    settings: dict[str, str]
    machine: dict[str, str]
    levels: list[Level]
    problem: str = ""  # why it ended early; empty: it did not
    format: int = 1


def figures(histogram: Histogram) -> dict[str, float]:
    """Mean, percentiles and the longest; nothing of nothing."""
    if not histogram.counts:
        return {}
    found = {name: histogram.quantile(share) for name, share in PERCENTILES.items()}
    return {"mean": histogram.mean, **found, "max": histogram.longest}


def server_of(split: Split) -> Server:
    """Sum up what the server said."""
    return Server(
        p50={name: times.quantile(0.5) for name, times in split.times.items()},
        p99={name: times.quantile(0.99) for name, times in split.times.items()},
        rows=split.rows,
        mean_rows=mean_rows(split.rows),
        reasons=split.reasons,
    )


def sum_up(slices: Sequence[Slice], length: float, *, seconds: float = 0.0) -> Level:
    """Put the figures of a level together; who made the load adds what only it knows."""
    taken = seconds or len(slices) * length
    latencies = merged(each.latencies for each in slices)
    answered = sum(each.answered for each in slices)
    errors: dict[str, int] = {}
    for each in slices:
        for kind, count in each.errors.items():
            errors[kind] = errors.get(kind, 0) + count
    return Level(
        label="",
        kind="",
        seconds=taken,
        answered=answered,
        throughput=answered / taken if taken else 0.0,
        latency=figures(latencies),
        errors=dict(sorted(errors.items(), key=lambda pair: -pair[1])),
        server=server_of(together(each.split for each in slices)),
        pieces=[Piece(each.answered, dict(sorted(each.latencies.counts.items())), each.waiting) for each in slices],
        seconds_each=length,
        lag=max((each.lag for each in slices), default=0.0),
        cpu=sum(each.cpu for each in slices) / taken if taken else 0.0,
        offered=sum(each.due for each in slices) / taken if taken else 0.0,
    )


def add(slices: Sequence[Slice]) -> Slice:
    """Put what several load processes saw in the same slice of time together."""
    errors: dict[str, int] = {}
    for each in slices:
        for kind, count in each.errors.items():
            errors[kind] = errors.get(kind, 0) + count
    return Slice(
        slices[0].number,
        sum(each.answered for each in slices),
        merged(each.latencies for each in slices),
        errors,
        together(each.split for each in slices),
        sum(each.due for each in slices),
        max(each.lag for each in slices),
        sum(each.waiting for each in slices),
        max(each.cpu for each in slices),
    )

"""Track: what one model did lately: cells of about a second for the charts, the last batches for the timeline.

It is fed once for each batch, and only while somebody watches. Everything it keeps is bounded.
"""

from collections import Counter, deque
from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple, TypeVar

from shoal.core.batch import Batch
from shoal.core.batcher import Batcher
from shoal.core.model import Model
from shoal.core.request import State
from shoal.frontend.dashboard.latencies import Latencies, percentiles
from shoal.telemetry import ModelStats

T = TypeVar("T")
CELLS = 300  # of about a second each
RECENT = 10  # cells that the numbers beside the charts speak of
SHORTEST = 0.001  # s of a cell: they are told in milliseconds, and rates are per second
KEPT = 512  # batches, of a model that is looked at
INSIDE = "other models"  # the instance of what is run by none of its own
WAITS = 32  # requests of a batch whose waits are told one by one
WAITING = 64  # waiting requests that are told one by one


class Ended(NamedTuple):
    """One batch that has ended; times are seconds of the server's clock, waits are milliseconds."""

    number: int
    instance: str
    reason: str
    left: float
    ended: float
    rows: int
    requests: int
    failed: int
    waits: list[float]


class Held(NamedTuple):
    """One batch that an instance holds now."""

    number: int
    instance: str
    reason: str
    left: float
    rows: int
    requests: int
    waits: list[float]


class Cell(NamedTuple):
    """What happened between two looks; milliseconds are None where nothing was answered."""

    at: float
    seconds: float
    arrived: int
    answered: int
    failed: int
    waiting: int  # at its end
    batches: int
    rows: int
    busy: float  # share of the time of its instances
    p50: float | None
    p95: float | None
    p99: float | None


class Track:
    """One model's. `hear` is called for each batch, `look` about once a second."""

    def __init__(self, model: Model, now: float) -> None:
        self.model = model
        self.viewers = 0  # who follow its timeline
        self.cells: deque[Cell] = deque(maxlen=CELLS)
        self.cells_made = 0
        self.ended: deque[Ended] = deque(maxlen=KEPT)
        self.batches_heard = 0
        self._sizes: deque[Counter[int]] = deque(maxlen=CELLS)
        self._reasons: deque[Counter[str]] = deque(maxlen=CELLS)
        self._latencies: deque[Latencies] = deque(maxlen=RECENT)
        self._busy_until: dict[str, float] = {}
        self._looked = now
        self._began = now
        self._seen = _ended_requests(model.scheduler.stats)
        self._inside = _inside(model)
        self._begin()

    def hear(self, stats: ModelStats, batch: Batch, now: float) -> None:
        """Count a batch that has ended; it is remembered where somebody follows the timeline."""
        self._size[batch.rows] += 1
        self._reason[batch.reason] += 1
        self._batches += 1
        self._rows += batch.rows
        self._failed += batch.failed
        self._latency.update(
            [request.answered - request.arrived for request in batch.requests if request.state is State.ANSWERED]
        )
        self._spend(batch.instance, batch.left, now)
        if self.viewers:
            self.batches_heard += 1
            times = round(batch.left, 5), round(now, 5)
            counts = batch.rows, len(batch.requests), batch.failed
            self.ended.append(
                Ended(batch.number, batch.instance or INSIDE, batch.reason, *times, *counts, _waits(batch))
            )

    def look(self, now: float) -> None:
        """Close the cell that has run since the last look."""
        scheduler = self.model.scheduler
        for instance, held in scheduler.held.items():
            if held:
                self._spend(instance, held[0].left, now)
        for instance in self._busy_until.keys() - scheduler.held.keys():
            del self._busy_until[instance]
        seconds = max(now - self._looked, SHORTEST)
        ended, inside = _ended_requests(scheduler.stats), _inside(self.model)
        arrived = max(0, ended - self._seen + inside - self._inside)
        self._seen, self._inside, self._looked = ended, inside, now
        p50, p95, p99 = percentiles([self._latency], 0.5, 0.95, 0.99)
        instances = max(1, scheduler.batcher.fleet.size)
        self.cells.append(
            Cell(
                round(now, 2),
                round(seconds, 3),
                arrived,
                self._latency.count,
                self._failed,
                len(scheduler.batcher.queue),
                self._batches,
                self._rows,
                round(min(1.0, self._busy / (seconds * instances)), 3),
                p50,
                p95,
                p99,
            )
        )
        self.cells_made += 1
        self._sizes.append(self._size)
        self._reasons.append(self._reason)
        self._latencies.append(self._latency)
        self._begin()

    def sizes(self) -> dict[int, int]:
        """How many batches had so many rows, over all cells."""
        return dict(sorted(_sum(self._sizes).items()))

    def reasons(self) -> dict[str, int]:
        """How many batches left for each reason, over all cells."""
        return dict(_sum(self._reasons).most_common())

    def recent(self) -> list[float | None]:
        """Give the median, the 95th and the 99th percentile of the last cells' answers, in milliseconds."""
        return percentiles(self._latencies, 0.5, 0.95, 0.99)

    def ended_since(self, heard: int, most: int) -> tuple[list[Ended], int]:
        """Give the batches that ended after so many were heard of, and how many of them are not among those given."""
        new = self.batches_heard - heard
        given = min(new, most, len(self.ended))
        return list(islice(self.ended, len(self.ended) - given, None)), new - given

    def cells_since(self, made: int) -> list[Cell]:
        """Give the cells that were made after so many."""
        new = min(self.cells_made - made, len(self.cells))
        return list(islice(self.cells, len(self.cells) - new, None))

    def held(self) -> list[Held]:
        """Give what the instances hold now."""
        return [
            Held(batch.number, instance, batch.reason, round(batch.left, 5), batch.rows, len(batch), _waits(batch))
            for instance, batches in self.model.scheduler.held.items()
            for batch in batches
        ]

    def waiting(self) -> list[float]:
        """When those who wait had arrived, as far as one queue tells: of those whose turn is next, the first few."""
        batcher = self.model.scheduler.batcher
        lane = batcher.queue.head() if isinstance(batcher, Batcher) else None
        return [round(request.arrived, 5) for request in islice(iter(lane or ()), WAITING)]

    def _begin(self) -> None:
        self._size: Counter[int] = Counter()
        self._reason: Counter[str] = Counter()
        self._latency = Latencies()
        self._batches = self._rows = self._failed = 0
        self._busy = 0.0

    def _spend(self, instance: str, since: float, now: float) -> None:
        """Count the time an instance had something to do, each moment once."""
        begin = max(since, self._busy_until.get(instance, self._began))
        if now > begin:
            self._busy += now - begin
            self._busy_until[instance] = now


def _waits(batch: Batch) -> list[float]:
    return [round(1000 * (batch.left - request.arrived), 1) for request in batch.requests[:WAITS]]


def _ended_requests(stats: ModelStats) -> int:
    return stats.answered + stats.failed + stats.expired + stats.withdrawn + stats.refused


def _inside(model: Model) -> int:
    scheduler = model.scheduler
    running = sum(len(batch.requests) for held in scheduler.held.values() for batch in held)
    return len(scheduler.batcher.queue) + running


def _sum(counters: Iterable[Counter[T]]) -> Counter[T]:
    total: Counter[T] = Counter()
    for counter in counters:
        total.update(counter)
    return total

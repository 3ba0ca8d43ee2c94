"""What the tests of the core share: an alarm nobody winds, instances that only hold, memory that counts its returns."""

import math
from collections.abc import Callable, Hashable, Sequence

from shoal.core.batch import Batch, Stages
from shoal.core.batcher import Batcher
from shoal.core.model import WorkerFacts
from shoal.core.poison import Poison
from shoal.core.policy import Decision, Fleet, Lane, Leave, Policy
from shoal.core.queue import RequestQueue
from shoal.core.request import Outcome, Request
from shoal.core.scheduler import Scheduler
from shoal.errors import HandlerFailed, ServingError, WorkerDied
from shoal.payload import Part, Payload, Result
from shoal.telemetry import ModelStats


class FakeClock:
    def __init__(self, time: float = 0.0) -> None:
        self.time = time

    def now(self) -> float:
        return self.time


class FakeAlarm:
    """Remembers what it was asked for; the test decides when it rings."""

    def __init__(self) -> None:
        self.is_due = False
        self.time = math.inf

    def soon(self) -> None:
        self.is_due = True

    def at(self, time: float) -> None:
        self.time = time


class FakeBlock:
    """Lent memory that knows whether a worker may still read it."""

    offset = 0
    size = 1

    def __init__(self) -> None:
        self.released = 0
        self.readers = 0

    @property
    def view(self) -> memoryview:
        return memoryview(b"x")

    def release(self) -> None:
        assert not self.readers, "memory was given back while a worker could read it"
        self.released += 1


class Ear:
    """Hears the answers of one request."""

    def __init__(self) -> None:
        self.heard: list[tuple[Outcome, bool]] = []

    def __call__(self, request: Request, outcome: Outcome, is_last: bool) -> None:
        assert not self.has_ended, "called after the last answer"
        self.heard.append((outcome, is_last))

    @property
    def has_ended(self) -> bool:
        return bool(self.heard) and self.heard[-1][1]

    @property
    def last(self) -> Outcome:
        assert self.has_ended, "not ended"
        return self.heard[-1][0]

    @property
    def bodies(self) -> list[bytes]:
        return [bytes(outcome.body) for outcome, _ in self.heard if isinstance(outcome, Result)]


class Asked(Request):
    """A request with an ear and a block of lent memory."""

    ear: Ear
    block: FakeBlock


def ask(
    *,
    arrived: float = 0.0,
    rows: int = 1,
    group: Hashable = None,
    priority: int = 0,
    deadline: float = math.inf,
    client: Hashable = None,
) -> Asked:
    ear, block = Ear(), FakeBlock()
    payload = Payload([Part("body", "", block)])
    request = Asked(payload, ear, arrived, rows=rows, group=group, priority=priority, deadline=deadline, client=client)
    request.ear, request.block = ear, block
    return request


class StubInstance:
    """Holds batches until the test ends them."""

    def __init__(self, id: str = "a", places: int = 1) -> None:
        self.id = id
        self.places = places
        self.batches: list[Batch] = []
        self.cancelled: list[tuple[Batch, int]] = []

    def run(self, batch: Batch) -> None:
        self.batches.append(batch)

    def cancel(self, batch: Batch, index: int) -> None:
        self.cancelled.append((batch, index))


class Scripted:
    """A policy that does what the test says; it sends everything when the script is over."""

    limit = enough = 100

    def __init__(self, *decisions: Decision, ahead: float | None = None) -> None:
        self.decisions = list(decisions)
        self.opens = ahead
        self.told: list[tuple[str, object]] = []

    def arrived(self, request: Request, lane: Lane, fleet: Fleet, now: float) -> None:
        self.told.append(("arrived", request))

    def decide(self, lane: Lane, fleet: Fleet, now: float) -> Decision:
        return self.decisions.pop(0) if self.decisions else Leave(self.limit, "scripted")

    def ahead(self, lane: Lane, instance: str, now: float) -> float | None:
        return self.opens

    def sent(self, batch: Batch, fleet: Fleet, now: float) -> None:
        self.told.append(("sent", batch))

    def done(self, batch: Batch, now: float) -> None:
        self.told.append(("done", batch))

    def retry_after(self, waiting: int, fleet: Fleet) -> float:
        return 7.0

    def is_hopeless(self, request: Request, ahead: int, fleet: Fleet, now: float) -> bool:
        self.told.append(("hopeless", ahead))
        return request.deadline - now < ahead

    def describe(self) -> dict[str, object]:
        return {}


class Bench:
    """A scheduler with nothing real around it, and a time that goes where it is told."""

    def __init__(
        self,
        policy: Policy | None = None,
        *,
        limit: int = 100,
        max_attempts: int = 3,
        isolates: bool = False,
        poison: Poison | None = None,
    ) -> None:
        self.policy = policy or Scripted()
        self.alarm = FakeAlarm()
        self.stats = ModelStats("m", "1.0")
        self.batcher = Batcher(RequestQueue("m", limit), self.policy)
        self.scheduler = Scheduler(
            self.batcher, self.alarm, self.stats, max_attempts=max_attempts, isolates=isolates, poison=poison
        )
        self.now = 0.0

    @property
    def fleet(self) -> Fleet:
        return self.batcher.fleet

    def join(self, id: str = "a", places: int = 1) -> StubInstance:
        instance = StubInstance(id, places)
        self.scheduler.join(instance)
        return instance

    def offer(self, *requests: Request) -> None:
        for request in requests:
            self.scheduler.offer(request, self.now)

    def feed(self, now: float | None = None) -> None:
        self.now = self.now if now is None else now
        self.alarm.is_due = False
        self.alarm.time = math.inf
        self.scheduler.feed(self.now)

    def run_short(self, instance: StubInstance) -> None:
        """The oldest batch of an instance runs out of memory."""
        batch = instance.batches.pop(0)
        batch.stages = Stages()
        self.scheduler.freed(instance, batch, self.now, self.now)
        self.scheduler.closed(batch, self.now, lambda: HandlerFailed("no memory", status=507), out_of_memory=True)

    def finish(self, instance: StubInstance, *bodies: bytes, error: ServingError | None = None) -> Batch:
        """The oldest batch of an instance ends: a whole answer for each body given, then `error` for the others."""
        batch = instance.batches.pop(0)
        batch.stages = Stages()
        self.scheduler.freed(instance, batch, self.now, self.now)
        for index, body in enumerate(bodies):
            batch.deliver(index, Result(body), True, self.now)
        self.scheduler.closed(batch, self.now, lambda: error or HandlerFailed("no answer"))
        return batch

    def kill(self, instance: StubInstance, *, hung: Batch | None = None) -> None:
        self.scheduler.leave(instance, self.now, lambda batch: WorkerDied(f"held {len(batch)}"), hung=hung)


class FakePool:
    """Workers that come up, or do not, when the test says so."""

    def __init__(self) -> None:
        self.size = 0
        self.trouble = ""
        self.calls: list[str] = []
        self.on_start: Callable[[], None] = lambda: None

    async def start(self) -> None:
        self.calls.append("start")
        self.on_start()

    async def scale(self, workers: int) -> None:
        self.calls.append(f"scale {workers}")
        self.size = workers

    async def stop(self, timeout: float) -> None:
        self.calls.append(f"stop {timeout:g}")
        self.size = 0

    def describe(self) -> Sequence[WorkerFacts]:
        return []

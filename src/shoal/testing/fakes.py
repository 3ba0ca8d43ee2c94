"""The core with time in your hands: a clock, an alarm and an instance that do only what a test tells them."""

import math
from collections.abc import Callable, Sequence

from shoal.core.batch import Batch, Stages
from shoal.core.request import Outcome, Request
from shoal.core.scheduler import Scheduler
from shoal.errors import HandlerFailed
from shoal.payload import Result


class FakeClock:
    """A clock that stands still until told."""

    def __init__(self, now: float = 0.0) -> None:
        self._now = now

    def now(self) -> float:
        """Give the moment it stands at."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let time pass; it never goes back."""
        if seconds < 0:
            raise ValueError(f"time does not go back, asked for {seconds} s")
        self._now += seconds


class FakeAlarm:
    """Alarm of a scheduler that rings when the test says so."""

    def __init__(self, clock: FakeClock) -> None:
        self.is_due = False
        self.time = math.inf  # when it would ring by itself
        self._clock = clock
        self._call: Callable[[float], None] = _nothing

    def connect(self, call: Callable[[float], None]) -> None:
        """Say what to call, with the time as its argument: `scheduler.feed`."""
        self._call = call

    def soon(self) -> None:
        """Ring at the next `settle`."""
        self.is_due = True

    def at(self, time: float) -> None:
        """Ring at the first `settle` at or after that time."""
        self.time = time

    def settle(self) -> None:
        """Ring as long as something is due at this moment."""
        while self.is_due or self.time <= self._clock.now():
            self.is_due = False
            self.time = math.inf
            self._call(self._clock.now())


class Answers:
    """Hears what requests are told: give it as `on_answer`, then look at `of(request)`."""

    def __init__(self) -> None:
        self._heard: dict[Request, list[Outcome]] = {}

    def __call__(self, request: Request, outcome: Outcome, is_last: bool) -> None:
        """Note one piece of a request's answer."""
        self._heard.setdefault(request, []).append(outcome)

    def of(self, request: Request) -> list[Outcome]:
        """Give all that a request was told, in order."""
        return self._heard.get(request, [])


class StubInstance:
    """An instance that keeps its batches until the test finishes them."""

    def __init__(self, scheduler: Scheduler, clock: FakeClock, id: str = "stub", places: int = 1) -> None:
        self.id = id
        self.places = places
        self.held: list[Batch] = []
        self.cancelled: list[tuple[Batch, int]] = []
        self._scheduler = scheduler
        self._clock = clock

    def run(self, batch: Batch) -> None:
        """Take a batch and keep it."""
        self.held.append(batch)

    def cancel(self, batch: Batch, index: int) -> None:
        """Remember whose answer is not wanted any more."""
        self.cancelled.append((batch, index))

    def finish(self, outcomes: Sequence[Outcome | bytes] | None = None, *, seconds: float = 0.0) -> Batch:
        """End the oldest batch, with an empty result for each request unless told otherwise."""
        batch = self.held.pop(0)
        batch.stages = Stages(inference=seconds)
        now = self._clock.now()
        self._scheduler.freed(self, batch, now, now)
        for index, outcome in enumerate([b""] * len(batch) if outcomes is None else outcomes):
            batch.deliver(index, Result(outcome) if isinstance(outcome, bytes) else outcome, True, now)
        self._scheduler.closed(batch, now, lambda: HandlerFailed("the stub gave no outcome for this request"))
        return batch

    def die(self, message: str = "the stub died") -> None:
        """Leave with whatever it holds."""
        self.held.clear()
        self._scheduler.leave(self, self._clock.now(), lambda batch: HandlerFailed(message))


def _nothing(now: float) -> None:
    """Stands where no scheduler was connected."""

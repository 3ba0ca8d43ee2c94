"""When a batch leaves: the rules, as functions of what waits, who is free and what time it is.

A policy owns no queue, no timer and no clock. It is asked only when an instance could start a batch, and answers with
one of three shapes: these rows leave now, hold until then, or refuse these requests because they cannot be saved.
"""

import sys
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from shoal.core.batch import Batch
from shoal.core.request import Request


@dataclass(frozen=True, slots=True)
class Leave:
    """Send up to `rows` rows from the head of the lane now."""

    rows: int
    reason: str


ALONE: Final = Leave(1, "idle")  # made once: so the batch of a lone request leaves


@dataclass(frozen=True, slots=True)
class Hold:
    """Wait for company until then at the latest; ask again on every arrival."""

    until: float
    reason: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """These requests cannot be answered in time: end them now, then ask again."""

    requests: Sequence[Request]


Decision = Leave | Hold | Refuse


class Lane(Protocol):
    """The requests that could leave together, in the order they would leave; never empty when a policy sees it."""

    @property
    def rows(self) -> int:
        """Rows of all live requests here."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Request: ...


class LeavingLane(Lane, Protocol):
    """A lane as its queue gives it: with the way out."""

    def pop(self, rows: int) -> list[Request]:
        """Take requests from the head up to `rows` rows; a first one larger than that travels alone."""
        ...


@dataclass(slots=True)
class Fleet:
    """The instances of a model, as far as a policy may know them."""

    size: int = 0  # instances that are up
    idle: int = 0  # of those, free for a batch


class Policy(Protocol):
    """A rule for when a batch leaves; it may learn from what it is told."""

    limit: int  # the most rows a batch may have

    @property
    def enough(self) -> int:
        """Rows that leave as soon as an instance has room for them: nobody else is waited for."""
        ...

    def arrived(self, request: Request, lane: Lane, fleet: Fleet, now: float) -> None:
        """Note a request that has just joined `lane`."""
        ...

    def decide(self, lane: Lane, fleet: Fleet, now: float) -> Decision:
        """Say what happens to `lane` now that an instance is free."""
        ...

    def ahead(self, lane: Lane, instance: str, now: float) -> float | None:
        """When may `instance`, which runs a batch already, be sent the next one? None: not before it is free."""
        ...

    def sent(self, batch: Batch, fleet: Fleet, now: float) -> None:
        """Note a batch that has left for `batch.instance`."""
        ...

    def done(self, batch: Batch, now: float) -> None:
        """Learn from a batch that has ended; `batch.stages` is None when its worker failed it."""
        ...

    def retry_after(self, waiting: int, fleet: Fleet) -> float:
        """Estimate the seconds until a refused client may find room."""
        ...

    def is_hopeless(self, request: Request, ahead: int, fleet: Fleet, now: float) -> bool:
        """Whether a request behind `ahead` rows is certain to miss its deadline; False where nothing is known."""
        ...

    def describe(self) -> dict[str, object]:
        """Tell what it has learned, for a person to read."""
        ...


MOST_GROUPS: Final = 1024  # whose collecting is remembered; more are forgotten, and their delay begins anew


class Told:
    """What policies have in common that know two numbers, a size and a delay, and learn nothing."""

    def __init__(self, limit: int, delay: float) -> None:
        self.limit = limit
        self.delay = delay

    @property
    def enough(self) -> int:
        """A batch that nothing more fits into."""
        return self.limit

    def arrived(self, request: Request, lane: Lane, fleet: Fleet, now: float) -> None:
        """Nothing is learned from arrivals."""

    def ahead(self, lane: Lane, instance: str, now: float) -> float | None:
        """One batch in flight per instance, as upstream: whatever is not begun may still grow."""
        return None

    def sent(self, batch: Batch, fleet: Fleet, now: float) -> None:
        """Nothing to note."""

    def done(self, batch: Batch, now: float) -> None:
        """Nothing is learned from batches."""

    def retry_after(self, waiting: int, fleet: Fleet) -> float:
        """Give the delay, or a second where there is none."""
        return max(1.0, self.delay)

    def is_hopeless(self, request: Request, ahead: int, fleet: Fleet, now: float) -> bool:
        """What batches cost is not known."""
        return False


class Fixed(Told):
    """TorchServe's rule: full, or `delay` seconds after an instance took the first request.

    The delay counts from the moment an instance was free to take the first request, not from that request's arrival;
    one instance collects at a time. With delay 0 one more request than the first is taken.
    """

    def __init__(self, limit: int, delay: float) -> None:
        super().__init__(limit, delay)
        self._since: dict[Hashable, float] = {}  # by group: when an instance began to collect it

    def arrived(self, request: Request, lane: Lane, fleet: Fleet, now: float) -> None:
        """A first request has not been taken by anybody yet, whoever collected before it."""
        if len(lane) == 1:
            self._since.pop(request.group, None)
            if len(self._since) > MOST_GROUPS:
                self._since.clear()

    def decide(self, lane: Lane, fleet: Fleet, now: float) -> Decision:
        """Leave when full or when the delay of the collecting instance is over."""
        if lane.rows >= self.limit:
            return Leave(self.limit, "full")
        if self.delay <= 0:
            return Leave(min(self.limit, 2), "delay")
        since = self._since.setdefault(lane[0].group, now)
        if now >= since + self.delay:
            return Leave(self.limit, "delay")
        return Hold(since + self.delay, "delay")

    def sent(self, batch: Batch, fleet: Fleet, now: float) -> None:
        """The next first request of the group starts a new delay."""
        self._since.pop(batch.requests[0].group, None)

    def describe(self) -> dict[str, object]:
        """Tell the two numbers it was given."""
        return {"batch_size": self.limit, "max_batch_delay_ms": 1000 * self.delay}


class Single(Fixed):
    """Every request alone: nothing waits, nothing is batched."""

    def __init__(self) -> None:
        super().__init__(1, 0.0)

    @property
    def enough(self) -> int:
        """There is nothing to fill: all of a turn are seen together, and shared out among the instances."""
        return sys.maxsize

    def decide(self, lane: Lane, fleet: Fleet, now: float) -> Decision:
        """Send the head at once."""
        return Leave(1, "single")

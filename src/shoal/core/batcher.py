"""Batcher: the queue, the policy and the grouping of one model. `take` gives a Batch, WaitUntil or None."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from shoal.core.batch import Batch
from shoal.core.ceiling import Ceilings
from shoal.core.cohort import is_cohort
from shoal.core.order import AnswerOrder
from shoal.core.pace import Pace
from shoal.core.policy import Fleet, Hold, Leave, LeavingLane, Policy, Refuse
from shoal.core.request import Request
from shoal.errors import DeadlineExceeded


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """Nothing leaves now; ask again then, or when something changes."""

    time: float
    reason: str


class Queue(Protocol):
    """What waits for one model, in the order it will leave."""

    limit: int  # requests

    def __len__(self) -> int: ...

    def add(self, request: Request, retry_after: Callable[[], float]) -> LeavingLane:
        """Let the request wait, or raise QueueFull and take nothing."""
        ...

    def add_first(self, requests: Sequence[Request]) -> None:
        """Take back requests that had left."""
        ...

    def rows_before(self, request: Request) -> int:
        """How many rows are certain to leave before a request that has not joined yet, of those it may travel with."""
        ...

    def forget(self, request: Request) -> None:
        """Take out a request that ended while it waited."""
        ...

    def head(self) -> LeavingLane | None:
        """Give those whose turn it is, or None when nobody waits."""
        ...

    def pop(self, lane: LeavingLane, rows: int) -> list[Request]:
        """Take up to `rows` rows out of a lane."""
        ...

    def expired(self, now: float) -> Iterable[Request]:
        """Give the waiting requests whose time is over; the caller ends and forgets each."""
        ...

    def overdue(self, request: Request, now: float) -> DeadlineExceeded:
        """Say why one of those could not wait any longer."""
        ...

    def next_deadline(self) -> float:
        """When the next waiting request's time is over."""
        ...

    def drain(self) -> list[Request]:
        """Take out everybody."""
        ...


class Batcher:
    """Decides, for one model, what leaves when an instance could start it."""

    is_shared = True  # what waits may go to any instance
    may_rerun = True  # a request may be given to a worker again
    failed = 0  # requests that failed while they waited: none here

    def __init__(self, queue: Queue, policy: Policy, order: AnswerOrder | None = None) -> None:
        self.queue = queue
        self.policy = policy
        self.order = order
        self.fleet = Fleet()
        self.ceilings = Ceilings()  # of instances whose memory ran out
        self.expired = 0  # requests refused for their deadline
        self._pace = Pace()
        self._made = 0

    def joined(self, instance: str) -> None:
        """An instance is up; all are alike here."""

    def left(self, instance: str) -> None:
        """An instance is gone, or will be sent nothing more."""

    def offer(self, request: Request, now: float) -> bool:
        """Take the request, or raise QueueFull or DeadlineExceeded and take nothing. True: it makes a batch full."""
        if request.deadline < math.inf and len(self.queue):
            self._check_deadline(request, now)
        lane = self.queue.add(request, self._retry_after)
        if self.order is not None:
            self.order.add(request)
        self.policy.arrived(request, lane, self.fleet, now)
        return lane.rows - request.rows < self.policy.enough <= lane.rows

    def withdraw(self, request: Request, now: float) -> int:
        """The client left; the number of requests that ended by it: one, or none when it had ended before."""
        was_waiting = request.batch is None
        has_left = request.withdraw(now)
        if has_left and was_waiting:
            self.queue.forget(request)
        if self.order is not None:
            self.order.drop(request)
        return int(has_left)

    def give_back(self, requests: list[Request]) -> None:
        """Requests whose worker died go before everybody else."""
        self.queue.add_first(requests)

    def expire(self, now: float) -> None:
        """End those whose deadline passed while they waited."""
        for request in self.queue.expired(now):
            self._refuse(request, now, self.queue.overdue(request, now))

    def take(self, instance: str, now: float, *, is_busy: bool = False) -> Batch | WaitUntil | None:
        """Make the batch that `instance` starts now, if one should leave; None when nobody waits."""
        while (lane := self.queue.head()) is not None:
            if is_cohort(lane[0]):
                if is_busy:
                    return WaitUntil(math.inf, "rerun")  # it may take its worker down, and whatever runs there
                self._made += 1
                return Batch(self._made, self.queue.pop(lane, lane.rows), "rerun", now)
            if is_busy:
                opens = self.policy.ahead(lane, instance, now)
                if opens is None or opens > now:
                    return WaitUntil(math.inf if opens is None else opens, "ahead")
            match self.policy.decide(lane, self.fleet, now):
                case Leave(rows, reason):
                    if self.ceilings.known:
                        rows = min(rows, self.ceilings.allowed(instance, self.policy.limit, now))
                    self._made += 1
                    return Batch(self._made, self.queue.pop(lane, rows), reason, now)
                case Hold(until, reason):
                    return WaitUntil(until, reason)
                case Refuse(requests):
                    for request in requests:
                        waited = 1000 * (now - request.arrived)
                        why = f"the deadline cannot be met any more ({waited:.0f} ms)"
                        self._refuse(request, now, DeadlineExceeded(why))
        return None

    def sent(self, batch: Batch, now: float) -> None:
        """The batch is on its way to `batch.instance`."""
        self.policy.sent(batch, self.fleet, now)

    def done(self, batch: Batch, now: float) -> None:
        """The batch ended: teach the policy."""
        self.policy.done(batch, now)
        self._pace.note(len(batch), len(self.queue) > 0, now)

    def _check_deadline(self, request: Request, now: float) -> None:
        """Refuse at once who cannot be answered in time; with nobody waiting a batch that leaves decides."""
        ahead = self.queue.rows_before(request)
        if self.policy.is_hopeless(request, ahead, self.fleet, now):
            self.expired += 1
            within = 1000 * (request.deadline - now)
            why = f"the deadline cannot be met: {ahead} rows are before it and {within:.0f} ms are left"
            raise DeadlineExceeded(why)

    def _refuse(self, request: Request, now: float, error: DeadlineExceeded) -> None:
        request.answer(error, True, now)
        self.queue.forget(request)
        self.expired += 1

    def _retry_after(self) -> float:
        """Ask how fast the queue has been emptied of late; while that is not known, the policy."""
        waiting = len(self.queue)
        return self._pace.time_for(waiting) or self.policy.retry_after(waiting, self.fleet)

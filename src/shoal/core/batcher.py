"""Batcher: the queue, the policy and the grouping of one model. `take` gives a Batch, WaitUntil or None."""

import math
from dataclasses import dataclass

from shoal.core.batch import Batch
from shoal.core.cohort import is_cohort
from shoal.core.policy import Fleet, Hold, Leave, Policy, Refuse
from shoal.core.queue import RequestQueue
from shoal.core.request import Request
from shoal.errors import DeadlineExceeded


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """Nothing leaves now; ask again then, or when something changes."""

    time: float
    reason: str


class Batcher:
    """Decides, for one model, what leaves when an instance could start it."""

    def __init__(self, queue: RequestQueue, policy: Policy) -> None:
        self.queue = queue
        self.policy = policy
        self.fleet = Fleet()
        self.expired = 0  # requests refused for their deadline
        self._made = 0

    def offer(self, request: Request, now: float) -> None:
        """Take the request, or raise QueueFull and take nothing."""
        lane = self.queue.add(request, self._retry_after)
        self.policy.arrived(request, lane, self.fleet, now)

    def withdraw(self, request: Request, now: float) -> bool:
        """The client left; True when the request had not ended before."""
        was_waiting = request.batch is None
        if not request.withdraw(now):
            return False
        if was_waiting:
            self.queue.forget(request)
        return True

    def give_back(self, requests: list[Request]) -> None:
        """Requests whose worker died go before everybody else."""
        self.queue.add_first(requests)

    def expire(self, now: float) -> None:
        """End those whose deadline passed while they waited."""
        for request in self.queue.expired(now):
            self._refuse(request, now, "the deadline passed while the request waited")

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
                    self._made += 1
                    return Batch(self._made, self.queue.pop(lane, rows), reason, now)
                case Hold(until, reason):
                    return WaitUntil(until, reason)
                case Refuse(requests):
                    for request in requests:
                        self._refuse(request, now, "the deadline cannot be met any more")
        return None

    def sent(self, batch: Batch, now: float) -> None:
        """The batch is on its way to `batch.instance`."""
        self.policy.sent(batch, self.fleet, now)

    def done(self, batch: Batch, now: float) -> None:
        """The batch ended: teach the policy."""
        self.policy.done(batch, now)

    def _refuse(self, request: Request, now: float, why: str) -> None:
        waited = 1000 * (now - request.arrived)
        request.answer(DeadlineExceeded(f"{why} ({waited:.0f} ms)"), True, now)
        self.queue.forget(request)
        self.expired += 1

    def _retry_after(self) -> float:
        return self.policy.retry_after(len(self.queue), self.fleet)

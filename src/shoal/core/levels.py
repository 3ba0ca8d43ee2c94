"""LevelQueue: what waits for one model under Triton's queue policies: one line by priority level, with time-outs.

A time-out counts from arrival, ends once a request has left, and either ends the request (REJECT) or puts it behind the
others of its level (DELAY). A request's own deadline is kept beside it, whatever the policy says.
"""

import heapq
import math
from collections.abc import Callable, Iterable, Sequence

from shoal.config.scheduling import QueuePolicy
from shoal.core.line import Line
from shoal.core.policy import LeavingLane
from shoal.core.request import QUEUED, Request, deadline_passed
from shoal.errors import DeadlineExceeded, LevelFull, QueueFull, QueueTimeout


class LevelQueue:
    """Takes a request or refuses it at once. Levels count from 1; any other priority means `default`."""

    def __init__(self, model: str, limit: int, policies: Sequence[QueuePolicy] = (), default: int = 1) -> None:
        self.model = model
        self.limit = limit
        self.policies = list(policies) or [QueuePolicy()]
        self.default = default
        self._line = Line(len(self.policies))
        self._times: list[tuple[float, int, Request]] = []  # a heap; those that left or ended leave it late
        self._order = 0

    def __len__(self) -> int:
        return len(self._line)

    def add(self, request: Request, retry_after: Callable[[], float]) -> Line:
        """Let the request wait, or raise QueueFull and take nothing."""
        if len(self._line) >= self.limit:
            raise QueueFull(self.model, len(self._line), retry_after())
        level = self._level(request)
        most = self.policies[level].max_queue_size
        if most and self._line.levels[level].waiting >= most:
            raise LevelFull(retry_after())
        self._line.add(request, level)
        self._watch(request, self._expiry(request))
        self._watch(request, request.deadline)
        return self._line

    def rows_before(self, request: Request) -> int:
        """Nothing is said: queue policies have rules of their own for those who waited too long."""
        return 0

    def add_first(self, requests: Sequence[Request]) -> None:
        """Take back requests that had been admitted before; of their times only the deadline is left."""
        self._line.add_first(requests)
        for request in requests:
            self._watch(request, request.deadline)

    def forget(self, request: Request) -> None:
        """Take out a request that ended while it waited here."""
        self._line.forget(request, self._level(request))

    def head(self) -> Line | None:
        """Give the line, or None when nobody waits."""
        return self._line if len(self._line) else None

    def pop(self, lane: LeavingLane, rows: int) -> list[Request]:
        """Take up to `rows` rows of one group from the head."""
        return lane.pop(rows)

    def expired(self, now: float) -> Iterable[Request]:
        """Give the waiting requests whose time is over; the caller ends and forgets each. Others are put back."""
        late: dict[int, list[Request]] = {}
        heap = self._times
        if not heap or heap[0][0] > now:
            return ()
        ended: list[Request] = []
        while heap and heap[0][0] <= now:
            time, _, request = heapq.heappop(heap)
            if request.state is not QUEUED:
                continue
            if request.deadline <= time:
                ended.append(request)
            elif not request.attempts:  # once it has left, only its deadline counts
                level = self._level(request)
                if self.policies[level].timeout_action == "DELAY":
                    late.setdefault(level, []).append(request)
                else:
                    ended.append(request)
        for level, requests in late.items():
            self._line.delay(requests, level)
        return (request for request in dict.fromkeys(ended) if request.state is QUEUED)

    def overdue(self, request: Request, now: float) -> DeadlineExceeded:
        """Say why a request that was given as expired could not wait any longer."""
        if request.deadline <= now:
            return deadline_passed(request, now)
        return QueueTimeout("Request timeout expired")

    def next_deadline(self) -> float:
        """When the next waiting request's time is over."""
        heap = self._times
        while heap and heap[0][2].state is not QUEUED:
            heapq.heappop(heap)
        return heap[0][0] if heap else math.inf

    def drain(self) -> list[Request]:
        """Take out everybody."""
        return self._line.clear()

    def _level(self, request: Request) -> int:
        """The index of its level."""
        priority = request.priority
        return (priority if 1 <= priority <= len(self.policies) else self.default) - 1

    def _expiry(self, request: Request) -> float:
        """When its time-out passes: its own may shorten the policy's, never lengthen it, nor stand in for none."""
        policy = self.policies[self._level(request)]
        if not policy.default_timeout_microseconds:
            return math.inf
        timeout = policy.default_timeout_microseconds / 1e6
        if policy.allow_timeout_override and 0.0 < request.timeout < timeout:
            timeout = request.timeout
        return request.arrived + timeout

    def _watch(self, request: Request, time: float) -> None:
        if time == math.inf:
            return
        self._order += 1
        heapq.heappush(self._times, (time, self._order, request))
        if len(self._times) > 4 * len(self._line) + 1024:
            self._times = [entry for entry in self._times if entry[2].state is QUEUED]
            heapq.heapify(self._times)

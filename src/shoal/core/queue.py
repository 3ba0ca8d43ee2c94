"""RequestQueue: requests waiting, bounded, in the order they will leave.

Smaller priorities leave first. Within a priority requests wait in lanes, one for each group (what may share a batch),
and the lane whose head is due first has its turn. A request is due at its deadline, or `PATIENCE` after it arrived
where that is sooner, so a stream of urgent requests cannot starve those without a deadline. Among equals nobody
overtakes.
"""

import heapq
import math
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Final

from shoal.core.policy import LeavingLane
from shoal.core.request import QUEUED, Request, deadline_passed
from shoal.errors import DeadlineExceeded, QueueFull, ShareUsed

PATIENCE: Final = 30.0  # seconds a request without a nearer deadline lets others pass


def due(request: Request) -> float:
    """When the request's turn should have come at the latest."""
    return min(request.deadline, request.arrived + PATIENCE)


class GroupLane:
    """Requests of one group and priority, those that left early taken out before anybody looks."""

    __slots__ = ("_dead", "_requests", "rows")

    def __init__(self) -> None:
        self._requests: deque[Request] = deque()
        self._dead = 0  # ended while waiting, still in the deque
        self.rows = 0

    def __len__(self) -> int:
        return len(self._requests) - self._dead

    def __getitem__(self, index: int) -> Request:
        self._settle()
        return self._requests[index]

    def __iter__(self) -> Iterator[Request]:
        self._settle()
        return iter(self._requests)

    @property
    def last(self) -> Request | None:
        """Whoever is at the end, if anybody; one that ends this moment may be told and not be forgotten yet."""
        self._settle()
        return self._requests[-1] if self._requests else None

    def add(self, request: Request) -> None:
        """Put the request behind everybody due no later, and behind those that were taken back."""
        self.rows += request.rows
        if not self._requests or _is_behind(self._requests[-1], request):
            self._requests.append(request)
        else:
            self._settle()
            self._requests.insert(bisect_right(self._requests, due(request), key=_place), request)

    def add_first(self, requests: Sequence[Request]) -> None:
        """Put requests that had left already back before everybody, in their order."""
        self._requests.extendleft(reversed(requests))
        self.rows += sum(request.rows for request in requests)

    def forget(self, request: Request) -> None:
        """Take out a request that has just ended."""
        self._dead += 1
        self.rows -= request.rows

    def pop(self, rows: int) -> list[Request]:
        """Take requests from the head up to `rows` rows; a first one larger than that travels alone."""
        self._settle()
        requests = self._requests
        if rows >= self.rows:
            taken = list(requests)
            requests.clear()
            self.rows = 0
            return taken
        first = requests.popleft()
        taken, room = [first], rows - first.rows
        while requests and requests[0].rows <= room:
            request = requests.popleft()
            room -= request.rows
            taken.append(request)
        self.rows -= sum(request.rows for request in taken)
        return taken

    def _settle(self) -> None:
        if self._dead:
            before = len(self._requests)
            self._requests = deque(request for request in self._requests if request.state is QUEUED)
            self._dead -= before - len(self._requests)  # one that has ended but is not forgotten yet is counted then


class RequestQueue:
    """What waits for one model; it takes a request or refuses it at once."""

    def __init__(self, model: str, limit: int, share: float = 1.0) -> None:
        self.model = model
        self.limit = limit
        self._crowd = most_of(limit, share)  # what one client may have waiting: below, nobody is counted
        self._counts: dict[Hashable, int] | None = None  # by client, while it is crowded
        self._levels: dict[int, dict[Hashable, GroupLane]] = {}
        self._size = 0
        self._deadlines: list[tuple[float, int, Request]] = []  # a heap; the ended leave it late
        self._order = 0

    def __len__(self) -> int:
        return self._size

    def add(self, request: Request, retry_after: Callable[[], float]) -> GroupLane:
        """Let the request wait, or raise QueueFull and take nothing; `retry_after` is the hint for the refused."""
        if self._size >= self._crowd:
            self._check_room(request, retry_after)
        lane = self._lane(request)
        lane.add(request)
        self._size += 1
        if self._counts is not None:
            self._count(request)
        if request.deadline < math.inf:
            self._watch(request)
        return lane

    def rows_before(self, request: Request) -> int:
        """Give the rows of its lane where it would be the last of it; none where it would overtake some."""
        lane = self._levels.get(request.priority, {}).get(request.group)
        last = None if lane is None else lane.last
        return 0 if lane is None or last is None or not _is_behind(last, request) else lane.rows

    def add_first(self, requests: Sequence[Request]) -> None:
        """Take back requests that had been admitted before, whatever the limit says now."""
        for request in reversed(requests):
            self._lane(request).add_first([request])
            self._size += 1
            if self._counts is not None:
                self._count(request)
            if request.deadline < math.inf:
                self._watch(request)

    def forget(self, request: Request) -> None:
        """Take out a request that ended while it waited here."""
        self._lane(request).forget(request)
        self._size -= 1
        if self._counts is not None:
            self._uncount([request])
        self._tidy()

    def head(self) -> GroupLane | None:
        """The lane whose turn it is, or None when nobody waits."""
        if not self._size:
            return None
        for priority in sorted(self._levels) if len(self._levels) > 1 else self._levels:
            lanes = self._levels[priority]
            if len(lanes) == 1:
                (lane,) = lanes.values()
                if len(lane):
                    return lane
                continue
            waiting = [lane for lane in lanes.values() if len(lane)]
            if waiting:
                return min(waiting, key=lambda lane: due(lane[0]))
        raise AssertionError("the queue counts requests that no lane holds")

    def pop(self, lane: LeavingLane, rows: int) -> list[Request]:
        """Take up to `rows` rows out of a lane."""
        taken = lane.pop(rows)
        self._size -= len(taken)
        if self._counts is not None:
            self._uncount(taken)
        if not len(lane):
            self._tidy()
        return taken

    def expired(self, now: float) -> Iterable[Request]:
        """Give the waiting requests whose deadline has passed; the caller ends and forgets each."""
        heap = self._deadlines
        return self._passed(now) if heap and heap[0][0] <= now else ()

    def _passed(self, now: float) -> Iterator[Request]:
        heap = self._deadlines
        while heap and heap[0][0] <= now:
            request = heapq.heappop(heap)[2]
            if request.state is QUEUED:
                yield request

    def overdue(self, request: Request, now: float) -> DeadlineExceeded:
        """Say why a request that was given as expired could not wait any longer."""
        return deadline_passed(request, now)

    def next_deadline(self) -> float:
        """When the next waiting request expires."""
        heap = self._deadlines
        while heap and heap[0][2].state is not QUEUED:
            heapq.heappop(heap)
        return heap[0][0] if heap else math.inf

    def drain(self) -> list[Request]:
        """Take out everybody, in no promised order."""
        everybody = [request for level in self._levels.values() for lane in level.values() for request in lane]
        self._levels.clear()
        self._size = 0
        self._counts = None
        return everybody

    def _check_room(self, request: Request, retry_after: Callable[[], float]) -> None:
        """Refuse when it is full, or when this client has its share of it already."""
        if self._size >= self.limit:
            raise QueueFull(self.model, self._size, retry_after())
        if self._counts is None:
            self._counts = {}
            for waiting in (request for level in self._levels.values() for lane in level.values() for request in lane):
                self._count(waiting)
        client = client_of(request)
        has = self._counts.get(client, 0)
        if has >= self._crowd:
            raise ShareUsed(self.model, str(client), has, self.limit, retry_after())

    def _count(self, request: Request) -> None:
        assert self._counts is not None
        client = client_of(request)
        self._counts[client] = self._counts.get(client, 0) + 1

    def _uncount(self, requests: Iterable[Request]) -> None:
        """Those do not wait any more; once it is less crowded by far, nobody is counted."""
        assert self._counts is not None
        if 2 * self._size < self._crowd:
            self._counts = None
            return
        for request in requests:
            client = client_of(request)
            self._counts[client] -= 1
            if not self._counts[client]:
                del self._counts[client]

    def _lane(self, request: Request) -> GroupLane:
        level = self._levels.get(request.priority)
        if level is None:
            level = self._levels[request.priority] = {}
        lane = level.get(request.group)
        if lane is None:
            lane = level[request.group] = GroupLane()
        return lane

    def _watch(self, request: Request) -> None:
        self._order += 1
        heapq.heappush(self._deadlines, (request.deadline, self._order, request))
        if len(self._deadlines) > 2 * self._size + 1024:
            self._deadlines = [entry for entry in self._deadlines if entry[2].state is QUEUED]
            heapq.heapify(self._deadlines)

    def _tidy(self) -> None:
        """Forget empty lanes, so that clients cannot grow the table by inventing groups."""
        if len(self._levels) == 1:
            (level,) = self._levels.values()
            if len(level) == 1:
                return  # the usual shape: one lane, kept even when it is empty
        for priority, level in list(self._levels.items()):
            for group in [group for group, lane in level.items() if not len(lane)]:
                del level[group]
            if not level:
                del self._levels[priority]


def most_of(limit: int, share: float) -> int:
    """How many of `limit` places one client may have: its share, and one at least."""
    return min(limit, max(1, int(limit * share)))


def client_of(request: Request) -> Hashable:
    """Who sent it: the address of its client where that is known, or else its connection."""
    return getattr(request.client, "address", request.client)


def _is_behind(last: Request, request: Request) -> bool:
    """Whether the request belongs behind the last of its lane; the usual answer is found without arithmetic."""
    if last.deadline == request.deadline and last.arrived <= request.arrived:
        return True
    return _place(last) <= due(request)


def _place(request: Request) -> float:
    """Where a waiting request stands in its lane: whoever had left already stands before all others."""
    return -math.inf if request.attempts else due(request)

"""Line: one strict order over everybody who waits, whatever may share a batch with whom.

Whoever had left already stands first. Then come the levels, the first level first; within a level those whose time-out
has not passed, then those it has passed for, each first come first served.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from shoal.core.request import QUEUED, Request

FEW: Final = 64  # ended requests that may stay among the living for a while


class Level:
    """The requests of one priority level."""

    __slots__ = ("delayed", "fresh", "waiting")

    def __init__(self) -> None:
        self.fresh: deque[Request] = deque()
        self.delayed: deque[Request] = deque()
        self.waiting = 0  # of both, those that ended taken out


class Line:
    """Requests in the order they leave; those that ended while they waited are never seen."""

    def __init__(self, levels: int) -> None:
        self.levels = [Level() for _ in range(levels)]
        self.rows = 0
        self._returned: deque[Request] = deque()
        self._size = 0
        self._dead = 0  # ended while waiting, still in a deque

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Request]:
        if self._size == 1 and (first := self._first()) is not None:  # as with a lone client
            return iter([first])
        return (request for _, part in self._parts() for request in part if request.state is QUEUED)

    def __getitem__(self, index: int) -> Request:
        if not index and (first := self._first()) is not None:
            return first
        for request in islice(self, index, None):
            return request
        raise IndexError(index)

    def add(self, request: Request, level: int) -> None:
        """Put the request behind everybody of its level whose time-out has not passed."""
        found = self.levels[level]
        found.fresh.append(request)
        found.waiting += 1
        self._size += 1
        self.rows += request.rows

    def add_first(self, requests: Sequence[Request]) -> None:
        """Put requests that had left already back before everybody, in their order."""
        self._returned.extendleft(reversed(requests))
        self._size += len(requests)
        self.rows += sum(request.rows for request in requests)

    def delay(self, requests: Sequence[Request], level: int) -> None:
        """Put waiting requests of one level behind all others of it."""
        found, moved = self.levels[level], set(requests)
        while found.fresh and found.fresh[0] in moved:  # the usual case: the first to come is the first to be late
            moved.remove(found.fresh.popleft())
        if moved:
            found.fresh = deque(request for request in found.fresh if request not in moved)
        found.delayed.extend(requests)

    def forget(self, request: Request, level: int) -> None:
        """Take out a request that has just ended."""
        self._size -= 1
        self.rows -= request.rows
        if not request.attempts:
            self.levels[level].waiting -= 1
        self._dead += 1
        if self._dead > FEW + self._size:
            for _, part in self._parts():
                living = [request for request in part if request.state is QUEUED]
                part.clear()
                part.extend(living)
            self._dead = 0

    def pop(self, rows: int) -> list[Request]:
        """Take requests of one group from the head up to `rows` rows; a first one larger than that travels alone."""
        taken: list[Request] = []
        for level, part in self._parts():
            while part:
                request = part[0]
                if request.state is not QUEUED:
                    self._dead -= 1
                elif taken and (request.rows > rows or request.group != taken[0].group):
                    return taken
                else:
                    taken.append(request)
                    rows -= request.rows
                    self.rows -= request.rows
                    self._size -= 1
                    if level is not None:
                        level.waiting -= 1
                part.popleft()
        return taken

    def clear(self) -> list[Request]:
        """Take out everybody."""
        everybody = list(self)
        for level, part in self._parts():
            part.clear()
            if level is not None:
                level.waiting = 0
        self._size = self._dead = self.rows = 0
        return everybody

    def _first(self) -> Request | None:
        """Give the head of those who wait."""
        for _, part in self._parts():
            for request in part:
                if request.state is QUEUED:
                    return request
        return None

    def _parts(self) -> list[tuple[Level | None, deque[Request]]]:
        """Give what has anybody in it, in order."""
        found: list[tuple[Level | None, deque[Request]]] = []
        if self._returned:
            found.append((None, self._returned))
        for level in self.levels:
            if level.fresh:
                found.append((level, level.fresh))
            if level.delayed:
                found.append((level, level.delayed))
        return found

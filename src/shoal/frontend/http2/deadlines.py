"""The deadlines of all calls of a listener, on one timer.

A call that ends before its deadline stays in the heap as a dead entry; when most entries are dead, the heap is made
anew. So a call costs a push, and nothing when it ends.
"""

import heapq
import itertools
from collections.abc import Callable
from typing import Final, Protocol

FEW: Final = 64  # dead entries that are not worth a sweep


class Timer(Protocol):
    """What the loop gives for a call at a time."""

    def cancel(self) -> None:
        """Forget it."""
        ...


class Dated(Protocol):
    """What has a deadline."""

    is_over: bool

    def expire(self) -> None:
        """The deadline passed."""
        ...


class Deadlines:
    """Tells calls when their time is up; `time` and `call_at` are the loop's."""

    def __init__(self, time: Callable[[], float], call_at: Callable[[float, Callable[[], None]], Timer]) -> None:
        self._time = time
        self._call_at = call_at
        self._heap: list[tuple[float, int, Dated]] = []
        self._numbers = itertools.count()
        self._dead = 0
        self._timer: Timer | None = None
        self._rings = 0.0

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, timeout: float, call: Dated) -> None:
        """Expire this call after so many seconds."""
        due = self._time() + timeout
        heapq.heappush(self._heap, (due, next(self._numbers), call))
        if self._timer is None or due < self._rings:
            self._set(due)

    def drop(self) -> None:
        """A call that was added is over."""
        self._dead += 1
        if self._dead > FEW and self._dead * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if not entry[2].is_over]
            heapq.heapify(self._heap)
            self._dead = 0

    def stop(self) -> None:
        """Forget everything."""
        self._heap.clear()
        self._dead = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._rings = due
        self._timer = self._call_at(due, self._ring)

    def _ring(self) -> None:
        self._timer = None
        now = self._time()
        while self._heap and (self._heap[0][0] <= now or self._heap[0][2].is_over):
            call = heapq.heappop(self._heap)[2]
            self._dead -= 1  # counted when it ended, or about to be
            if not call.is_over:
                call.expire()
        if self._heap and (self._timer is None or self._heap[0][0] < self._rings):
            self._set(self._heap[0][0])

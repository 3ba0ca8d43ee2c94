"""LoopAlarm: calls a function back from the event loop, at the end of this turn or at a time."""

import asyncio
import math
from collections.abc import Callable

from shoal.clock import Clock


class LoopAlarm:
    """At most one call pending for this turn and one for later, whatever is asked how often."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._call: Callable[[float], None] | None = None
        self._is_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._time = math.inf

    def connect(self, call: Callable[[float], None]) -> None:
        """Say what to call, with the time as its argument."""
        self._call = call

    def soon(self) -> None:
        """Call once the callbacks that are ready now have run, so that what arrives together is seen together."""
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._ring)

    def at(self, time: float) -> None:
        """Call at that time; `inf` forgets it."""
        if time == self._time:
            return
        self._time = time
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if time < math.inf:
            self._timer = self._loop.call_later(max(0.0, time - self._clock.now()), self._ring_late)

    def _ring_late(self) -> None:
        self._timer = None
        self._time = math.inf
        self._ring()

    def _ring(self) -> None:
        self._is_due = False
        if self._call is not None:
            self._call(self._clock.now())

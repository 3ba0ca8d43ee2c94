"""LoopAlarm: calls a function back from the event loop, at the end of this turn or at a time."""

import asyncio
import math
from collections.abc import Callable
from typing import Final

from shoal.clock import EARLY, Clock
from shoal.timer import Timer

NEAR: Final = 0.05  # seconds; what is later than this may be late by a millisecond, as loops' own timers are


class Bell:
    """Rings the alarms of one loop at near times, by one kernel timer.

    Loops round to whole milliseconds: the last half of one is either slept over or, by uvloop, spun away. Who spins
    keeps a core from the very client that is waited for.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._timer = Timer(self._rang)
        self._times: dict[Callable[[], None], float] = {}
        self._next = math.inf

    def start(self) -> None:
        """Belong to the running loop."""
        self._timer.start()

    def stop(self) -> None:
        """Never ring again."""
        self._times.clear()
        self._next = math.inf
        self._timer.stop()

    def at(self, time: float, call: Callable[[], None]) -> None:
        """Call once at that time, instead of any before; `inf` forgets it."""
        if time < math.inf:
            self._times[call] = time
        else:
            self._times.pop(call, None)
        self._set()

    def _set(self) -> None:
        first = min(self._times.values(), default=math.inf)
        if first != self._next:
            self._next = first
            self._timer.at(first)

    def _rang(self) -> None:
        until = self._clock.now() + EARLY
        self._next = math.inf
        try:
            for call in sorted(
                (call for call, time in self._times.items() if time <= until), key=self._times.__getitem__
            ):
                if self._times.get(call, math.inf) <= until:  # nobody before it put it off
                    del self._times[call]
                    call()
        finally:
            self._set()


class LoopAlarm:
    """At most one call pending for this turn and one for later, whatever is asked how often.

    Near times are the bell's where there is one, the others the loop's own.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock, bell: Bell | None = None) -> None:
        self._loop = loop
        self._clock = clock
        self._bell = bell
        self._call: Callable[[float], None] | None = None
        self._is_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._time = math.inf
        self._is_near = False  # the time is the bell's

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
        bell = self._bell
        delay = time - self._clock.now() if time < math.inf else math.inf
        if bell is not None and delay < NEAR:
            self._is_near = True
            bell.at(time, self._rang)
            return
        if bell is not None and self._is_near:
            self._is_near = False
            bell.at(math.inf, self._rang)
        if time < math.inf:
            self._timer = self._loop.call_later(max(0.0, delay), self._rang)

    def _rang(self) -> None:
        """The time has come: what came at the same moment is looked at first."""
        self._timer = None
        self._is_near = False
        self._time = math.inf
        self.soon()

    def _ring(self) -> None:
        self._is_due = False
        if self._call is not None:
            self._call(self._clock.now())

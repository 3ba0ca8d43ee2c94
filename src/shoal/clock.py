"""The only file that reads the time: seconds on a clock that never goes back."""

import time
from typing import Final, Protocol

EARLY: Final = 1e-6  # seconds; a timer that rings this much before its time has rung


def stood_still(due: float, now: float, period: float) -> float:
    """Seconds for which a process did not run that does something every `period`, and now for the time `due`.

    Late by less than a period is nothing that anybody would notice.
    """
    late = now - due
    return late if late > period else 0.0


class Clock(Protocol):
    """Where `now` comes from; tests pass one that stands still until told."""

    def now(self) -> float:
        """Give the present moment in seconds."""
        ...


class MonotonicClock:
    """The machine's monotonic clock, the one asyncio's loops use."""

    now = staticmethod(time.monotonic)

"""Strain: whether clients wait for the server's own process, and not for a model. It says so once in a while."""

import asyncio
import logging
import math
import sys
import time
from collections.abc import Callable
from typing import Final

from shoal.config.devices import count_cpus

log = logging.getLogger("shoal")
WINDOW: Final = 10.0  # s between two looks
BUSY: Final = 0.9  # of a window that the event loop's thread ran; others have the processor now and then
AGAIN: Final = 3600.0  # s until the same is said again
FEWEST: Final = 4  # processors where more front processes have room beside workers and whoever else is there
MOST: Final = 4  # front processes that are proposed: the core is the limit soon after


class Strain:
    """The rule: what share of a window one process may be busy before its operator hears of it."""

    def __init__(self, cpus: int) -> None:
        self.proposed = min(MOST, cpus // 2) if cpus >= FEWEST else 0  # front processes; 0: nothing would help
        self._since = math.inf  # when the window began, and what had been spent by then
        self._spent = 0.0
        self._silent_until = -math.inf

    def look(self, now: float, spent: float) -> float:
        """Take seconds of the processor spent so far; gives the share of the window where it is time to say it."""
        seconds, busy = now - self._since, spent - self._spent
        self._since, self._spent = now, spent
        if not self.proposed or seconds <= 0 or busy < BUSY * seconds or now < self._silent_until:
            return 0.0
        self._silent_until = now + AGAIN
        return min(1.0, busy / seconds)


class Watcher:
    """Looks at the thread that it runs on, and tells the log; where nothing would help it does not look."""

    def __init__(
        self,
        frontends: int,
        *,
        cpus: Callable[[], int] = count_cpus,
        now: Callable[[], float] = time.monotonic,
        spent: Callable[[], float] = time.thread_time,
        window: float = WINDOW,
    ) -> None:
        self._rule = Strain(cpus()) if frontends == 1 and sys.platform == "linux" else None  # as more of them are
        self._now = now
        self._spent = spent
        self._window = window
        self._next: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Look from now on."""
        if self._rule is not None and self._rule.proposed:
            self._look(self._rule)

    def stop(self) -> None:
        """Look no more."""
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def _look(self, rule: Strain) -> None:
        self._next = asyncio.get_running_loop().call_later(self._window, self._look, rule)
        share = rule.look(self._now(), self._spent())
        if share:
            log.warning(
                "the server's own process was busy for %.0f %% of the last %g s: clients wait for it, not only for "
                "models. Where processors are free, more front processes take work from it: --frontends %d or "
                "SHOAL_FRONTENDS=%d",
                *(100 * share, self._window, rule.proposed, rule.proposed),
            )

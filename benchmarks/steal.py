"""Steal: the share of this machine's processor time that went to others on the same host, as Linux counts it.

What is not asked for is not stolen: a machine that idles cannot tell whether its host is busy.
"""

import asyncio
import time
from pathlib import Path

STAT = Path("/proc/stat")
STOLEN = 7  # user, nice, system, idle, iowait, irq, softirq, steal
COUNTED = 8
PROBE = 0.5  # s of work that show what is stolen
PAUSE = 1.5  # s between two


class Steal:
    """Counts from when it is made."""

    def __init__(self) -> None:
        self._since = ticks()

    @property
    def share(self) -> float:
        """Of all processors' time so far; 0 where nobody counts it."""
        stolen, all_of_it = (now - then for now, then in zip(ticks(), self._since, strict=True))
        return stolen / all_of_it if all_of_it > 0 else 0.0


def ticks() -> tuple[int, int]:
    """Give the time that was stolen and all of it since the machine started."""
    if not STAT.is_file():
        return 0, 0
    counts = [int(word) for word in STAT.read_text().partition("\n")[0].split()[1 : 1 + COUNTED]]
    return (counts[STOLEN], sum(counts)) if len(counts) == COUNTED else (0, 0)


class Calm:
    """Waits for a host that is busy with others, as long as there is patience."""

    def __init__(self, patience: float) -> None:
        self.patience = patience  # s

    async def __call__(self, most: float) -> bool:
        """Return once no more than this share is stolen; False when patience has run out."""
        while self.patience > 0.0:
            began, steal = time.monotonic(), Steal()
            while time.monotonic() - began < PROBE:
                pass
            is_calm = steal.share <= most
            if not is_calm:
                await asyncio.sleep(PAUSE)
            self.patience -= time.monotonic() - began
            if is_calm:
                return True
        return False

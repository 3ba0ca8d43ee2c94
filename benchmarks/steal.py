"""Steal: the share of this machine's processor time that went to others on the same host, as Linux counts it."""

from pathlib import Path

STAT = Path("/proc/stat")
STOLEN = 7  # user, nice, system, idle, iowait, irq, softirq, steal
COUNTED = 8


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

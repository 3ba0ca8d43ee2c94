"""When a worker is replaced although it works: what it has done and grown to, against what it may."""

import os
from dataclasses import dataclass

from shoal.config.model import Recycling


@dataclass(slots=True)
class Wear:
    """What one process has done so far."""

    requests: int = 0  # answered
    age: float = 0.0  # s since it was ready
    memory: int = 0  # bytes resident beyond what it had after its first batches; below 0 where it shrank
    device_memory: int = 0  # the same of its device's memory


def reason_to_recycle(wear: Wear, limits: Recycling) -> str:
    """Say which limit is reached, in words for the log; empty while none is."""
    if limits.requests and wear.requests >= limits.requests:
        return f"it has answered {wear.requests} requests"
    if limits.age and wear.age >= limits.age:
        return f"it has been up for {wear.age:.0f} s"
    if limits.memory and wear.memory >= limits.memory:
        return f"it has grown by {_megabytes(wear.memory)}"
    if limits.device_memory and wear.device_memory >= limits.device_memory:
        return f"its device memory has grown by {_megabytes(wear.device_memory)}"
    return ""


class WearWatch:
    """Follows one process; says once that it should be replaced, and again after `forget`."""

    def __init__(self, limits: Recycling) -> None:
        self._limits = limits
        self._first: tuple[int, int] | None = None  # resident and device memory, after the first batches
        self._has_said = False

    def look(self, pid: int, answered: int, age: float, device_memory: int) -> str:
        """Give the reason to replace it, or nothing. What it holds counts from its first batches on."""
        if self._has_said or not answered:
            return ""
        memory = resident(pid) if self._limits.memory else 0
        if self._first is None or not self._first[1]:
            self._first = (self._first[0] if self._first else memory), device_memory
        wear = Wear(answered, age, memory - self._first[0], device_memory - self._first[1])
        reason = reason_to_recycle(wear, self._limits)
        self._has_said = bool(reason)
        return reason

    def forget(self) -> None:
        """No successor could be had: say it again."""
        self._has_said = False


def resident(pid: int) -> int:
    """Bytes of a process in memory; 0 when it is gone."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def _megabytes(size: int) -> str:
    return f"{size / 2**20:.0f} MiB"

"""Canary: which requests go to a new version, and when it is worse than the old one. Pure rules; time is passed in."""

import math
from collections.abc import Hashable
from dataclasses import dataclass
from zlib import crc32

from shoal.config.model import Canary

PARTS = 10_000  # of all requests; a weight is whole parts of them
SLOTS = 12  # of a window
SHORTEST = 1e-5  # s; the bounds of times are a quarter of a doubling apart from here on
KINDS = 120  # of times: up to about three hours
CHANCE = 2.33  # standard deviations; one in a hundred is beyond it by chance


class Share:
    """Sends a weight's share to the new version: of any n requests in a row, that share of n, rounded up or down."""

    __slots__ = ("_carried", "parts")

    def __init__(self, weight: float) -> None:
        self.parts = parts_of(weight)
        self._carried = 0

    def take(self) -> bool:
        """Say whether the next request is one of the share."""
        carried = self._carried + self.parts
        is_taken = carried >= PARTS
        self._carried = carried - PARTS if is_taken else carried
        return is_taken


def parts_of(weight: float) -> int:
    """Give a weight in percent as whole parts of all requests."""
    return round(weight * PARTS / 100)


def is_chosen(client: Hashable, parts: int) -> bool:
    """Say whether a client goes to the new version; one that does at some weight does at every higher one."""
    return crc32(str(client).encode("utf-8", "replace")) % PARTS < parts


@dataclass(frozen=True, slots=True)
class Tally:
    """What a version did in a window of time."""

    answered: int = 0
    failed: int = 0  # refused and expired ones too
    slow: float = 0.0  # s that nine of ten answers took at most

    @property
    def ended(self) -> int:
        """Requests that ended."""
        return self.answered + self.failed

    @property
    def failing(self) -> float:
        """The part of them that failed."""
        return self.failed / self.ended if self.ended else 0.0


class Window:
    """What a version did lately. It holds a fixed number of counters, whatever comes."""

    def __init__(self, span: float) -> None:
        self._length = span / SLOTS
        self._slots = [_Slot() for _ in range(SLOTS)]

    def answered(self, now: float, seconds: float) -> None:
        """Count an answer and how long its client waited."""
        slot = self._slot(now)
        slot.answered += 1
        slot.times[_kind(seconds)] += 1

    def failed(self, now: float, count: int = 1) -> None:
        """Count requests that failed."""
        self._slot(now).failed += count

    def tally(self, now: float) -> Tally:
        """Sum up what is not older than the window."""
        newest = int(now / self._length)
        lately = [slot for slot in self._slots if newest - SLOTS < slot.number <= newest]
        times = [sum(counts) for counts in zip(*(slot.times for slot in lately), strict=True)]
        return Tally(sum(slot.answered for slot in lately), sum(slot.failed for slot in lately), _ninth_tenth(times))

    def _slot(self, now: float) -> "_Slot":
        number = int(now / self._length)
        slot = self._slots[number % SLOTS]
        if slot.number != number:
            slot.begin(number)
        return slot


def verdict(rule: Canary, old: Tally, new: Tally) -> str:
    """Say why the new version gets no more requests; empty while it is as good as the old one, or too little is known.

    More of its requests fail than `max_errors` allows, and not by chance; or it takes `max_slowdown` times as long.
    """
    if new.ended < rule.min_requests:
        return ""
    if 100 * (new.failing - old.failing) > rule.max_errors and not _is_chance(old, new):
        return f"{new.failed} of its {new.ended} requests failed, and {old.failed} of {old.ended} of the old version's"
    is_timed = rule.max_slowdown > 0 and min(old.answered, new.answered) >= rule.min_requests
    if is_timed and new.slow > rule.max_slowdown * old.slow:
        return (
            f"nine of ten of its answers took up to {1000 * new.slow:.3g} ms, "
            f"and {1000 * old.slow:.3g} ms of the old version's"
        )
    return ""


class _Slot:
    __slots__ = ("answered", "failed", "number", "times")

    def __init__(self) -> None:
        self.begin(-SLOTS - 1)

    def begin(self, number: int) -> None:
        self.number = number
        self.answered = 0
        self.failed = 0
        self.times = [0] * KINDS


def _is_chance(old: Tally, new: Tally) -> bool:
    """Say whether the two may well fail equally often. An old version that did nothing is taken to fail never."""
    if not old.ended:
        return False
    pooled = (old.failed + new.failed) / (old.ended + new.ended)
    deviation = math.sqrt(pooled * (1 - pooled) * (1 / old.ended + 1 / new.ended))
    return new.failing - old.failing < CHANCE * deviation


def _kind(seconds: float) -> int:
    if seconds <= SHORTEST:
        return 0
    return min(KINDS - 1, math.ceil(4 * math.log2(seconds / SHORTEST)))


def _ninth_tenth(times: list[int]) -> float:
    """Give the bound that nine of ten of the counted times are not above."""
    wanted = 0.9 * sum(times)
    seen = 0
    for kind, count in enumerate(times):
        seen += count
        if count and seen >= wanted:
            return float(SHORTEST * 2 ** (kind / 4))
    return 0.0

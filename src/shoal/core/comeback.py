"""Comeback: how clients that were answered together come back, one after the other, and how long all of them take.

Clients that share a process or a machine are woken in turn, so that a hundred of them come back within milliseconds,
more of them the longer one waits. While they flow, a hold that ends leaves the rest behind for a whole batch.
"""

import math
from typing import Final

from shoal.core.cost import key_of

TICK: Final = 0.5e-3  # seconds a hold may end late on average: loops without a better timer count whole milliseconds
STILL: Final = 0.25  # of the time for which clients have been coming back: after a pause this long they do no more
MANY: Final = 8  # riders of whom some may be left behind, or come back one after the other
LATELY: Final = 8  # groups over which the mean of a size is taken
FORGOTTEN: Final = 600.0  # seconds after which what a size took is not known any more


class Group:
    """Clients answered together and expected back."""

    __slots__ = ("clients", "each", "first", "is_absent", "last", "missing", "newcomers", "since")

    def __init__(self, since: float, each: float) -> None:
        self.since = since
        self.each = each  # rows a client brings
        self.clients = 0  # expected at first
        self.missing = 0  # clients not back yet
        self.newcomers = 0  # of the missing: those who have asked only once
        self.is_absent = True  # nobody is back yet
        self.first = self.last = since  # when the first came back, and the last so far

    def came(self, now: float) -> None:
        """Count one who is back."""
        if self.is_absent:
            self.is_absent, self.first = False, now
        self.last = now
        self.missing -= 1

    def flows_until(self) -> float:
        """Until when they count as coming one after the other, if nobody more comes; -inf: they came at once."""
        if self.first == self.last:
            return -math.inf
        return self.last + max(TICK, STILL * (self.last - self.first))

    def rest(self) -> float:
        """Seconds until all are back if they go on as they have begun."""
        back = self.clients - self.missing
        return self.missing * (self.last - self.first) / max(1, back - 1)


class Comebacks:
    """How long groups took to come back, or as many of them as did, by their size."""

    def __init__(self) -> None:
        self._sizes: dict[int, Comeback] = {}

    def note(self, group: Group, now: float) -> None:
        """Remember a group that is back, or of which some are not expected any more."""
        rows = round(group.clients * group.each)
        if rows >= MANY:
            self._sizes.setdefault(key_of(rows), Comeback()).note(group.last - group.since, now)

    def of(self, rows: int, now: float) -> float | None:
        """Seconds that groups of so many rows took lately, in the mean; None: nobody knows."""
        known = self._sizes.get(key_of(rows))
        return known.mean if known is not None and now - known.noted <= FORGOTTEN else None


class Comeback:
    """What groups of one size took."""

    __slots__ = ("count", "mean", "noted")

    def __init__(self) -> None:
        self.mean = 0.0
        self.count = 0
        self.noted = -math.inf

    def note(self, took: float, now: float) -> None:
        """Move the mean towards another; what is long ago does not count."""
        self.count = min(LATELY, self.count + 1) if now - self.noted <= FORGOTTEN else 1
        self.mean += (took - self.mean) / self.count
        self.noted = now

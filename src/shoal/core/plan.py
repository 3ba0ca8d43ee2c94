"""Plan: a hold in force, until when and for how many."""

from collections.abc import Hashable
from dataclasses import dataclass

from shoal.clock import EARLY


@dataclass(slots=True)
class Plan:
    """A hold of one group's lane."""

    until: float
    size: int  # rows at which it ends early
    reason: str
    group: Hashable

    def has_ended(self, rows: int, now: float) -> bool:
        """Whether it is over and more may come: its time is, or a volley has as many rows as volleys usually have."""
        return self.reason == "volley" if rows >= self.size else now >= self.until - EARLY

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
    is_urgent: bool = False  # somebody has no time for more

    def end_by(self, time: float) -> None:
        """End it by then, for somebody's deadline."""
        if time < self.until:
            self.until, self.is_urgent = time, True

    def has_ended(self, rows: int, now: float) -> bool:
        """Whether it is over and more may come: its time is, or a volley has as many rows as volleys usually have."""
        if self.is_urgent:
            return False
        return self.reason == "volley" if rows >= self.size else now >= self.until - EARLY

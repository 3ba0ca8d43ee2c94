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
    rows: int  # that were there when it began
    is_urgent: bool = False  # somebody has no time for more

    def end_by(self, time: float) -> None:
        """End it by then, for somebody's deadline."""
        if time < self.until:
            self.until, self.is_urgent = time, True

    def may_be_followed(self, rows: int, now: float) -> bool:
        """Whether another may follow: somebody came, and its time is over or a volley has its usual rows."""
        if self.is_urgent or rows <= self.rows:
            return False
        return self.reason == "volley" if rows >= self.size else now >= self.until - EARLY

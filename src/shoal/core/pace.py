"""Pace: how many requests a second a model gets through while others wait; the hint to the refused comes from it."""

from typing import Final

SPAN: Final = 0.5  # s over which it is taken at least
WEIGHT: Final = 0.3  # what the newest span counts for


class Pace:
    """Learns from the ends of batches; only time in which nobody was idle counts."""

    def __init__(self) -> None:
        self.per_second = 0.0  # 0: not known
        self._since: float | None = None  # when this span began
        self._ended = 0  # requests in it

    def note(self, requests: int, has_waiting: bool, now: float) -> None:
        """So many requests have just ended; `has_waiting`: others have been waiting for that."""
        if not has_waiting:
            self._since = None
        elif self._since is None:
            self._since, self._ended = now, 0
        else:
            self._ended += requests
            if (span := now - self._since) >= SPAN:
                measured = self._ended / span
                self.per_second += WEIGHT * (measured - self.per_second) if self.per_second else measured
                self._since, self._ended = now, 0

    def time_for(self, requests: int) -> float:
        """Give the seconds that so many requests take; 0 where it is not known."""
        return requests / self.per_second if self.per_second else 0.0

"""Volleys: arrivals close together on an idle server, and whether the first of them should wait for the rest."""

import math
from collections import deque
from typing import Final

HISTORY: Final = 32  # volleys remembered
ENOUGH: Final = 8  # volleys to know before one is waited for
LATELY: Final = 4  # of them are the newest: what has not come lately either is not waited for
MOST: Final = 0.8  # share of the volleys remembered whose spans a hold covers


class Volleys:
    """How many followed a lone first arrival, and how long that took."""

    def __init__(self) -> None:
        self._past: deque[tuple[float, int]] = deque(maxlen=HISTORY)  # (time of the last follower, rows that followed)
        self._sum = 0  # of the rows that followed
        self._first = -math.inf
        self._latest = 0.0
        self._rows = 0

    def followed(self, rows: int, now: float, span: float) -> bool:
        """Whether an arrival follows the last first one within `span`; noted if so."""
        if now - self._first > span:
            return False
        self._rows += rows
        self._latest = now
        return True

    def opened(self, now: float) -> None:
        """Note a first arrival; the volley before it is history."""
        if self._first > -math.inf:
            past = self._past
            if len(past) == HISTORY:
                self._sum -= past[0][1]
            past.append((self._latest - self._first, self._rows))
            self._sum += self._rows
        self._first = self._latest = now
        self._rows = 0

    def usual(self) -> tuple[int, float]:
        """Rows that usually follow, and lately too, 0 when none do, and the seconds within which they have."""
        past = self._past
        count = len(past)
        if count < ENOUGH or self._sum < count:
            return 0, 0.0
        rows = min(self._sum // count, sum([past[-1 - age][1] for age in range(LATELY)]) // LATELY)
        if not rows:
            return 0, 0.0
        return rows, sorted([span for span, _ in self._past])[int(MOST * (count - 1))]

    def to_come(self, span: float) -> tuple[int, float]:
        """Rows that usually follow and are not here yet, and the time until which they usually are, within `span`."""
        rows, within = self.usual()
        return max(0, rows - self._rows), self._first + min(within, span)


def is_worth(table: list[float], rows: int, joined: int, wait: float) -> bool:
    """Whether `joined - rows` later rows gain more by riding along than the `rows` here lose by waiting for them."""
    more = joined - rows
    gain = more * (table[rows] + table[more] - table[joined] - wait)
    return gain > rows * (wait + table[joined] - table[rows])

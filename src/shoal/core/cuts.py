"""Cuts: when fewer rows should leave than could, and how many: pure functions of what batches cost and who waits.

A long batch makes its oldest rows wait for all that came after them, and whoever comes next for all of it. Where rows
came in groups with a gap between that is no chance, the older group may go first; in a closed loop everybody's wait is
least when batches are even shares of all that go round.
"""

import math
from collections.abc import Sequence
from typing import Final

GAP: Final = 0.05  # of a batch's time; rows that came closer together than this are not parted
CHANCE: Final = 1e-3  # how likely independent arrivals leave a gap that long; likelier ones part nothing
WEIGHT: Final = 0.02  # what the newest batch counts for in the load
BUSIEST: Final = 0.99  # load that is counted with at most
FAIR: Final = 0.98  # of the best rows a second, what even shares must reach


class Load:
    """The share of the server's time that batches take; in the long run, not now."""

    def __init__(self) -> None:
        self._busy = 0.0  # seconds a batch takes, on average
        self._time = 0.0  # seconds from one batch's end to the next, on average
        self._ended: float | None = None

    def note(self, took: float, now: float) -> None:
        """A batch ended that took so long."""
        if self._ended is not None:
            self._busy += WEIGHT * (took - self._busy)
            self._time += WEIGHT * (now - self._ended - self._time)
        self._ended = now

    @property
    def price(self) -> float:
        """Seconds that one more second of server time costs those who come later; none of it is idle at full load."""
        share = min(BUSIEST, self._busy / self._time) if self._time > 0.0 else BUSIEST
        return share / (1.0 - share)


def oldest_first(table: Sequence[float], came: Sequence[float], now: float, price: float) -> int:
    """Rows to send of those that `came` then: all, or the ones before a gap where that shortens the longest wait.

    `price` is what a second of server time more costs others. Rows that come one by one leave gaps too: of n that come
    at random within a time, the longest is longer than `gap` with a chance of about n * exp(-n * gap / time).
    """
    count = len(came)
    whole = table[count]
    least = max(GAP * whole, (came[-1] - came[0]) / count * math.log(count / CHANCE))
    oldest = now - came[0]
    best, chosen = oldest + whole, count
    for rows in range(1, count):
        if came[rows] - came[rows - 1] < least:
            continue
        first, rest = table[rows], table[count - rows]
        more = first + rest - whole
        worst = first + max(oldest, now - came[rows] + rest) + price * more
        if worst < best:
            best, chosen = worst, rows
    return chosen


def even_share(table: Sequence[float], rows: int, cap: int, turn: int) -> int:
    """Rows of the batch whose `turn` it is when so many, at least the best size `cap`, go round in a closed loop.

    Everybody waits for a whole round. A last batch that is nearly empty makes that round one batch longer for some, so
    the rows are shared out evenly over the number of batches, one more or one less, whose round is shortest.
    """
    best, chosen = rows / FAIR * table[cap] / cap, 0
    for batches in {max(1, rows // cap), -(-rows // cap)}:
        share, larger = divmod(rows, batches)
        if share + (larger > 0) >= len(table):
            continue
        took = larger * table[share + (larger > 0)] + (batches - larger) * table[share]
        if took <= best:
            best, chosen = took, batches
    if not chosen:
        return cap
    turn %= chosen
    return (turn + 1) * rows // chosen - turn * rows // chosen

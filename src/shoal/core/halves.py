"""Halves: whether the clients of a closed loop ride as one batch or as two that overlap, where a model has stages.

Together their rows are cheapest, and the device stands still while answers are handed out, everybody comes back and the
next batch is read. In halves one is read and answered while the other has its inference, and each costs more. Which
takes less is measured: the time from the end of a batch to the end of the next of its size, as a part of what one takes
by itself. Where nothing holds a loop in halves, chance makes one batch of it, or a few and many, and it stays so.
"""

from typing import Final

from shoal.core.cost import CostCurve
from shoal.core.running import Edges

ALIKE: Final = 0.7  # batches are of one size when neither has less than this share of the other's rows
FEWEST: Final = 8  # rows of a half; with fewer nothing was gained
MEMORY: Final = 20  # batches of a size that are remembered, about
LONGEST: Final = 2.0  # times what a batch takes; what is longer from end to end was a pause, and tells nothing
BETTER: Final = 0.95  # of the time of a round together, what a round in halves takes at the most to be tried,
AS_GOOD: Final = 1.0  # and to be kept
UNEVEN: Final = 1.25  # times a half; up to so many leave together all the same


class Halves:
    """How long the batches of one instance take from end to end, by their size and by whether they overlap."""

    def __init__(self, curve: CostCurve, edges: Edges) -> None:
        self._curve = curve
        self._edges = edges
        self._parts: dict[tuple[int, bool], tuple[float, int]] = {}  # of what a batch takes alone, and how often
        self._rows = 0  # of the last batch,
        self._ended = 0.0  # and when it ended
        self._are_kept = False

    def ended(self, rows: int, behind: int, now: float) -> None:
        """Note the end of a batch that was sent `behind` another of so many rows, or alone."""
        last, since = self._rows, now - self._ended
        self._rows, self._ended = rows, now
        alone = self._curve.total(rows) if rows and self._curve.seconds else 0.0
        if since >= LONGEST * alone or not is_alike(rows, last) or (behind and not is_alike(rows, behind)):
            return
        key = rows.bit_length(), behind > 0
        part, count = self._parts.get(key, (0.0, 0))
        self._parts[key] = part + (since / alone - part) / (count + 1), min(count + 1, MEMORY)

    def half(self, everybody: int, back: float) -> int:
        """Half of so many rows that go round, where they ride in halves, else 0; together they are back after so long.

        Until it was measured, a half is taken to save all that it does before and after its inference.
        """
        half = -(-everybody // 2)
        if half < FEWEST:
            return 0
        apart, joint = self._curve.total(half), self._curve.total(everybody)
        part, count = self._parts.get((half.bit_length(), True), (0.0, 0))
        apart = part * apart if count else max(0.0, apart - self._edges.before(half) - self._edges.after(half))
        part, count = self._parts.get((everybody.bit_length(), False), (0.0, 0))
        joint = part * joint if count else joint + back
        self._are_kept = 2.0 * apart < (AS_GOOD if self._are_kept else BETTER) * joint
        return half if self._are_kept else 0


def is_alike(rows: int, others: int) -> bool:
    """Whether batches of so many rows are about of one size."""
    return ALIKE * rows <= others and ALIKE * others <= rows


def at_most(rows: int, half: int) -> int:
    """Rows that leave of so many: all, or a half (0: nobody rides in halves) where that is clearly less."""
    return half if half and rows > UNEVEN * half else rows

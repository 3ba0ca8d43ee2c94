"""Who can still be answered in time: pure functions of deadlines and the learned cost of batches."""

import math
from collections.abc import Callable
from typing import Final, NamedTuple

from shoal.core.cost import CostCurve
from shoal.core.policy import Lane

MARGIN: Final = 1.10  # predicted ends are taken this much later where a deadline hangs on them

CAUTION: Final = 0.7  # of the predicted time, what an arrival must have left not to be refused


class Verdict(NamedTuple):
    """What deadlines ask for."""

    lost: int  # requests at the head to give up
    rows: int  # the most rows that may leave together


def triage(lane: Lane, curve: CostCurve, now: float, next_free: float | None, rate: float) -> Verdict:
    """Give up what cannot be saved, and find the largest batch that still saves the head.

    Where the head is saved only by a batch so small that others will be late, whichever loses fewer requests is done:
    some heads are given up and the rest goes as one batch, or the head goes with few. `next_free` is when another
    instance takes what stays behind; None: this one does.
    """
    table = curve.seconds
    late = _lateness(lane, now)
    lost = _count_late(late, 0, table[1])
    count = len(lane)
    if lost or not count:
        return Verdict(lost, 1)
    each = lane.rows / count
    saved = max(1, curve.fitting((lane[0].deadline - now) / MARGIN))
    lost = _lost_with_all(late, curve, count, each)
    if lost:
        others = max(1, int(saved / each))  # requests that travel with the head
        free = table[min(saved, curve.limit)] if next_free is None else next_free
        behind = max(1, int(lane.rows - saved + rate * free))
        if _count_late(late, others, free + table[min(curve.cap, behind)], lost) >= lost:
            return Verdict(lost, curve.cap)
    return Verdict(0, min(saved, curve.cap))


def is_hopeless(curve: CostCurve, slack: float, ahead: int, rows: int, instances: int, hidden: float = 0.0) -> bool:
    """Whether a request that has `slack` seconds is lost on its arrival, behind so many rows that are due before it.

    Only what is certain counts: nothing is known to cost nothing, what runs already is over at once, a slow time may be
    over as well, batches may turn out faster than they were by a good part, and `hidden` seconds of the rows ahead may
    pass while others have theirs.
    """
    if not curve.seconds or instances < 1:
        return False
    wait = max(0.0, curve.total(ahead) - hidden) / instances
    return CAUTION * min(1.0, 1.0 / curve.pace) * (wait + curve.seconds[min(rows, curve.limit)]) > slack


def is_in_time(lane: Lane, rows: int, end: float) -> bool:
    """Whether a batch of so many rows that ends then is in time for everybody in it."""
    return all(lane[index].deadline >= end for index in range(min(rows, len(lane))))


def _lateness(lane: Lane, now: float) -> Callable[[int, float], bool]:
    """Make a test of whether request `index` would be late if its batch ended in so many seconds."""
    count = len(lane)

    def late(index: int, seconds: float) -> bool:
        return index < count and lane[index].deadline < now + MARGIN * seconds

    return late


def _lost_with_all(late: Callable[[int, float], bool], curve: CostCurve, count: int, each: float) -> int:
    """Heads to give up so that all the others meet their head's deadline as one batch."""
    lost = 0
    while late(lost, curve.seconds[min(math.ceil((count - lost) * each), curve.cap)]):
        lost += 1
    return lost


def _count_late(late: Callable[[int, float], bool], start: int, seconds: float, enough: float = math.inf) -> int:
    index = start
    while index - start < enough and late(index, seconds):
        index += 1
    return index - start

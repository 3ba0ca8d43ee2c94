"""When a level has been measured long enough, and when there is nothing left to measure."""

from collections.abc import Sequence

import msgspec

from shoal.tools.bench.messages import Slice
from shoal.tools.bench.results import NEEDED
from shoal.tools.histogram import merged

BROKEN = frozenset({"refused", "reset", "closed", "no such host"})  # errors of a server that is not there


class Window(msgspec.Struct, frozen=True):
    """The figures that must settle: the median, and the rate of a closed loop or the share answered of an open one."""

    throughput: float
    p50: float
    share: float = 0.0  # of the requests that came due (open loop)

    @property
    def flow(self) -> float:
        """What comes back: of an open loop only the share, for its rate is the arrivals', noise and all."""
        return self.share or self.throughput


def window_of(slices: Sequence[Slice], length: float) -> Window:
    """Sum up a window."""
    latencies = merged(each.latencies for each in slices)
    answered, due = sum(each.answered for each in slices), sum(each.due for each in slices)
    return Window(answered / (len(slices) * length), latencies.quantile(0.5), answered / due if due else 0.0)


def spread(windows: Sequence[Window]) -> float:
    """How far the last windows are from their middle, as a share of it; 1 while there are too few, or no answers."""
    last = windows[-NEEDED:]
    if len(last) < NEEDED or not all(window.throughput for window in last):
        return 1.0
    return max(_spread([window.flow for window in last]), _spread([window.p50 for window in last]))


def _spread(values: Sequence[float]) -> float:
    middle = sum(values) / len(values)
    return max(abs(value - middle) for value in values) / middle if middle else 0.0


def is_enough(windows: Sequence[Window], slices: Sequence[Slice], most: int, longest: int) -> bool:
    """Whether there are windows enough, though they may not agree.

    Where nothing at all came back in the slices that count, neither answers nor errors, requests take longer than all
    windows, or a machine stands still: more windows are waited for, up to the longest that a request may take.
    """
    is_silent = not any(each.answered or each.errors for each in slices)
    return len(windows) >= (longest if is_silent else most)


def is_dead(slices: Sequence[Slice], length: float, patience: float) -> bool:
    """Whether for this long nothing came back but broken connections."""
    last = slices[-max(1, round(patience / length)) :]
    if len(last) * length < patience - length / 2:
        return False
    if any(each.answered or any(kind not in BROKEN for kind in each.errors) for each in last):
        return False
    return bool(last[-1].errors) or sum(bool(each.errors) for each in last) > len(last) / 2

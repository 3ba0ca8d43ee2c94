"""Looks: what several short measurements of the same settings say together, and how far they can be trusted."""

from collections.abc import Sequence
from math import sqrt

from shoal.tools.tune.effects import shared
from shoal.tools.tune.goal import FAILED, Merit, gain
from shoal.tools.tune.setting import Setting

NOISE = 0.04  # by which two looks at one setting differ, before anybody has seen it
WORTH = 3  # looks that this guess counts for
SURE = 1.96  # standard errors: nineteen of twenty
LIKELY = 1.28  # standard errors: so much better by chance alone is one setting of ten


class Looks:
    """Every look at every setting, in order."""

    def __init__(self) -> None:
        self._merits: dict[Setting, list[Merit]] = {}
        self._drawn: dict[Setting, float] = {}  # what all looks together say; empty: not worked out yet

    def add(self, setting: Setting, merit: Merit) -> None:
        """Keep one more."""
        self._merits.setdefault(setting, []).append(merit)
        self._drawn = {}

    def of(self, setting: Setting) -> Sequence[Merit]:
        """Give those at one setting."""
        return self._merits.get(setting, [])

    def count(self, setting: Setting) -> int:
        """Tell how many there were."""
        return len(self.of(setting))

    def ranked(self) -> list[Setting]:
        """Give all settings that answered, the best first."""
        found = [setting for setting in self._merits if self.merit(setting).rank >= 0]
        return sorted(found, key=self.estimate, reverse=True)

    def merit(self, setting: Setting) -> Merit:
        """Take its looks together: what most of them found, the worse of two; and the mean of those."""
        looks = self.of(setting)
        if not looks:
            return FAILED
        ranks = sorted(look.rank for look in looks)
        rank = ranks[(len(ranks) - 1) // 2]
        values = [look.value for look in looks if look.rank == rank]
        return Merit(rank, sum(values) / len(values))

    def estimate(self, setting: Setting) -> Merit:
        """The same, helped by what looks at other settings say of its knobs."""
        merit = self.merit(setting)
        if merit.rank != 1:
            return merit
        if not self._drawn:
            merits = {each: self.merit(each) for each in self._merits}
            means = {each: (found.value, self.count(each)) for each, found in merits.items() if found.rank == 1}
            self._drawn = shared(means, self.noise)
        return Merit(1, self._drawn[setting])

    @property
    def noise(self) -> float:
        """The share by which looks at one setting differ (a standard deviation), over all settings."""
        squares, free = WORTH * NOISE**2, WORTH
        for setting, looks in self._merits.items():
            middle = self.merit(setting)
            same = [look.value for look in looks if look.rank == middle.rank]
            if len(same) > 1 and middle.value:
                squares += sum((value / middle.value - 1) ** 2 for value in same)
                free += len(same) - 1
        return sqrt(squares / free)

    def doubt(self, one: Setting, other: Setting) -> float:
        """The share by which chance alone may set two settings apart, after as many looks as they had."""
        return self.doubt_of(self.count(one), self.count(other))

    def doubt_of(self, one: int, other: int) -> float:
        """The same of any two that had so many looks; without end where one had none."""
        return SURE * self.noise * sqrt(1 / one + 1 / other) if one and other else float("inf")

    def gain(self, setting: Setting, over: Setting) -> float:
        """How much better one is than the other by all that is known, as a share."""
        return gain(self.estimate(setting), self.estimate(over))

    def measured_gain(self, setting: Setting, over: Setting) -> float:
        """How much better one was than the other in their own looks, as a share."""
        return gain(self.merit(setting), self.merit(over))

"""Belief: what all looks together say of every setting, of those too that nobody has looked at.

It is a Gaussian process over the logarithm of what a setting is worth: each look moves what is believed of a setting,
and with it all that it has something in common with.
"""

from collections.abc import Sequence
from math import erf, exp, pi, sqrt
from typing import Protocol


class Kin(Protocol):
    """What the numbered things are believed to have in common before anything is measured: covariances."""

    def __getitem__(self, number: int) -> Sequence[float]: ...


class Belief:
    """What is believed of a number of things; any order of learning leads to the same."""

    def __init__(self, means: Sequence[float], variances: Sequence[float], kin: Kin) -> None:
        self.means = list(means)
        self.variances = list(variances)
        self._kin = kin
        self._learnt: list[list[float]] = []  # what each measurement took from the covariances, as a factor

    def learn(self, number: int, value: float, variance: float) -> None:
        """Hear what one of them measures, and the variance of such a measurement."""
        shared = self.shared(number)
        whole = shared[number] + variance
        step, scale = (value - self.means[number]) / whole, 1 / sqrt(whole)
        self.means = [mean + step * each for mean, each in zip(self.means, shared, strict=True)]
        learnt = [scale * each for each in shared]
        self.variances = [max(0.0, each - part * part) for each, part in zip(self.variances, learnt, strict=True)]
        self._learnt.append(learnt)

    def shared(self, number: int) -> list[float]:
        """Give the covariances of one with all, as they are now."""
        found = list(self._kin[number])
        for learnt in self._learnt:
            part = learnt[number]
            found = [each - part * other for each, other in zip(found, learnt, strict=True)]
        return found


def hoped(ahead: float, deviation: float) -> float:
    """What is won on average by what is ahead by so much, give or take, where it need not be taken if it is behind."""
    if deviation <= 0:
        return max(0.0, ahead)
    reach = ahead / deviation
    return ahead * (1 + erf(reach / sqrt(2))) / 2 + deviation * exp(-reach * reach / 2) / sqrt(2 * pi)

"""Kin: how much two settings are thought to have in common before anybody has looked at them.

Each knob may matter by so much, values near each other do about the same, and each setting is a little of its own.
"""

from collections.abc import Sequence
from math import exp, log2

from shoal.tools.tune.setting import KNOBS, Setting

# Standard deviations of logarithms: how much it may matter ...
LEVEL = 1.0  # what the model is
HANDS = 0.4  # how many workers and instances there are together
CREW = 0.05  # how many of them are workers
LIMIT = 0.25  # how large a batch may be
CROWD = 0.06  # ... with just so many hands
KIND = 0.05  # whether batches leave by themselves
DELAY = 0.04  # how long one may wait
WAIT = 0.10  # ... with just that limit
MICRO = 0.10
THREADS = 0.10
OWN = 0.02  # that it is this setting
FAR = 3.0  # doublings over which most of what two values have in common is lost
SIMPLE = 0.004  # how much better the default's value of a knob is thought to be, and half as many hands
WHOLE = sum(each**2 for each in (LEVEL, HANDS, CREW, LIMIT, CROWD, KIND, DELAY, WAIT, MICRO, THREADS, OWN))

Place = tuple[float, float, float, float | None, int, tuple[int, int, int]]


class Family:
    """The settings there are, by number; what one has in common with all is worked out when it is asked for."""

    def __init__(self, settings: Sequence[Setting]) -> None:
        largest = max((setting.limit for setting in settings), default=0) or 1
        self._places = [_place(setting, largest) for setting in settings]
        self._known: dict[int, list[float]] = {}

    def __getitem__(self, number: int) -> list[float]:
        if number not in self._known:
            one = self._places[number]
            self._known[number] = [_common(one, other) for other in self._places]
            self._known[number][number] = WHOLE
        return self._known[number]


def liking(setting: Setting, default: Setting) -> float:
    """How much a setting is preferred before it is looked at: what is simple, and what is there already."""
    changed = sum(not setting.has_knob(knob, default) for knob in KNOBS)
    return -SIMPLE * (changed + log2(setting.workers * setting.instances))


def _place(setting: Setting, largest: int) -> Place:
    delay = None if setting.delay is None else log2(max(0.25, setting.delay))
    hands, workers = log2(setting.workers * setting.instances), log2(setting.workers)
    return hands, workers, log2(setting.limit or largest), delay, setting.micro, setting.threads


def _common(one: Place, other: Place) -> float:
    hands, limit = exp(-abs(one[0] - other[0]) / FAR), exp(-abs(one[2] - other[2]) / FAR)
    found = LEVEL**2 + HANDS**2 * hands + LIMIT**2 * limit + CROWD**2 * hands * limit
    found += CREW**2 * exp(-abs(one[1] - other[1]) / FAR)
    if (one[3] is None) == (other[3] is None):
        delay = 1.0 if one[3] is None or other[3] is None else exp(-abs(one[3] - other[3]) / FAR)
        found += KIND**2 + (DELAY**2 + WAIT**2 * limit) * delay
    return found + MICRO**2 * (one[4] == other[4]) + THREADS**2 * (one[5] == other[5])

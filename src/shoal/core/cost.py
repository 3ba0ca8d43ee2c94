"""CostCurve: how many seconds a batch of n rows takes, learned from the batches that ended.

Durations are kept as running means per size: every size up to 8 rows, then four sizes per octave. Between the sizes
seen the curve is a straight line, and it never falls. From it follows `cap`, the most rows worth sending together;
`first_of`, how many of a few rows to begin with, where two or three together take longer than one after the other; and
`beyond`, a size that nobody tried and that a long queue should try once, for sizes between may be slow by themselves.
What slows all sizes alike, such as a neighbour on the same cores, is kept apart from them as `pace`: it passes, and a
size that was not tried meanwhile must not be remembered as slow.
A profile says what sizes took elsewhere or long ago. It may promise and not forbid: a size not met here counts where it
is better than those that were met make it look, at the speed met here; one that looks worse is tried like any other,
until the profile was right of some.
The curve owns no clock; what is told late is learned late.
"""

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Final

COLD_CAP: Final = 8  # rows per batch until anything is known
EXACT: Final = 8  # sizes up to here have a mean of their own
MIN_WEIGHT: Final = 0.05  # what the newest sample counts for at least
REFIT_AFTER: Final = 16  # samples between two fits of a grown-up curve
YOUNG: Final = 5  # samples below which a size is fitted at once
AGEING: Final = 0.99  # share of its samples a size still has after a fit
STALE: Final = 0.2  # samples left to a size nobody has tried for long
AGED: Final = 1.0  # samples left to a smaller size that may be tried out of curiosity
CURIOSITY: Final = 0.12  # how much better a size seen once might be than it looked
EQUAL: Final = 0.985  # a largest size this near the best counts as the best
HYSTERESIS: Final = 1.03  # how much better another size must be to replace the chosen one
REACH: Final = 4  # how far beyond the largest size seen a batch may go
FOLLOW: Final = 0.1  # the share of a surprise that is laid to the pace
REPACED: Final = 1.1  # a pace this many times off the one last fitted is fitted at once
SHIFT: Final = 2.0  # a model this many times faster or slower has changed as a whole
WITNESSES: Final = 3  # batches in a row that must say so
LEAP: Final = 16.0  # the most it changes by that: a worker that stood still for seconds is not the model
PASSING: Final = 4.0  # times slower or faster that may pass; what is beyond is laid to the sizes themselves
LEAST: Final = 1e-6  # seconds; nothing is faster
TRUSTED: Final = 3  # batches of a size before it has a say
APART: Final = 0.95  # of the time together, what rows must take one after the other to be parted
PROBES: Final = 6  # batches sent to try a size: where they taught nothing it cannot be had, for memory or failures
HOPE: Final = 0.5  # of the best rows a second that the largest size must reach for larger ones to be worth a try
WITNESSED: Final = 2  # sizes of which a profile must be right for its warnings to count
AGREES: Final = 1.25  # times what a profile says that a batch may take, or the other way about, and bear it out


class Point:
    """What is known of one size."""

    __slots__ = ("needed", "rows", "samples", "seconds", "seen")

    def __init__(self, rows: float, seconds: float, samples: float) -> None:
        self.rows = rows  # the mean of the sizes seen under this key
        self.seconds = seconds
        self.samples = samples  # ages, so not a whole number
        self.seen = round(samples)
        self.needed = TRUSTED

    @property
    def is_trusted(self) -> bool:
        """Whether it was seen more often than a device needs to get ready for a new size."""
        return self.seen >= self.needed

    def add(self, rows: int, seconds: float) -> None:
        """Move the means towards a sample; of the first few the fastest counts."""
        if not self.is_trusted:
            seconds = self.seconds = min(seconds, self.seconds)
        self.seen += 1
        weight = max(MIN_WEIGHT, 1.0 / (self.samples + 1.0))
        self.samples += 1.0
        self.rows += weight * (rows - self.rows)
        self.seconds += weight * (seconds - self.seconds)

    def speed(self, seconds: float, *, is_smaller: bool) -> float:
        """Rows a second at so many seconds, more for sizes little is known of, so that they are tried.

        To try one smaller than the size in use parts rows that could go together: only once what is known has aged.
        """
        if is_smaller and self.samples >= AGED:
            return self.rows / seconds
        return self.rows / seconds * (1.0 + CURIOSITY / math.sqrt(self.samples))


class CostCurve:
    """The learned t(rows) of one model, and the batch size it calls for."""

    def __init__(self, limit: int, profile: Mapping[int, float] | None = None) -> None:
        self.limit = limit
        self.cap = min(COLD_CAP, limit)
        self.seconds: list[float] = []  # by rows, 0 to limit; empty while nothing is known
        self.beyond = 0  # rows of a batch larger than all that were tried, for a queue as long; 0: not worth it
        self.pace = 1.0  # how many times slower all sizes are now than their points say
        self._fitted_pace = 1.0
        self._points: dict[int, Point] = {}
        self._prior: dict[int, Point] = {}  # what the profile says of sizes not met yet
        self._borne_out = 0  # sizes, not small ones, of which the profile was right
        self._is_doubted = False  # it was wrong of one
        self._probes: dict[int, int] = {}  # by key: how often a size was tried so
        self._first = list(range(EXACT + 1))  # how many of so few rows leave first
        self._least = [0.0] * (EXACT + 1)  # seconds for so few, parted where that is shorter
        self._chosen = 0  # key of the size `cap` comes from
        self._unfitted = 0
        self._ratios: deque[float] = deque(maxlen=WITNESSES)
        for rows, seconds in (profile or {}).items():
            if rows >= 1 and LEAST <= seconds < math.inf:
                self._prior[key_of(rows)] = Point(rows, seconds, TRUSTED)
        if self._prior:
            self.refit()

    @property
    def is_known(self) -> bool:
        """Whether anything was learned yet."""
        return bool(self.seconds)

    @property
    def is_borne_out(self) -> bool:
        """Whether the profile was right so often, and never wrong, that its warnings count as well."""
        return self._borne_out >= WITNESSED and not self._is_doubted

    def is_young(self, rows: int) -> bool:
        """Whether so little is known of this size that another batch of it tells much."""
        point = self._points.get(key_of(rows))
        return point is None or point.samples < YOUNG

    @property
    def is_due(self) -> bool:
        """Whether so many batches were noted that `refit` should be called, when there is time."""
        return self._unfitted >= REFIT_AFTER

    def learn(self, rows: int, seconds: float) -> bool:
        """Note that a batch took so long; True when the curve is another by it already, not only once it `is_due`."""
        seconds = max(LEAST, seconds)
        key = key_of(rows)
        point = self._points.get(key)
        if point is None:
            point = self._points[key] = Point(rows, seconds / self.pace, 0.0)
        elif point.is_trusted:
            self._follow(seconds / (self.pace * point.seconds))
        even = seconds / self.pace
        if point.is_trusted:
            even = min(max(even, point.seconds / SHIFT), point.seconds * SHIFT)  # one stall teaches little
        point.add(rows, even)
        self._unfitted += 1
        is_settled = key in self._prior and self._meets(key, point)
        if is_settled or point.samples < YOUNG:
            self.refit()
        elif not 1.0 / REPACED < self.pace / self._fitted_pace < REPACED:
            self._tabulate()
        else:
            return False
        return True

    def refit(self) -> None:
        """Make the curve, and choose its size, of what was noted."""
        self._unfitted = 0
        self._tabulate()
        for point in chain(self._points.values(), self._prior.values()):
            point.samples = max(STALE, AGEING * point.samples)
        self._choose()

    def most(self, rows: int) -> int:
        """The best size for so many rows that are all there are: `cap`, or all where a rest would make it longer."""
        cap, half = self.cap, rows // 2
        if not cap < rows <= min(2 * cap, self.limit):
            return cap
        parted = min(self.seconds[cap] + self._alone(rows - cap), self._alone(half) + self._alone(rows - half))
        return rows if self.seconds[rows] < parted else cap

    def total(self, rows: int) -> float:
        """Server time for `rows` that are all there are."""
        if rows <= self.most(rows):
            return self._alone(rows)
        full, rest = divmod(rows, self.cap)
        return full * self.seconds[self.cap] + self._alone(rest)

    def first_of(self, rows: int) -> int:
        """How many of the rows that wait leave first: all, or fewer where one after the other they take less time."""
        return self._first[rows] if rows <= EXACT else rows

    def wants_single(self, rows: int) -> bool:
        """Whether one of so few rows should leave alone: they may take longer together, and nobody knows what it takes.

        Clients in step would hide it for ever. What they take together must be known already.
        """
        points = self._points
        if not 1 < rows <= EXACT or rows not in points or 1 in self._prior:
            return False
        is_known = 1 in points and points[1].is_trusted
        return points[rows].is_trusted and not is_known and self._probes.get(1, 0) < PROBES

    def probed(self, rows: int) -> None:
        """Note that a batch was sent to try a size."""
        key = key_of(rows)
        self._probes[key] = self._probes.get(key, 0) + 1
        if rows == self.beyond and self._probes[key] >= PROBES:
            self.beyond = 0

    def _alone(self, rows: int) -> float:
        """Server time for rows that nobody else joins."""
        return self._least[rows] if rows <= EXACT else self.seconds[rows]

    def fitting(self, seconds: float) -> int:
        """Rows of the largest batch that ends within `seconds`; below 1 when none does."""
        return bisect_right(self.seconds, seconds) - 1

    def profile(self) -> dict[int, float]:
        """What was learned, for showing, and for starting warm next time."""
        points = self._known()
        return {max(1, round(points[key].rows)): self.pace * even for key, even in levels(points).items()}

    def _met(self) -> dict[int, Point]:
        """The sizes that were run here and have a say, by key.

        A size that was seen once or twice has no say beside those that are trusted: a device prepares every size it has
        not met, which may take ten times as long as running it.
        """
        return {key: point for key, point in self._points.items() if point.is_trusted}

    def _known(self) -> dict[int, Point]:
        """The sizes that were met, and those that the profile makes look better than these do."""
        met = self._met()
        if not self._prior or not met:
            return met or self._prior or self._points
        if self.is_borne_out:
            return self._prior | met
        usual = interpolate({max(1, round(met[key].rows)): met[key].seconds for key in sorted(met)}, self.limit)
        promised = {
            key: point
            for key, point in self._prior.items()
            if point.seconds < usual[min(self.limit, round(point.rows))]
        }
        return met | promised

    def _meets(self, key: int, point: Point) -> bool:
        """Whether what was met takes the place of what the profile said: the two agree, or it was met often enough."""
        prior = self._prior[key]
        ratio = point.seconds / prior.seconds
        if ratio > AGREES and not point.is_trusted:
            return False  # a device may be getting ready for it
        if ratio > LEAP and point.needed == TRUSTED:
            point.needed = 2 * TRUSTED  # a worker may have stood still
            return False
        is_first = not self._met().keys() - {key}
        point.seen = max(point.needed, point.seen)
        if 1.0 / AGREES <= ratio <= AGREES:
            self._borne_out += prior.rows >= COLD_CAP
            point.samples += prior.samples
            point.seconds += prior.samples / point.samples * (prior.seconds - point.seconds)
        elif prior.rows >= COLD_CAP or not 1.0 / SHIFT <= ratio <= SHIFT:  # of few rows, it may be what any batch costs
            self._is_doubted = True
            self._follow_profile(ratio, is_first=is_first)
            point.seconds = prior.seconds
        del self._prior[key]
        return True

    def _follow_profile(self, ratio: float, *, is_first: bool) -> None:
        """Take what the profile says to last so many times longer: it may pass if nothing else is known."""
        if is_first and 1.0 < self.pace * ratio <= PASSING:
            for point in self._points.values():
                point.seconds /= ratio
            self.pace *= ratio
        else:
            for point in self._prior.values():
                point.seconds = max(LEAST, point.seconds * ratio)

    def _follow(self, ratio: float) -> None:
        """Move the pace after a batch that took `ratio` times what was expected, as far as those before it agree."""
        ratios = self._ratios
        ratios.append(ratio)
        if len(ratios) < WITNESSES:
            return
        middle = sorted(ratios)[WITNESSES // 2]
        if min(ratios) < SHIFT and max(ratios) > 1.0 / SHIFT:
            self._shift(clamped(middle, SHIFT) ** FOLLOW)
        else:
            self._shift(clamped(middle, LEAP))
            ratios.clear()

    def _shift(self, factor: float) -> None:
        """Expect all sizes to take so many times longer: for the time being, or, beyond what may pass, for good."""
        pace = self.pace * factor
        self.pace = clamped(pace, PASSING)
        if self.pace != pace:
            for point in chain(self._points.values(), self._prior.values()):
                point.seconds = max(LEAST, point.seconds * pace / self.pace)
                point.samples = min(point.samples, 1.0)

    def _tabulate(self) -> None:
        self._fitted_pace = self.pace
        self.seconds = interpolate(self.profile(), self.limit)
        self._part()

    def _part(self) -> None:
        """Find out which few rows are better sent one after the other: only sizes that were tried, and lately."""
        seconds, points = self.seconds, self._points
        for rows in range(1, min(EXACT, self.limit) + 1):
            self._first[rows], self._least[rows] = rows, seconds[rows]
            point = points.get(rows)
            if point is None or not point.is_trusted or point.samples < AGED:
                continue
            for first in range(1, rows):
                apart = seconds[first] + self._least[rows - first]
                if apart < min(self._least[rows], APART * seconds[rows]):
                    self._first[rows], self._least[rows] = first, apart

    def _choose(self) -> None:
        """Pick the size of most rows a second; the largest wins a tie, the old one wins against little gain."""
        points = self._known()
        speeds = self._speeds(points)
        best = max(speeds, key=speeds.__getitem__)
        largest = max(speeds)  # keys grow with sizes
        if speeds[largest] >= EQUAL * speeds[best]:
            self._chosen = largest
        elif self._chosen not in speeds or speeds[best] > HYSTERESIS * speeds[self._chosen]:
            self._chosen = best
        self.cap = min(self.limit, max(reach(points, self._chosen), self._told()))
        self.beyond = 0
        if self._chosen != largest and speeds[largest] >= HOPE * speeds[best]:
            size = min(self.limit, max(COLD_CAP, int(REACH * points[largest].rows)))
            if key_of(size) > largest and self._probes.get(key_of(size), 0) < PROBES:
                self.beyond = size

    def _told(self) -> int:
        """The cap that the profile calls for, if it is by a size not met yet; else 0."""
        if not self._prior:
            return 0
        points = self._prior | self._met()
        speeds = self._speeds(points)
        best, largest = max(speeds, key=speeds.__getitem__), max(speeds)
        best = largest if speeds[largest] >= EQUAL * speeds[best] else best
        return reach(points, best) if best in self._prior else 0

    def _speeds(self, points: Mapping[int, Point]) -> dict[int, float]:
        """Rows a second of each size, by key, as far as they may be hoped for."""
        return {
            key: points[key].speed(seconds, is_smaller=key < self._chosen) for key, seconds in levels(points).items()
        }


def reach(points: Mapping[int, Point], chosen: int) -> int:
    """The cap that a size calls for: itself, or more where it is the largest that is known."""
    rows = points[chosen].rows
    return max(COLD_CAP, int(REACH * rows)) if chosen == max(points) else round(rows)


def levels(points: Mapping[int, Point]) -> dict[int, float]:
    """The seconds of each size, by key, evened out so that more rows never take less time."""
    keys = sorted(points)
    evened = never_falling([(points[key].seconds, points[key].samples) for key in keys])
    return dict(zip(keys, evened, strict=True))


def clamped(factor: float, most: float) -> float:
    """Keep a factor between so many times and the same part."""
    return min(max(factor, 1.0 / most), most)


def key_of(rows: int) -> int:
    """The size a batch counts under: itself up to 8 rows, then its quarter octave."""
    return rows if rows <= EXACT else round(4.0 * math.log2(rows))


def never_falling(samples: Sequence[tuple[float, float]]) -> list[float]:
    """Even out (value, weight) pairs to the nearest values that never fall: neighbours that do are pooled."""
    pools: list[tuple[float, float, int]] = []  # mean, weight, members
    for value, weight in samples:
        members = 1
        while pools and pools[-1][0] > value:
            mean, other, count = pools.pop()
            value = (value * weight + mean * other) / (weight + other)
            weight, members = weight + other, members + count
        pools.append((value, weight, members))
    return [mean for mean, _, members in pools for _ in range(members)]


def interpolate(points: Mapping[int, float], limit: int) -> list[float]:
    """Make t for 0 to `limit` rows from {rows: seconds}: straight between the points and beyond the ends."""
    sizes = sorted(points)
    if len(sizes) == 1:  # half of it is taken to be fixed
        only, seconds = sizes[0], points[sizes[0]]
        return [seconds * (0.5 + 0.5 * rows / only) for rows in range(limit + 1)]
    heights = [points[size] for size in sizes]
    table: list[float] = []
    last = len(sizes) - 2
    for index in range(last + 1):
        start, end = sizes[index], sizes[index + 1]
        slope = (heights[index + 1] - heights[index]) / (end - start)
        base = heights[index] - slope * start
        stop = limit + 1 if index == last else min(end, limit + 1)
        table.extend([base + slope * rows for rows in range(len(table), stop)])
    return [max(LEAST, seconds) for seconds in table] if table[0] < LEAST else table

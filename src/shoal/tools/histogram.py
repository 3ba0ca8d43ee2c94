"""Histogram: counts of durations in buckets half a per cent wide; small to send, exact enough for any percentile."""

from collections.abc import Iterable, Mapping
from math import exp, log

import msgspec

WIDTH = 1.005  # each bucket ends this many times later than it begins
SCALE = 1 / log(WIDTH)
SHIFT = 4000  # keeps numbers of buckets above 0 from 2 ns on
SHORTEST = 1e-7  # s; what is shorter counts as this
PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}


class Histogram(msgspec.Struct):
    """How many durations fell into each bucket; mean and extremes are exact."""

    counts: dict[int, int] = {}
    total: float = 0.0
    shortest: float = 0.0
    longest: float = 0.0

    def add(self, seconds: float) -> None:
        """Count a duration."""
        bucket = int(log(seconds if seconds > SHORTEST else SHORTEST) * SCALE + SHIFT)
        counts = self.counts
        if not counts or seconds < self.shortest:
            self.shortest = seconds
        counts[bucket] = counts.get(bucket, 0) + 1
        self.total += seconds
        if seconds > self.longest:
            self.longest = seconds

    @property
    def count(self) -> int:
        """How many there are."""
        return sum(self.counts.values())

    @property
    def mean(self) -> float:
        """Their average; 0 of none."""
        return self.total / self.count if self.counts else 0.0

    def quantile(self, share: float) -> float:
        """The duration that this share of them does not exceed; 0 of none."""
        found = quantiles(self.counts, [share])
        return min(max(found[0], self.shortest), self.longest) if found else 0.0


def merged(histograms: Iterable[Histogram]) -> Histogram:
    """Put histograms together."""
    counts: dict[int, int] = {}
    total, longest, shortest = 0.0, 0.0, 0.0
    for histogram in histograms:
        if histogram.counts:
            shortest = min(shortest, histogram.shortest) if counts else histogram.shortest
        for bucket, count in histogram.counts.items():
            counts[bucket] = counts.get(bucket, 0) + count
        total += histogram.total
        longest = max(longest, histogram.longest)
    return Histogram(counts, total, shortest, longest)


def quantiles(counts: Mapping[int, float], shares: Iterable[float]) -> list[float]:
    """The middles of the buckets in which these shares, in rising order, are reached; nothing of no counts."""
    total = sum(counts.values())
    if not total:
        return []
    found: list[float] = []
    rest = [share * total for share in shares]
    seen = 0.0
    for bucket in sorted(counts):
        seen += counts[bucket]
        while len(found) < len(rest) and seen >= rest[len(found)] - 1e-9:
            found.append(middle(bucket))
    return found


def middle(bucket: int) -> float:
    """Give the duration in the middle of a bucket."""
    return exp((bucket + 0.5 - SHIFT) / SCALE)

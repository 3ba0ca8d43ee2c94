"""Two benches side by side: what changed, and whether the change is more than chance.

Slices of time, not single requests, are drawn again and again (a block bootstrap): requests near each other in time
are alike, and intervals that ignored it would be too narrow.
"""

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from shoal.errors import InvalidInput
from shoal.tools.bench.results import Level, Piece, Report
from shoal.tools.histogram import quantiles

DRAWS = 1000
CONFIDENCE = 0.95
FIGURES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
Verdict = Literal["better", "worse", "no difference shown"]


class Change(msgspec.Struct, frozen=True):
    """One figure of one level in both benches; `low` and `high` are the ends of the interval of the change."""

    label: str
    figure: str
    before: float
    after: float
    change: float  # as a share of `before`
    low: float
    high: float
    verdict: Verdict


def read_report(path: str) -> Report:
    """Read a bench that was written as JSON."""
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=Report)
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror}") from None
    except msgspec.DecodeError as error:
        raise InvalidInput(f"{path} is no report of shoal bench: {error}") from None


def compare(before: Report, after: Report, *, draws: int = DRAWS) -> list[Change]:
    """Compare the levels that both have."""
    others = {level.label: level for level in after.levels}
    shared = [(level, others[level.label]) for level in before.levels if level.label in others]
    if not shared:
        ours, theirs = (", ".join(level.label for level in each.levels) or "none" for each in (before, after))
        raise InvalidInput(f"the two benches share no level of load: {ours}; and {theirs}")
    return [change for first, second in shared for change in _changes(first, second, draws)]


def _changes(before: Level, after: Level, draws: int) -> list[Change]:
    source = random.Random(1)
    one, two = (_drawn(level, source, draws) for level in (before, after))
    plain_one, plain_two = (_values(level.pieces, level.seconds_each) for level in (before, after))
    return [
        _change(before.label, name, (plain_one[name], plain_two[name]), one[name], two[name])
        for name in plain_one
        if plain_one[name] and plain_two[name]
    ]


def _change(
    label: str, figure: str, plain: tuple[float, float], before: Sequence[float], after: Sequence[float]
) -> Change:
    changes = sorted(two / one - 1 for one, two in zip(before, after, strict=True) if one)
    tail = (1 - CONFIDENCE) / 2
    low = changes[int(tail * len(changes))]
    high = changes[min(len(changes) - 1, int((1 - tail) * len(changes)))]
    sign = 1 if figure == "answers/s" else -1
    verdict: Verdict = "no difference shown"
    if low > 0 or high < 0:
        verdict = "better" if sign * (low + high) > 0 else "worse"
    return Change(label, figure, plain[0], plain[1], plain[1] / plain[0] - 1, low, high, verdict)


def _drawn(level: Level, source: random.Random, draws: int) -> dict[str, list[float]]:
    """The figures of many levels that might have been: as many slices each, drawn with replacement."""
    found: dict[str, list[float]] = {}
    draw: Callable[..., list[Piece]] = source.choices
    for _ in range(draws if level.pieces else 0):
        for name, value in _values(draw(level.pieces, k=len(level.pieces)), level.seconds_each).items():
            found.setdefault(name, []).append(value)
    return found


def _values(pieces: Sequence[Piece], seconds_each: float) -> dict[str, float]:
    counts: dict[int, int] = {}
    for piece in pieces:
        for bucket, count in piece.counts.items():
            counts[bucket] = counts.get(bucket, 0) + count
    rate = sum(piece.answered for piece in pieces) / (len(pieces) * seconds_each) if pieces else 0.0
    found = quantiles(counts, FIGURES.values()) or [0.0] * len(FIGURES)
    return {"answers/s": rate, **dict(zip(FIGURES, found, strict=True))}

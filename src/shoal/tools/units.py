"""Durations, rates and ranges as people write them, and numbers as people like to read them."""

import math
import re
from typing import Any, TypeVar

import click

from shoal.errors import InvalidInput

UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}
MOST_STEPS = 64
T = TypeVar("T")
_DURATION = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*(us|ms|s|m|h|)")
_RANGE = re.compile(r"(\d+):(\d+)(?::(?:x(\d+)|\+?(\d+)))?")


class Duration(click.ParamType[float]):
    """A click type: seconds, written as 50ms, 3s, 2m; a bare number is seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read it, or fail as click does."""
        if isinstance(value, int | float):
            return float(value)
        try:
            return seconds(value)
        except InvalidInput as error:
            self.fail(str(error), param, ctx)


DURATION = Duration()


def seconds(text: str) -> float:
    """Read a duration above 0."""
    found = _DURATION.fullmatch(text.strip())
    value = float(found[1]) * UNITS[found[2]] if found else 0.0
    if not found or value <= 0:
        raise InvalidInput(f"a duration is written as 50ms, 3s or 2m, and is above 0; got {text!r}")
    return value


def percent(text: str) -> float:
    """Read a share: 5% or 5 is 0.05."""
    try:
        value = float(text.strip().removesuffix("%")) / 100
    except ValueError:
        value = -1.0
    if not 0 < value < 1:
        raise InvalidInput(f"a share is written as 5%, between 0% and 100%; got {text!r}")
    return value


def levels(text: str, what: str) -> list[int]:
    """Read whole numbers of 1 or more: 1,8,64, or ranges 1:64 (each doubled), 1:64:x4, 10:50:10."""
    found: list[int] = []
    for word in text.split(","):
        if word.strip().isdecimal():
            found.append(int(word))
        elif match := _RANGE.fullmatch(word.strip()):
            found += _ranged(match, what)
        else:
            raise InvalidInput(f"{what} is a list such as 1,8,64 or a range such as 1:64:x2; got {text!r}")
    if min(found) < 1:
        raise InvalidInput(f"{what} must be 1 or more, got {text!r}")
    return _limited(list(dict.fromkeys(found)), what)


def rates(text: str) -> list[float]:
    """Read requests per second: 100,200.5."""
    try:
        found = [float(word) for word in text.split(",")]
    except ValueError:
        found = [0.0]
    if not all(0 < rate < math.inf for rate in found):
        raise InvalidInput(f"--rate is requests per second, such as 100,200; got {text!r}")
    return _limited(list(dict.fromkeys(found)), "--rate")


def _ranged(match: re.Match[str], what: str) -> list[int]:
    first, last = int(match[1]), int(match[2])
    factor, step = int(match[3] or 0), int(match[4] or 0)
    if not factor and not step:
        factor = 2
    if first < 1 or last < first or factor == 1:
        raise InvalidInput(f"{what}: the range {match[0]} goes nowhere; write FIRST:LAST:xFACTOR or FIRST:LAST:STEP")
    found: list[int] = []
    while first <= last and len(found) <= MOST_STEPS:
        found.append(first)
        first = first * factor if factor else first + step
    return found


def _limited(found: list[T], what: str) -> list[T]:
    if len(found) > MOST_STEPS:
        raise InvalidInput(f"{what} names more than {MOST_STEPS} steps; take larger ones")
    return found


def show_ms(seconds: float) -> str:
    """Milliseconds with three digits that mean something."""
    return show(1000 * seconds)


def show(value: float) -> str:
    """Write a number with three digits that mean something, and no exponent."""
    if not math.isfinite(value):
        return "-"
    size = abs(value)
    if size >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.2f}" if size >= 1 else f"{value:.3f}"


def show_bytes(size: float) -> str:
    """Write an amount of memory."""
    sign, size = ("-", -size) if size < 0 else ("", size)
    for unit in ("B", "KB", "MB"):
        if size < 1000:
            return f"{sign}{size:.0f} {unit}"
        size /= 1000
    return f"{sign}{size:.1f} GB"

"""Where two sets of answers to the same row differ, as paths and values."""

import difflib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.upstream.client import Answer

CLOSE = 1e-3  # of a probability; two builds of the same arithmetic agree far better
ABSENT = "(absent)"


@dataclass(frozen=True)
class Mismatch:
    """One value that is not as expected."""

    path: str  # answer number, then keys: 0.headers.content-type
    expected: Any
    got: Any

    def __str__(self) -> str:
        if isinstance(self.expected, str) and isinstance(self.got, str) and "\n" in self.expected:
            lines = difflib.unified_diff(self.expected.splitlines(), self.got.splitlines(), "expected", "got", n=0)
            return f"{self.path}:\n" + "\n".join(line.rstrip() for line in lines)
        return f"{self.path}: expected {self.expected!r}, got {self.got!r}"


def mismatches(expected: list[Answer], got: list[Answer]) -> list[Mismatch]:
    """Everything in which the answers differ."""
    return list(_differ("", expected, got))


def _differ(path: str, expected: Any, got: Any) -> Iterator[Mismatch]:
    if isinstance(expected, dict) and isinstance(got, dict):
        for key in [*expected, *(key for key in got if key not in expected)]:
            yield from _differ(f"{path}.{key}".lstrip("."), expected.get(key, ABSENT), got.get(key, ABSENT))
        shared = [[key for key in one if key in other] for one, other in ((expected, got), (got, expected))]
        if shared[0] != shared[1] and _is_content(path):
            yield Mismatch(f"{path}.(order)", *shared)
    elif isinstance(expected, list) and isinstance(got, list) and len(expected) == len(got):
        for index, (one, other) in enumerate(zip(expected, got, strict=True)):
            yield from _differ(f"{path}.{index}".lstrip("."), one, other)
    elif not _same(expected, got):
        yield Mismatch(path, expected, got)


def _is_content(path: str) -> bool:
    """Whether the order of keys is the server's own: it means something in bodies, and nothing in headers."""
    return ".body" in path or ".messages" in path


def _same(expected: Any, got: Any) -> bool:
    if isinstance(expected, float) and isinstance(got, float):
        return math.isclose(expected, got, rel_tol=CLOSE, abs_tol=1e-6)
    return type(expected) is type(got) and bool(expected == got)

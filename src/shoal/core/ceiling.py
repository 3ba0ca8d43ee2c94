"""Ceiling: the most rows that an instance has memory for, as batches that ran out of it taught. Rules, time passed in.

A batch that did not fit halves the ceiling. After a pause larger batches are tried again, half-way to what failed; one
that fits raises the ceiling, one that does not doubles the pause. A ceiling that has reached the limit is forgotten.
"""

from dataclasses import dataclass, replace
from typing import Final

FIRST: Final = 30.0  # s before a larger batch is tried again,
LONGEST: Final = 600.0  # and at most


@dataclass(frozen=True, slots=True)
class Ceiling:
    """What is known of one instance."""

    rows: int  # that fit
    bad: int = 0  # the fewest that did not; 0: unknown
    since: float = 0.0  # when that was
    pause: float = FIRST


def allowed(ceiling: Ceiling | None, limit: int, now: float) -> int:
    """The most rows that a batch may have now."""
    if ceiling is None:
        return limit
    rows, bad = ceiling.rows, ceiling.bad
    if now < ceiling.since + ceiling.pause:
        return max(1, min(rows, limit))
    upwards = bad if bad > rows else 2 * rows
    return max(1, min((rows + bad) // 2 if bad > rows + 1 else upwards, limit))


def lowered(ceiling: Ceiling | None, rows: int, limit: int, now: float) -> Ceiling | None:
    """What is known after a batch of several requests, with so many rows, ran out of memory."""
    if rows < 2 or rows > allowed(ceiling, limit, now):
        return ceiling  # larger than a batch is made: it says nothing about those that are
    if ceiling is not None and rows > ceiling.rows:  # tried, and still too much
        return replace(ceiling, bad=rows, since=now, pause=min(LONGEST, 2.0 * ceiling.pause))
    return Ceiling(rows // 2, rows, now, ceiling.pause if ceiling is not None else FIRST)


def raised(ceiling: Ceiling | None, rows: int, limit: int) -> Ceiling | None:
    """What is known after a batch of so many rows went well; None: all that are allowed fit."""
    if ceiling is None or rows <= ceiling.rows:
        return ceiling
    if rows >= limit:
        return None
    if rows >= ceiling.bad:  # there is more room than there was
        return replace(ceiling, rows=rows, bad=0, pause=FIRST)
    return replace(ceiling, rows=rows)


class Ceilings:
    """The instances of one model that ran out of memory."""

    def __init__(self) -> None:
        self.known: dict[str, Ceiling] = {}  # by instance

    def allowed(self, instance: str, limit: int, now: float) -> int:
        """The most rows that this instance may be sent now."""
        return allowed(self.known.get(instance), limit, now)

    def failed(self, instance: str, rows: int, limit: int, now: float) -> None:
        """A batch of several requests did not fit."""
        self.restore(instance, lowered(self.known.get(instance), rows, limit, now))

    def fitted(self, instance: str, rows: int, limit: int) -> None:
        """A batch went well."""
        self.restore(instance, raised(self.known.get(instance), rows, limit))

    def restore(self, instance: str, ceiling: Ceiling | None) -> None:
        """Know this of an instance; None: nothing."""
        if ceiling is None:
            self.known.pop(instance, None)
        else:
            self.known[instance] = ceiling

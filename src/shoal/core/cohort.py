"""Cohort: requests of a batch that failed, run again together and with nobody else, until the guilty one is alone.

A failed batch becomes two cohorts of half its size. Each guilty request costs at most two runs for each halving, so
31 of 32 requests are answered after ten further runs. A cohort is a group like any other to the queue; the batcher
sends it whole and at once.
"""

from collections.abc import Sequence
from itertools import count

from shoal.core.ceiling import Ceiling
from shoal.core.request import Request

_numbers = count(1)
Before = tuple[str, Ceiling | None]  # the instance whose memory ran out first, and what was known of it until then


class Cohort:
    """The group of requests that run again together."""

    __slots__ = ("before", "number")

    def __init__(self, before: Before | None = None) -> None:
        self.number = next(_numbers)
        self.before = before

    def __repr__(self) -> str:
        return f"Cohort({self.number})"


def split(requests: Sequence[Request], before: Before | None = None) -> list[list[Request]]:
    """Make two cohorts of these requests, in their order; of a single one, one."""
    middle = (len(requests) + 1) // 2
    halves = [half for half in (list(requests[:middle]), list(requests[middle:])) if half]
    for half in halves:
        cohort = Cohort(before)
        for request in half:
            request.group = cohort
    return halves


def is_cohort(request: Request) -> bool:
    """Whether the request runs again, away from others."""
    return isinstance(request.group, Cohort)

"""Rounds: which sequences of an instance take part in its next execution. Rules only, with the time passed in."""

from collections.abc import Sequence
from typing import Protocol

from shoal.core.batcher import WaitUntil
from shoal.core.policy import Hold
from shoal.core.preferred import Preferred, decide
from shoal.core.request import Request


class Round(Protocol):
    """A rule for who leaves together, of an instance that is free."""

    @property
    def limit(self) -> int:
        """The most rows an execution may have."""
        ...

    def choose(self, heads: Sequence[Request], now: float) -> Sequence[int] | WaitUntil:
        """Give the places in `heads` of those that leave now. They are the first of each sequence, by its slot."""
        ...

    def rows(self, slots: Sequence[int]) -> int:
        """Count the rows of an execution of these slots."""
        ...

    def describe(self) -> dict[str, object]:
        """Tell what it was given."""
        ...


class Direct:
    """Every sequence that has a request takes part, in the row of its slot.

    Only requests of one group share an execution: that of the oldest, so nobody waits for ever. With both numbers given
    an execution waits until enough slots have a request, or the oldest has waited for the delay.
    """

    def __init__(self, limit: int, delay: float = 0.0, utilization: float = 0.0) -> None:
        self.limit = limit
        self.delay = delay
        self.utilization = utilization

    def choose(self, heads: Sequence[Request], now: float) -> Sequence[int] | WaitUntil:
        """Give all of the oldest one's group, or wait."""
        oldest = min(heads, key=_arrived)
        until = oldest.arrived + self.delay
        if len(heads) < self.utilization * self.limit and now < until:
            return WaitUntil(until, "utilization")
        return [index for index, head in enumerate(heads) if head.group == oldest.group]

    def rows(self, slots: Sequence[int]) -> int:
        """Count those below the last too, whether or not they have a request."""
        return slots[-1] + 1

    def describe(self) -> dict[str, object]:
        """Tell what it was given."""
        return {
            "strategy": "direct",
            "batch_size": self.limit,
            "max_queue_delay_microseconds": round(1e6 * self.delay),
            "minimum_slot_utilization": self.utilization,
        }


class Oldest:
    """The oldest requests are merged as the dynamic batcher would, whatever the slots."""

    def __init__(self, rule: Preferred) -> None:
        self.rule = rule

    @property
    def limit(self) -> int:
        """The most rows an execution may have."""
        return self.rule.limit

    def choose(self, heads: Sequence[Request], now: float) -> Sequence[int] | WaitUntil:
        """Give the oldest ones up to the point where the batch ends, or wait."""
        by_age = sorted(range(len(heads)), key=lambda index: heads[index].arrived)
        rule = self.rule
        match decide((heads[index] for index in by_age), rule.sizes, rule.limit, rule.delay, now):
            case Hold(until, reason):
                return WaitUntil(until, reason)
            case leave:
                return by_age[: leave.rows]  # each has one row

    def rows(self, slots: Sequence[int]) -> int:
        """Count the requests."""
        return len(slots)

    def describe(self) -> dict[str, object]:
        """Tell what it was given."""
        return {"strategy": "oldest", **self.rule.describe()}


def _arrived(request: Request) -> float:
    return request.arrived

"""Continuous: the rule for workers that let requests join a batch while it runs."""

from collections.abc import Callable

from shoal.core.batch import Batch
from shoal.core.policy import Fleet, Lane, Single


class Continuous(Single):
    """Every request on its own, to any instance that has a place left. `again` asks for another look at the queue."""

    def __init__(self, again: Callable[[], None]) -> None:
        super().__init__()
        self._again = again

    def ahead(self, lane: Lane, instance: str, now: float) -> float | None:
        """At once: it joins what the instance runs."""
        return now

    def sent(self, batch: Batch, fleet: Fleet, now: float) -> None:
        """The instance may have a place for the next one too."""
        self._again()

    def describe(self) -> dict[str, object]:
        """Nothing is learned, and nothing was given."""
        return {}

"""Slots: the places for sequences that instances have, and which of them are free.

The lowest number is taken first, and of one number that of the instance which joined first, so sequences spread over
the instances before any of them has a second one.
"""

import heapq
from itertools import count
from typing import NamedTuple


class Slot(NamedTuple):
    """A place for one sequence: its number within its instance, and that instance."""

    number: int
    order: int  # in which the instance joined
    instance: str


class Slots:
    """As many slots for every instance that is up."""

    def __init__(self, each: int) -> None:
        self.each = each
        self._free: list[Slot] = []  # a heap
        self._orders: dict[str, int] = {}  # of the instances that are up
        self._joined = count()

    def join(self, instance: str) -> None:
        """Add the slots of an instance."""
        order = self._orders[instance] = next(self._joined)
        for number in range(self.each):
            heapq.heappush(self._free, Slot(number, order, instance))

    def leave(self, instance: str) -> None:
        """Take away the slots of an instance, those in use too."""
        del self._orders[instance]
        self._free = [slot for slot in self._free if slot.instance != instance]
        heapq.heapify(self._free)

    def take(self) -> Slot | None:
        """Give the first free slot; None when there is none."""
        return heapq.heappop(self._free) if self._free else None

    def give_back(self, slot: Slot) -> None:
        """A sequence does not need its slot any more; one whose instance is gone is forgotten."""
        if self._orders.get(slot.instance) == slot.order:
            heapq.heappush(self._free, slot)

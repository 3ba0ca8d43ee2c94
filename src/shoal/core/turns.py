"""Turns: which of the instances that need the same resources may start, by fair turns.

A resource is an amount with a name, one for all or one for each device. An instance takes what it claims when it starts
a batch and returns it when the batch has ended. Among those that wait, the one with the fewest executions, weighted by
its priority, is next, and nobody takes away what it waits for: a small claim never starves a large one. Whoever was
away, or is new, begins with the others' count, so it cannot keep them waiting until it has caught up.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from shoal.errors import ConfigError

ALL: Final = -1  # the device of a resource that all devices share
Resource = tuple[str, int]  # name and device
_numbers = count()


@dataclass(frozen=True, slots=True)
class Claim:
    """What an instance needs to start; a lower priority number gets more turns."""

    needs: Mapping[Resource, int]
    priority: int = 1


@dataclass(slots=True)
class Member:
    """One instance."""

    claim: Claim
    wake: Callable[[], None]
    turn: int = 0  # executions times priority, never behind those who got a turn
    asked: int = 0  # the order of those that wait
    is_waiting: bool = False
    holds: bool = False


@dataclass(slots=True)
class Turns:
    """The resources of one server. `amounts` are those an operator set; without any, the largest claim fits once."""

    amounts: Mapping[Resource, int] = field(default_factory=dict)
    _members: dict[Hashable, Member] = field(default_factory=dict)
    _used: Counter[Resource] = field(default_factory=Counter)
    _reached: int = 0  # the turn that was had last
    _asked: "count[int]" = field(default_factory=count)

    def check(self, claims: Iterable[Claim]) -> None:
        """Raise ConfigError where an instance with one of these could never start."""
        claims = list(claims)
        everybody = [*claims, *(member.claim for member in self._members.values())]
        kinds: dict[str, set[bool]] = {}
        for claim in everybody:
            for name, device in claim.needs:
                kinds.setdefault(name, set()).add(device == ALL)
        for claim in claims:
            for (name, device), amount in claim.needs.items():
                if len(kinds[name]) > 1:
                    words = "is present as both global and device-specific resource in the model configuration."
                    raise ConfigError(f'Resource "{name}" {words}')
                if self.amounts and amount > (most := self.amount((name, device))):
                    raise ConfigError(
                        f'Resource count for "{name}" is limited to {most} which will prevent scheduling of one or '
                        f"more model instances, the minimum required count is {amount}"
                    )

    def amount(self, resource: Resource) -> int:
        """How much there is of a resource."""
        if self.amounts:
            name, device = resource
            given = self.amounts.get(resource, self.amounts.get((name, ALL)))
            if given is None and device == ALL:
                given = next((amount for (other, _), amount in self.amounts.items() if other == name), None)
            return given or 0
        return max((member.claim.needs.get(resource, 0) for member in self._members.values()), default=0)

    def used(self, resource: Resource) -> int:
        """How much of it is taken."""
        return self._used[resource]

    def join(self, instance: Hashable, claim: Claim, wake: Callable[[], None]) -> None:
        """An instance is up; `wake` is called when it waits and may have its turn."""
        self._members[instance] = Member(claim, wake, self._reached)

    def leave(self, instance: Hashable) -> None:
        """An instance is gone, and what it held returns."""
        member = self._members.get(instance)
        if member is not None:
            self._return(member)
            del self._members[instance]
            self._wake()

    def enter(self, instance: Hashable) -> bool:
        """Let an instance start now and take what it claims; False: it waits, and is woken when that may change."""
        member = self._members[instance]
        if not member.is_waiting:
            member.is_waiting = True
            member.turn = max(member.turn, self._reached)
            member.asked = next(self._asked)
        if member not in self._next():
            return False
        member.is_waiting, member.holds = False, True
        self._reached = max(self._reached, member.turn)
        self._used.update(member.claim.needs)
        return True

    def exit(self, instance: Hashable, *, has_run: bool) -> None:
        """What an instance took returns; one that did not run had no turn."""
        member = self._members.get(instance)
        if member is None or not member.holds:
            return
        if has_run:
            member.turn += max(1, member.claim.priority)
        self._return(member)
        self._wake()

    def give_up(self, instances: Iterable[Hashable]) -> None:
        """Instances that have nothing to run do not wait any more."""
        gone = [member for name in instances if (member := self._members.get(name)) is not None and member.is_waiting]
        for member in gone:
            member.is_waiting = False
        if gone:
            self._wake()

    def _next(self) -> list[Member]:
        """Find who may start, in their order; what somebody earlier waits for is not given to anybody later."""
        free: dict[Resource, int] = {}
        kept: set[Resource] = set()
        found = []
        for member in sorted(
            (member for member in self._members.values() if member.is_waiting),
            key=lambda member: (member.turn, member.asked),
        ):
            needs = {resource: amount for resource, amount in member.claim.needs.items() if amount > 0}
            for resource in needs:
                free.setdefault(resource, self.amount(resource) - self._used[resource])
            if kept.isdisjoint(needs) and all(amount <= free[resource] for resource, amount in needs.items()):
                found.append(member)
                for resource, amount in needs.items():
                    free[resource] -= amount
            else:
                kept.update(needs)
        return found

    def _return(self, member: Member) -> None:
        if member.holds:
            member.holds = False
            self._used.subtract(member.claim.needs)

    def _wake(self) -> None:
        for member in self._next():
            member.wake()


class Gate:
    """The instances of one model among those of all."""

    def __init__(self, turns: Turns, claim_of: Callable[[str], Claim], wake: Callable[[], None]) -> None:
        self._turns = turns
        self._number = next(_numbers)  # a model that is loaded anew has instances of the same names
        self._claim_of = claim_of
        self._wake = wake
        self._refused: set[str] = set()

    def join(self, instance: str) -> None:
        """An instance is up."""
        self._turns.join((self._number, instance), self._claim_of(instance), self._wake)

    def leave(self, instance: str) -> None:
        """An instance is gone."""
        self._refused.discard(instance)
        self._turns.leave((self._number, instance))

    def enter(self, instance: str) -> bool:
        """Whether the instance may start a batch now; then it has what it needs until `exit`."""
        if self._turns.enter((self._number, instance)):
            self._refused.discard(instance)
            return True
        self._refused.add(instance)
        return False

    def exit(self, instance: str, *, has_run: bool = True) -> None:
        """The instance has finished, or had nothing to start."""
        self._turns.exit((self._number, instance), has_run=has_run)

    def settle(self, *, has_more: bool) -> None:
        """Everybody was asked: where nothing is left to run, nobody waits for a turn."""
        if self._refused and not has_more:
            refused, self._refused = self._refused, set()
            self._turns.give_up((self._number, instance) for instance in refused)


def amounts_of(resources: Sequence[tuple[str, int, int | None]]) -> dict[Resource, int]:
    """Read what an operator set: name, amount, and the device where it is not for each."""
    return {(name, ALL if device is None else device): amount for name, amount, device in resources}

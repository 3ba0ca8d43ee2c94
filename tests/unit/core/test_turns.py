"""Turns: nothing is taken twice, nobody waits for ever, and priorities share as they say."""

from collections import Counter
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.core.batcher import Batcher
from shoal.core.policy import Hold
from shoal.core.queue import RequestQueue
from shoal.core.scheduler import Scheduler
from shoal.core.turns import ALL, Claim, Gate, Turns, amounts_of
from shoal.errors import ConfigError
from shoal.telemetry import ModelStats
from tests.support import FakeAlarm, Scripted, StubInstance, ask

R, S = ("r", 0), ("s", 0)
RESOURCES = [R, S, ("g", ALL)]


def of(*claims: Claim, amounts: dict[tuple[str, int], int] | None = None) -> tuple[Turns, list[int]]:
    """Instances 0, 1, ... with these claims, and who was woken."""
    turns, woken = Turns(amounts or {}), list[int]()
    for number, claim in enumerate(claims):
        turns.join(number, claim, lambda number=number: woken.append(number))  # type: ignore[misc]
    return turns, woken


def shared(turns: Turns, executions: int) -> dict[int, int]:
    """How often each of two ran that always have something to run and need the same."""
    runs: Counter[int] = Counter()
    (held,) = [number for number in (0, 1) if turns.enter(number)]
    for _ in range(executions):
        runs[held] += 1
        turns.exit(held, has_run=True)
        (held,) = [number for number in (held, 1 - held) if turns.enter(number)]
    return dict(runs)


def test_who_needs_nothing_never_waits() -> None:
    turns, _ = of(Claim({}), Claim({}))

    assert turns.enter(0) and turns.enter(1)


def test_the_second_waits_until_the_first_has_finished() -> None:
    turns, woken = of(Claim({R: 1}), Claim({R: 1}))
    assert turns.enter(0)
    assert not turns.enter(1)
    assert not woken
    turns.exit(0, has_run=True)

    assert woken == [1]
    assert turns.enter(1)


def test_there_is_as_much_as_the_largest_claim_unless_somebody_says_otherwise() -> None:
    turns, _ = of(Claim({R: 1}), Claim({R: 1}), Claim({R: 2}))
    assert turns.amount(R) == 2
    assert turns.enter(0) and turns.enter(1)
    turns.leave(2)
    assert turns.amount(R) == 1

    given, _ = of(Claim({R: 1}), amounts=amounts_of([("r", 3, None), ("s", 5, 1)]))
    assert given.amount(R) == 3
    assert given.amount(("s", 1)) == 5
    assert given.amount(S) == 0


@pytest.mark.parametrize(
    ("claim", "words"),
    [
        (Claim({R: 5}), 'Resource count for "r" is limited to 3 which .* the minimum required count is 5'),
        (Claim({("q", 0): 1}), 'Resource count for "q" is limited to 0'),
        (Claim({("r", ALL): 1}), 'Resource "r" is present as both global and device-specific resource'),
        (Claim({("g", ALL): 9}), 'Resource count for "g" is limited to 4'),
    ],
)
def test_what_could_never_start_is_refused(claim: Claim, words: str) -> None:
    turns, _ = of(Claim({R: 1}), amounts=amounts_of([("r", 3, None), ("g", 4, 0)]))
    turns.check([Claim({R: 3})])

    with pytest.raises(ConfigError, match=words):
        turns.check([claim])


def test_a_large_claim_is_not_starved_by_small_ones() -> None:
    turns, _ = of(Claim({R: 1}), Claim({R: 1}), Claim({R: 2}))
    assert turns.enter(0) and turns.enter(1)
    assert not turns.enter(2)
    turns.exit(0, has_run=True)

    assert not turns.enter(0), "what the large one waits for is kept for it"
    turns.exit(1, has_run=True)
    assert turns.enter(2)


def test_who_waits_for_one_thing_does_not_hold_up_who_needs_another() -> None:
    turns, _ = of(Claim({R: 1}), Claim({R: 1}), Claim({S: 1}))
    assert turns.enter(0)
    assert not turns.enter(1)

    assert turns.enter(2)


def test_one_that_is_new_does_not_keep_the_others_waiting_until_it_has_caught_up() -> None:
    turns, _ = of(Claim({R: 1}))
    for _ in range(100):
        assert turns.enter(0)
        turns.exit(0, has_run=True)
    turns.join(1, Claim({R: 1}), lambda: None)

    assert shared(turns, 20) == {0: 10, 1: 10}


def test_neither_does_one_that_had_nothing_to_run_for_a_while() -> None:
    turns, _ = of(Claim({R: 1}), Claim({R: 1}))
    for _ in range(100):
        assert turns.enter(0)
        turns.exit(0, has_run=True)

    assert shared(turns, 20) == {0: 10, 1: 10}


def test_one_that_is_gone_gives_back_what_it_held() -> None:
    turns, woken = of(Claim({R: 1}), Claim({R: 1}))
    turns.enter(0)
    turns.enter(1)
    turns.leave(0)
    turns.leave(0)

    assert woken == [1]
    assert turns.used(R) == 0


def test_one_that_does_not_want_to_any_more_lets_the_next_go() -> None:
    turns, woken = of(Claim({R: 1}), Claim({R: 1}), Claim({R: 1}))
    turns.enter(0)
    turns.enter(1)
    turns.enter(2)
    turns.give_up([1])
    turns.exit(0, has_run=True)

    assert woken == [2]


@settings(max_examples=60, deadline=None)
@given(
    claims=st.lists(
        st.builds(Claim, st.dictionaries(st.sampled_from(RESOURCES), st.integers(0, 4), max_size=3), st.integers(0, 3)),
        min_size=1,
        max_size=6,
    ),
    limits=st.booleans(),
    moves=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), max_size=120),
)
def test_no_resource_is_ever_overdrawn(claims: list[Claim], limits: bool, moves: list[tuple[int, int]]) -> None:
    amounts = {resource: max(claim.needs.get(resource, 0) for claim in claims) + 1 for resource in RESOURCES}
    turns, _ = of(*claims, amounts=amounts if limits else None)
    running: set[int] = set()
    here = set(range(len(claims)))
    for which, move in moves:
        number = which % len(claims)
        if number not in here:
            turns.join(number, claims[number], lambda: None)
            here.add(number)
        elif move == 9:
            turns.leave(number)
            running.discard(number)
            here.discard(number)
        elif number in running:
            turns.exit(number, has_run=move % 2 == 0)
            running.discard(number)
        elif move == 8:
            turns.give_up([number])
        elif turns.enter(number):
            running.add(number)
        used: Counter[tuple[str, int]] = Counter()
        for other in running:
            used.update(claims[other].needs)
        assert all(turns.used(resource) == used[resource] for resource in RESOURCES)
        if limits:
            assert all(used[resource] <= amounts[resource] for resource in RESOURCES)
        elif len(here) == len(claims):
            assert all(used[resource] <= max(c.needs.get(resource, 0) for c in claims) for resource in RESOURCES)


@settings(max_examples=40, deadline=None)
@given(
    claims=st.lists(
        st.builds(Claim, st.dictionaries(st.sampled_from(RESOURCES), st.integers(1, 3), max_size=3), st.integers(1, 3)),
        min_size=1,
        max_size=5,
    ),
    lengths=st.lists(st.integers(1, 4), min_size=1, max_size=7),
)
def test_whoever_always_has_something_to_run_always_gets_its_turn(claims: list[Claim], lengths: list[int]) -> None:
    turns, _ = of(*claims)
    ends: dict[int, int] = {}
    runs: Counter[int] = Counter()
    takes = count()
    for now in range(200):
        for number in [number for number, end in ends.items() if end <= now]:
            turns.exit(number, has_run=True)
            del ends[number]
        for number in range(len(claims)):
            if number not in ends and turns.enter(number):
                runs[number] += 1
                ends[number] = now + lengths[next(takes) % len(lengths)]

    slowest = max(lengths) * sum(claim.priority for claim in claims) * max(claim.priority for claim in claims)
    assert all(runs[number] >= 200 // slowest - 2 for number in range(len(claims))), (runs, claims)
    assert all(runs[number] > 0 for number in range(len(claims)))


def test_a_priority_of_two_gets_half_the_turns_of_one() -> None:
    turns, _ = of(Claim({R: 1}, 1), Claim({R: 1}, 2))

    assert shared(turns, 300) == {0: 200, 1: 100}


class Yard:
    """Two models whose instances need the same thing."""

    def __init__(self, *policies: Scripted) -> None:
        self.turns = Turns()
        self.alarms = [FakeAlarm() for _ in policies]
        self.schedulers = []
        self.instances = []
        for number, policy in enumerate(policies):
            gate = Gate(self.turns, lambda _: Claim({R: 1}), self.alarms[number].soon)
            batcher = Batcher(RequestQueue("m", 10), policy)
            scheduler = Scheduler(batcher, self.alarms[number], ModelStats("m", "1"), gate=gate)
            instance = StubInstance("a", places=2)  # both models call theirs the same
            scheduler.join(instance)
            self.schedulers.append(scheduler)
            self.instances.append(instance)
        self.ring()

    def ring(self) -> None:
        """Feed whoever is to be fed, until nobody is."""
        for _ in range(20):
            due = [number for number, alarm in enumerate(self.alarms) if alarm.is_due]
            for number in due:
                self.alarms[number].is_due = False
                self.schedulers[number].feed(0.0)

    def end(self, number: int) -> None:
        batch = self.instances[number].batches.pop(0)
        self.schedulers[number].freed(self.instances[number], batch, 0.0, 0.0)

    @property
    def running(self) -> list[int]:
        return [len(instance.batches) for instance in self.instances]


def single() -> Scripted:
    policy = Scripted(ahead=0.0)
    policy.limit = 1
    return policy


def test_schedulers_take_turns_and_send_nothing_ahead() -> None:
    yard = Yard(single(), single())
    for scheduler in yard.schedulers:
        for _ in range(3):
            scheduler.offer(ask(), 0.0)
    yard.ring()
    assert yard.running == [1, 0]
    seen = []
    for _ in range(5):
        yard.end(yard.running.index(1))
        yard.ring()
        seen.append(yard.running)

    assert seen == [[0, 1], [1, 0], [0, 1], [1, 0], [0, 1]]


def test_one_that_holds_its_batch_back_holds_up_nobody() -> None:
    yard = Yard(Scripted(Hold(5.0, "delay"), Hold(5.0, "delay")), single())
    yard.schedulers[0].offer(ask(), 0.0)
    yard.ring()
    assert yard.turns.used(R) == 0
    yard.schedulers[1].offer(ask(), 0.0)
    yard.ring()

    assert yard.running == [0, 1]


def test_one_whose_requests_have_left_does_not_wait_any_more() -> None:
    yard = Yard(single(), single())
    gone = ask()
    yard.schedulers[0].offer(ask(), 0.0)
    yard.ring()
    yard.schedulers[1].offer(gone, 0.0)
    yard.ring()
    yard.schedulers[1].withdraw(gone, 0.0)
    yard.alarms[1].is_due = True
    yard.ring()
    yard.schedulers[0].offer(ask(), 0.0)
    yard.end(0)
    yard.ring()

    assert yard.running == [1, 0]


def test_an_instance_that_dies_gives_back_what_it_held_and_one_that_retires_waits_for_nothing() -> None:
    yard = Yard(single(), single())
    for scheduler in yard.schedulers:
        scheduler.offer(ask(), 0.0)
    yard.ring()
    yard.schedulers[0].leave(yard.instances[0], 0.0, lambda batch: ConfigError("died"))
    yard.ring()
    assert yard.running[1] == 1
    yard.schedulers[1].retire(yard.instances[1], lambda: None)
    yard.end(1)

    assert yard.turns.used(R) == 0

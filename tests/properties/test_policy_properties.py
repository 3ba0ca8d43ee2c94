"""The promises of the adaptive rule, under any order of arrivals, ends, deaths and jumps of the clock."""

import functools
import math
import statistics
from collections.abc import Sequence

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from benchmarks.policy_sim import EMPTY, FifoLane, Report, Simulation, Triton, Workload, World, curve
from shoal.clock import EARLY
from shoal.core.adaptive import SPAN, Adaptive
from shoal.core.batch import Batch, Stages
from shoal.core.comeback import MANY
from shoal.core.cost import CostCurve
from shoal.core.policy import Fixed, Fleet, Hold, Lane, Leave, Policy, Refuse
from shoal.core.request import Outcome, Request
from shoal.core.returns import LONGER, SHARE
from shoal.core.triage import MARGIN

HOLDS = {"return", "volley", "spacing"}
LEAVES = {"idle", "full", "deadline", "probe", "oldest", *(f"{hold}-over" for hold in HOLDS)}
SLACK = 1e-9  # of floating point

profiles = st.dictionaries(st.integers(1, 64), st.floats(1e-5, 1.0), max_size=4)
clients = st.none() | st.integers(0, 5)
patiences = st.just(math.inf) | st.floats(1e-4, 0.2)
pauses = st.sampled_from([1e-4, 3e-4, 1e-3, 3e-3, 5e-3])
steps = st.one_of(
    st.tuples(st.just("arrive"), clients, patiences, st.integers(1, 3)),
    st.tuples(st.just("volley"), st.integers(1, 6)),
    st.tuples(st.just("pass"), st.sampled_from([0.0, 1e-5, 3e-4, 2e-3, 0.02, 1.0, 3600.0])),
    st.tuples(st.just("end"), st.integers(0, 3)),
    st.tuples(st.just("die"), st.integers(0, 3)),
    st.tuples(st.just("start")),
    st.tuples(st.just("wake")),
    st.tuples(st.just("round"), st.integers(1, 6), pauses, patiences | st.floats(0.0047, 0.009)),
)


def ignore(request: Request, outcome: Outcome, is_last: bool) -> None: ...


class Checked:
    """A server of which every decision is held against the promises."""

    def __init__(self, policy: Adaptive, instances: int) -> None:
        self.policy = policy
        self.lane = FifoLane()
        self.fleet = Fleet(instances, instances)
        self.idle = [str(name) for name in range(instances)]
        self.running: list[Batch] = []
        self.names = instances
        self.made = 0
        self.now = 1000.0
        self.answered = -math.inf
        self.held: Hold | None = None  # the hold in force, of which nothing may be added
        self.rows = self.size = 0  # rows when it began, and those at which it ends early
        self.holds: set[str] = set()

    def step(self, name: str, *values: object) -> None:
        getattr(self, f"do_{name}")(*values)
        self.offer()

    def do_arrive(self, client: int | None, patience: float, rows: int) -> None:
        request = Request(EMPTY, ignore, self.now, client=client, deadline=self.now + patience, rows=rows)
        self.lane.add(request)
        self.policy.arrived(request, self.lane, self.fleet, self.now)

    def do_volley(self, count: int) -> None:
        for _ in range(count):
            self.do_arrive(None, math.inf, 1)
            self.offer()
            self.now += 1e-4

    def do_round(self, count: int, pause: float, patience: float) -> None:
        """All that runs ends, and so many clients come back."""
        while self.running:
            self.do_end(0)
            self.offer()
        for client in range(count):
            self.now += pause / count
            self.do_arrive(client, patience, 1)
            self.offer()

    def do_pass(self, seconds: float) -> None:
        self.now += seconds

    def do_wake(self) -> None:
        if self.held is not None and self.idle:
            self.now = max(self.now, self.held.until)
            decision = self.policy.decide(self.lane, self.fleet, self.now)
            if isinstance(decision, Hold):  # another one; nobody comes until its end
                self.check_hold(decision)
                self.now = decision.until
                decision = self.policy.decide(self.lane, self.fleet, self.now)
            assert not isinstance(decision, Hold), "a hold whose time is over must end"

    def do_end(self, index: int) -> None:
        if self.running:
            batch = self.running.pop(index % len(self.running))
            self.now = max(self.now, batch.left + self.true_cost(batch.rows))
            batch.stages = Stages(0.001, 0.002, 0.001)
            self.idle.append(batch.instance)
            self.fleet.idle += 1
            self.held = None
            self.policy.done(batch, self.now)
            self.answered = self.now

    def do_die(self, index: int) -> None:
        """A worker goes, with its batch if it has one."""
        if self.running and index % 2:
            batch = self.running.pop(index % len(self.running))
            self.fleet.size -= 1
            self.held = None
            self.policy.done(batch, self.now)
        elif self.idle:
            self.idle.pop()
            self.fleet.size -= 1
            self.fleet.idle -= 1

    def do_start(self) -> None:
        self.names += 1
        self.idle.append(str(self.names))
        self.fleet.size += 1
        self.fleet.idle += 1

    def true_cost(self, rows: int) -> float:
        return 0.004 + 0.0002 * rows

    def offer(self) -> None:
        while len(self.lane) and self.idle:
            decision = self.policy.decide(self.lane, self.fleet, self.now)
            if isinstance(decision, Hold):
                return self.check_hold(decision)
            self.held = None
            if isinstance(decision, Refuse):
                self.check_refusal(decision)
            else:
                self.leave(decision)

    def check_hold(self, hold: Hold) -> None:
        policy, rows = self.policy, self.lane.rows
        assert hold.reason in HOLDS
        assert hold.until > self.now
        assert rows < policy._most(rows + policy.returns.expected()), "held a full batch"
        if self.held is not None and not self.is_another(self.held, hold):
            assert hold.until <= self.held.until + SLACK, "an arrival made a hold longer"
        else:
            self.holds.add(hold.reason)
            assert self.held is None or rows > self.rows, "held again although nobody came"
            assert hold.until <= self.bound(hold.reason, rows) + SLACK
            assert policy._plan is not None
            self.rows, self.size = rows, policy._plan.size
        finish = hold.until + MARGIN * policy.curve.seconds[min(rows, policy.limit)]
        assert finish <= self.lane[0].deadline + SLACK, "held past the head's deadline"
        self.held = hold

    def is_another(self, held: Hold, hold: Hold) -> bool:
        """Whether it comes after one that has ended, for those who are still due."""
        is_whole = held.reason == "volley" and self.lane.rows >= self.size
        return hold.reason == "return" and (is_whole or self.now >= held.until - EARLY)

    def bound(self, reason: str, rows: int) -> float:
        """The latest end the hold may have, by its reason."""
        curve = self.policy.curve
        if reason == "volley":
            return self.now + SPAN * curve.seconds[1]
        if reason == "spacing":
            return max(end for end, _ in self.policy._running.ends())
        total, due = curve.total, self.policy.returns.expected()
        saving = max(total(rows) + total(more) - total(rows + more) for more in range(1, due + 1))
        usual, group = self.answered + SHARE * saving, self.policy.returns.due[-1]
        if group.clients < MANY:
            return usual
        return max(usual, min(group.flows_until(), self.answered + LONGER * SHARE * saving))

    def check_refusal(self, refuse: Refuse) -> None:
        seconds = self.policy.curve.seconds[self.policy.curve.cap]
        assert refuse.requests
        for index, request in enumerate(refuse.requests):
            assert request is self.lane[index]
            assert request.deadline < self.now + MARGIN * seconds, "refused one that could be saved"
        for _ in refuse.requests:
            self.lane.pop(1)

    def leave(self, leave: Leave) -> None:
        assert 1 <= leave.rows <= self.policy.limit
        assert leave.reason in LEAVES
        self.made += 1
        batch = Batch(self.made, self.lane.pop(leave.rows), leave.reason, self.now)
        batch.instance = self.idle.pop()
        self.fleet.idle -= 1
        self.running.append(batch)
        self.policy.sent(batch, self.fleet, self.now)
        assert len(self.policy._running) <= self.fleet.size, "an instance that is gone lingers"


@settings(deadline=None, max_examples=300)
@given(profiles, st.integers(1, 64), st.integers(1, 3), st.lists(steps, max_size=60))
def test_every_decision_keeps_its_promises(
    profile: dict[int, float], limit: int, instances: int, script: list[tuple[str, ...]]
) -> None:
    server = Checked(Adaptive(limit, profile), instances)
    for step in script:
        server.step(*step)


@example({1: 0.004, 64: 0.0166}, 2, 6, [0.001, 0.0001], [])  # a hold after another
@example({1: 0.004, 64: 0.0166}, 2, 5, [0.0001], [("round", 4, 0.0001, math.inf), ("wake",)])  # and none as nobody came
@example(
    {1: 0.004, 64: 0.0166}, 1, 4, [0.0001, 0.001], [("arrive", None, 0.00390625, 1)]
)  # who has no time for another
@settings(deadline=None, max_examples=100)
@given(
    st.sampled_from([{1: 0.004, 64: 0.0166}, {1: 0.02, 64: 0.0265}, {1: 0.003, 64: 0.1}]),
    st.integers(1, 3),
    st.integers(2, 6),
    st.lists(pauses, min_size=1, max_size=3),
    st.lists(steps, max_size=40),
)
def test_every_decision_keeps_its_promises_once_clients_come_back(
    profile: dict[int, float], instances: int, count: int, habit: list[float], script: list[tuple[str, ...]]
) -> None:
    server = Checked(Adaptive(64, profile), instances)
    for turn in range(40):
        server.step("round", count, habit[turn % len(habit)], math.inf)
    for step in script:
        server.step(*step)


@settings(deadline=None, max_examples=80)
@given(st.integers(3, 6), st.sampled_from([1e-3, 2e-3]), st.floats(0.0, 1.0), st.floats(0.004, 0.012))
def test_no_hold_lasts_past_a_deadlines_slack_whatever_the_deadline(
    count: int, pause: float, share: float, patience: float
) -> None:
    server = Checked(Adaptive(64, {1: 0.0042, 64: 0.0168}), 1)
    for _ in range(300 // count):  # until they are no strangers
        server.step("round", count, pause, math.inf)
    while server.running:
        server.step("end", 0)
    server.step("pass", share * pause)
    server.step("arrive", 0, patience, 1)
    server.step("arrive", 1, patience / 2, 1)


def test_steps_like_these_do_reach_every_kind_of_hold() -> None:
    loop = Checked(Adaptive(64, {1: 0.02, 64: 0.0265}), 1)
    for _ in range(30):
        loop.step("round", 4, 3e-4, math.inf)
        loop.step("wake")
    volleys = Checked(Adaptive(64, {1: 0.02, 64: 0.0265}), 1)
    for _ in range(30):
        volleys.step("volley", 4)
        volleys.step("wake")
        volleys.step("end", 0)
        volleys.step("end", 0)
        volleys.step("pass", 1.0)
    spaced = Checked(Adaptive(64, {1: 0.02, 64: 0.0265}), 2)
    for _ in range(200):
        spaced.step("arrive", None, math.inf, 1)
        spaced.step("pass", 0.0005)
        if len(spaced.running) == 2:
            spaced.step("end", 0)

    assert "return" in loop.holds
    assert volleys.holds == {"volley"}
    assert "spacing" in spaced.holds


@given(profiles, st.integers(1, 64), clients)
def test_a_lone_request_with_no_history_leaves_at_once(
    profile: dict[int, float], limit: int, client: int | None
) -> None:
    server = Checked(Adaptive(limit, profile), 1)
    server.step("arrive", client, math.inf, 1)

    assert not server.holds
    assert [batch.rows for batch in server.running] == [1]


def after_change(factor: float, name: str, count: int, *, settled: int, looked: int) -> float:
    """Throughput of a closed loop after a change of speed to that of a rule new to it; the times in rounds of all."""
    seconds = curve(name)
    changed = [factor * value for value in seconds]
    simulation = Simulation(World(seconds, Workload("closed", count)), Adaptive())
    simulation.run(settled * count)
    simulation.world.seconds = changed
    simulation.run(6 * count, warm_up=0.0)
    after = simulation.run(looked * count, warm_up=0.0)
    fresh = Simulation(World(changed, Workload("closed", count)), Adaptive()).run((40 + looked) * count)
    return after.throughput / fresh.throughput


@settings(deadline=None, max_examples=12)
@given(st.sampled_from([10.0, 0.1]), st.sampled_from(["h200", "flat", "rtx3090"]), st.sampled_from([1, 2, 10, 60]))
@example(10.0, "rtx3090", 10)  # one of a few sent alone to learn had parted the loop for good
def test_a_model_that_becomes_ten_times_slower_or_faster_is_followed_within_a_few_batches(
    factor: float, name: str, count: int
) -> None:
    assert after_change(factor, name, count, settled=40, looked=40) > 0.9


@settings(deadline=None, max_examples=12)
@given(st.sampled_from([1.7, 3.0]), st.sampled_from(["h200", "flat", "rtx3090", "weak"]), st.sampled_from([5, 6, 7, 8]))
@example(1.7, "h200", 8)  # seven and one, in turn: eight looked a little slower a row than seven
@example(3.0, "rtx3090", 6)
def test_clients_that_ride_together_still_do_once_their_model_is_slower(factor: float, name: str, count: int) -> None:
    assert after_change(factor, name, count, settled=200, looked=60) > 0.93


@functools.cache
def fixed_at_turns(count: int, seed: int) -> Sequence[Report]:
    """What fixed settings make of clients that come back one after the other."""
    return [at_turns(Fixed(size, delay), count, seed) for size in (64, 128) for delay in (1e-3, 5e-3)]


def at_turns(policy: Policy, count: int, seed: int) -> Report:
    return Simulation(World(curve("straight"), Workload("turns", count), seed=seed), policy).run(80 * count)


@pytest.mark.parametrize("is_warm", [True, False])
@pytest.mark.parametrize("count", [50, 75, 100, 150])
def test_clients_that_come_back_one_after_the_other_are_not_left_behind(count: int, is_warm: bool) -> None:
    profile = {rows: curve("straight")[rows] for rows in (1, 2, 4, 8, 16, 32, 64, 128, 256)}

    rates, p99s = [], []
    for seed in range(9):
        ours = at_turns(Adaptive(256, profile if is_warm else None), count, seed)
        fixed = fixed_at_turns(count, seed)
        rates.append(ours.throughput / max(each.throughput for each in fixed))
        p99s.append(ours.p99 / min(each.p99 for each in fixed))

    assert statistics.median(rates) > 0.98
    assert statistics.median(p99s) < 1.0 and max(p99s) < 1.3


@settings(deadline=None, max_examples=40)
@given(
    st.sampled_from(["h200", "flat", "rtx3090", "dented", "weak"]),
    st.sampled_from([2, 5, 10, 60]),
    st.dictionaries(st.integers(1, 64), st.floats(3e-4, 0.06), min_size=1, max_size=5),
    st.integers(0, 100),
)
@example("flat", 5, {1: 0.0039, 3: 0.03125, 4: 0.03125}, 0)  # a dent that is not there
@example("flat", 60, {2: 0.001, 3: 0.053, 4: 0.0058, 5: 0.0006}, 0)
@example("h200", 2, {6: 0.020}, 0)  # merging looks worse than it is, and is never offered so many rows
@example("rtx3090", 60, {1: 0.019, 4: 0.0005, 5: 0.0246}, 0)
@example("dented", 60, {3: 0.0006, 6: 0.016}, 0)
def test_a_profile_that_is_wrong_for_this_machine_is_unlearned(
    name: str, count: int, wrong: dict[int, float], seed: int
) -> None:
    def answered(policy: Adaptive) -> float:
        simulation = Simulation(World(curve(name), Workload("closed", count), seed=seed), policy)
        simulation.run(max(600, 40 * count))
        return simulation.run(80 * count).throughput

    policy = Adaptive(256, wrong)
    throughput = answered(policy)
    assume(not policy.curve.is_borne_out)  # by chance it was right of two sizes, and is believed of the others

    assert throughput > 0.8 * answered(Adaptive())


@settings(deadline=None, max_examples=25)
@given(
    st.sampled_from(["h200", "flat", "rtx3090"]),
    st.sampled_from([Workload("closed", 5), Workload("think", 10), Workload("poisson", 0.3), Workload("volleys", 0.2)]),
    st.dictionaries(st.integers(1, 64), st.floats(1e-4, 0.05), min_size=1, max_size=4),
    st.integers(0, 100),
)
@example("flat", Workload("closed", 5), {1: 0.00390625, 3: 0.03125, 4: 0.03125}, 0)
@example("flat", Workload("volleys", 0.2), {1: 0.0001}, 1)
def test_with_learning_frozen_at_a_wrong_curve_it_loses_to_greedy_no_more_than_the_bound_of_a_hold(
    name: str, workload: Workload, wrong: dict[int, float], seed: int
) -> None:
    policy = Uncut(256, wrong)
    policy.curve = Frozen(256, wrong)
    policy.curve.cap = 256  # what is tested is waiting, not the size
    world = World(curve(name), workload, seed=seed)
    greedy = Simulation(world, Triton(256, 0.0)).run(600)
    adaptive = Simulation(world, policy).run(600)

    # merging two parts of at most 20 saves no more than the smaller costs
    worst_hold = SHARE * policy.curve.seconds[10]
    longer = LONGER if workload.clients >= MANY else 1.0  # many may come back one after the other
    assert adaptive.longest_hold <= longer * worst_hold + SLACK
    assert adaptive.mean <= 1.1 * greedy.mean + worst_hold


class Uncut(Adaptive):
    """Sends two volleys together, though the older alone may look better: what is tested is waiting, not the size."""

    def _oldest(self, lane: Lane, rows: int, now: float) -> int:
        return rows


class Frozen(CostCurve):
    """A curve that learns nothing."""

    def learn(self, rows: int, seconds: float) -> bool:
        """Forget what it is told."""
        return False

    def first_of(self, rows: int) -> int:
        """Part nothing, though one after the other may look faster: what is tested is waiting, not the size."""
        return rows


def test_timers_that_ring_a_little_early_do_not_make_the_rule_spin() -> None:
    server = Checked(Adaptive(64, {1: 0.02, 64: 0.0265}), 1)
    while server.held is None:
        server.step("round", 4, 3e-4, math.inf)
        server.step("pass", 0.0)
    server.now = server.held.until - EARLY / 2

    assert isinstance(server.policy.decide(server.lane, server.fleet, server.now), Leave)

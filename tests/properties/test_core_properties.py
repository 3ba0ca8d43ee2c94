"""Any order of events over a real scheduler, batcher and queue: nothing is lost, doubled, mixed up or held for ever."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shoal.config.scheduling import QueuePolicy
from shoal.core.adaptive import Adaptive
from shoal.core.batch import Batch, Stages
from shoal.core.batcher import Batcher, Queue
from shoal.core.cohort import is_cohort
from shoal.core.levels import LevelQueue
from shoal.core.policy import Fixed, Policy, Single
from shoal.core.preferred import Preferred
from shoal.core.queue import RequestQueue
from shoal.core.request import Outcome, Request, State
from shoal.core.scheduler import Scheduler
from shoal.errors import (
    DeadlineExceeded,
    HandlerFailed,
    QueueFull,
    ResponseTimeout,
    ServingError,
    Unavailable,
    WorkerDied,
)
from shoal.payload import Part, Payload, Result
from shoal.telemetry import ModelStats
from tests.support import FakeAlarm, FakeBlock

LIMIT = 6  # requests that may wait
PATIENCE = 30.0  # as the queue's docstring promises
MOST_INSTANCES = 4
MOST_BEGUN = 2  # batches that an instance answers besides the one it runs
WAITING, RUNNING, ENDED = "waiting", "running", "ended"


class Wish(NamedTuple):
    """What a client asks for."""

    rows: int = 1
    group: str = "a"
    priority: int = 0
    patience: float = 0.2
    client: int | None = 1
    manner: str = ""  # "follows": asks again from inside its last answer; "leaves": at the first piece of a stream


WISHES = st.builds(
    Wish,
    rows=st.sampled_from([1, 1, 1, 2, 3]),
    group=st.sampled_from(["a", "a", "b"]),
    priority=st.sampled_from([0, 0, 1]),
    patience=st.sampled_from([math.inf, math.inf, 0.01, 0.3, 0.3, 2.0]),
    client=st.sampled_from([None, 1, 2]),
    manner=st.sampled_from(["", "", "", "follows", "leaves"]),
)


@dataclass(eq=False)
class Record:
    """What is true of one request, kept apart from what the core believes."""

    number: int  # in the order in which they joined: somebody may ask again while another is being taken
    request: Request
    block: FakeBlock
    manner: str
    place: str = WAITING
    times_run: int = 0
    has_left: bool = False
    heard: list[Outcome] = field(default_factory=list)

    @property
    def turn(self) -> tuple[float, int]:
        """Where it stands among its equals: the order in which nobody overtakes."""
        return min(self.request.deadline, self.request.arrived + PATIENCE), self.number


class Worker:
    """An instance that reads what it was sent at once and answers when the machine says so."""

    def __init__(self, id: str, places: int, on_run: Callable[["Worker", Batch], None]) -> None:
        self.id = id
        self.places = places
        self.is_retired = False
        self.times_empty = 0
        self.work: list[tuple[Batch, list[bytes]]] = []  # batches, and what it read of each request
        self.begun: set[Batch] = set()  # of those, the ones beside which it may run another
        self.cancelled: set[bytes] = set()
        self._on_run = on_run

    @property
    def is_free(self) -> bool:
        return len(self.work) == len(self.begun) < MOST_BEGUN

    def run(self, batch: Batch) -> None:
        self._on_run(self, batch)

    def cancel(self, batch: Batch, index: int) -> None:
        assert any(held is batch for held, _ in self.work), "a batch it does not hold was cancelled"
        assert batch.requests[index].state is State.WITHDRAWN
        self.cancelled.add(batch.requests[index].id)


def name_of(request: Request) -> bytes:
    return request.id


HALVINGS = 8  # of a batch of at most 2 ** 8 requests


class Core(RuleBasedStateMachine):
    """One model; subclasses say by which policy."""

    policies: st.SearchStrategy[Policy]
    mixes_priorities = False

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.alarm = FakeAlarm()
        self.records: dict[bytes, Record] = {}
        self.workers: dict[str, Worker] = {}
        self.made = 0
        self.offered = 0
        self.late = 0  # refused on arrival for their deadline
        self.is_draining = False
        self.times_idle = 0

        self.policy: Policy = Single()
        self.attempts = 1
        self.isolates = False
        self.stats = ModelStats("m", "1.0")
        self.scheduler = Scheduler(Batcher(RequestQueue("m", LIMIT), self.policy), self.alarm, self.stats)

    @initialize(
        data=st.data(),
        attempts=st.integers(1, 3),
        places=st.lists(st.integers(1, 2), min_size=1, max_size=3),
        isolates=st.booleans(),
    )
    def begin(self, data: st.DataObject, attempts: int, places: list[int], isolates: bool) -> None:
        self.policy = data.draw(self.policies)
        self.attempts = attempts
        self.isolates = isolates
        batcher = Batcher(self.make_queue(data), self.policy)
        self.scheduler = Scheduler(batcher, self.alarm, self.stats, max_attempts=attempts, isolates=isolates)
        self.scheduler.most_begun = MOST_BEGUN
        for number in places:
            self.add_worker(number)

    def make_queue(self, data: st.DataObject) -> Queue:
        return RequestQueue("m", LIMIT)

    # -- what may happen -------------------------------------------------------------------------------------------

    @precondition(lambda self: not self.is_draining)
    @rule(wishes=st.lists(WISHES, min_size=1, max_size=5), is_turn=st.booleans())
    def ask(self, wishes: list[Wish], is_turn: bool) -> None:
        for wish in wishes:
            self.offer(wish)
        if is_turn:
            self.turn()

    @precondition(lambda self: not self.is_draining)
    @rule(wishes=st.lists(WISHES, min_size=2, max_size=5))
    def ask_together(self, wishes: list[Wish]) -> None:
        """What can share a batch, all within one turn."""
        for wish in wishes:
            self.offer(wish._replace(group="a", priority=0))
        self.turn()

    def offer(self, wish: Wish) -> None:
        self.offered = number = self.offered + 1
        block = FakeBlock()
        request = Request(
            Payload([Part("body", "", block)]),
            self.hear,
            self.now,
            id=b"%d" % number,
            rows=wish.rows,
            group=wish.group,
            priority=wish.priority,
            deadline=self.now + wish.patience,
            client=wish.client,
        )
        queue = self.scheduler.batcher.queue
        waiting = len(queue)
        try:
            self.scheduler.offer(request, self.now)
        except QueueFull:
            assert len(queue) >= LIMIT, "refused although there was room"
            assert not block.released, "something was taken of one that was refused"
        except DeadlineExceeded:
            assert waiting, "refused for its deadline although nobody is before it"
            assert request.deadline < math.inf, "refused for a deadline it has not"
            assert not block.released, "something was taken of one that was refused"
            self.late += 1
        else:
            assert len(queue) <= max(waiting, LIMIT), "admitted over the limit"
            self.records[request.id] = Record(len(self.records), request, block, wish.manner)

    @precondition(lambda self: self.records)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        record = self.records[data.draw(st.sampled_from(sorted(self.records)))]
        had_ended = record.request.has_ended
        self.leave(record)
        assert had_ended or record.request.state is State.WITHDRAWN

    @rule()
    def turn(self) -> None:
        """The loop has run what was ready."""
        if self.alarm.is_due:
            self.feed()

    @rule(seconds=st.sampled_from([0.0001, 0.01, 0.01, 0.05, 0.05, 0.3, 0.5, 40.0]), is_late=st.booleans())
    def pass_time(self, seconds: float, is_late: bool) -> None:
        self.now += seconds
        if self.alarm.time <= self.now and not is_late:  # a late timer rings after whatever happens next
            self.feed()

    @precondition(lambda self: len(self.workers) < MOST_INSTANCES)
    @rule(places=st.integers(1, 2))
    def join(self, places: int) -> None:
        self.add_worker(places)

    @precondition(lambda self: self.busy())
    @rule(data=st.data(), answers=st.lists(st.sampled_from(["whole", "whole", "whole", "failure", ""]), max_size=6))
    def end_batch(self, data: st.DataObject, answers: list[str]) -> None:
        """A worker finishes its oldest batch, or one that has begun: answers, failures, or nothing at all for some."""
        worker = data.draw(st.sampled_from(self.busy()))
        self.finish(worker, answers, data.draw(st.integers(0, min(len(worker.begun), len(worker.work) - 1))))

    @precondition(lambda self: any(len(worker.work) > len(worker.begun) for worker in self.workers.values()))
    @rule(data=st.data(), is_said_twice=st.booleans())
    def begin_answers(self, data: st.DataObject, is_said_twice: bool) -> None:
        """What is left of a worker's oldest batch comes beside others."""
        able = [worker for worker in self.workers.values() if len(worker.work) > len(worker.begun)]
        worker = data.draw(st.sampled_from(able))
        batch, _ = worker.work[len(worker.begun)]
        if not is_cohort(batch.requests[0]):
            worker.begun.add(batch)
        for _ in range(1 + is_said_twice):
            self.scheduler.begun(worker, batch, self.now)

    @precondition(lambda self: self.busy())
    @rule(data=st.data(), is_last=st.booleans())
    def stream(self, data: st.DataObject, is_last: bool) -> None:
        worker = data.draw(st.sampled_from(self.busy()))
        batch, read = worker.work[0]
        index = data.draw(st.integers(0, len(read) - 1))
        batch.deliver(index, Result(read[index]), is_last, self.now)

    @precondition(lambda self: self.workers)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        worker = self.workers[data.draw(st.sampled_from(sorted(self.workers)))]
        self.kill(worker, is_hung=False)

    @precondition(lambda self: self.busy())
    @rule(data=st.data(), is_hung=st.booleans(), is_replaced=st.booleans())
    def die_at_work(self, data: st.DataObject, is_hung: bool, is_replaced: bool) -> None:
        worker = data.draw(st.sampled_from(self.busy()))
        self.kill(worker, is_hung=is_hung)
        if is_replaced:
            self.add_worker(worker.places)
            self.turn()

    @precondition(lambda self: any(not worker.is_retired for worker in self.workers.values()))
    @rule(data=st.data())
    def retire(self, data: st.DataObject) -> None:
        working = sorted(worker.id for worker in self.workers.values() if not worker.is_retired)
        worker = self.workers[data.draw(st.sampled_from(working))]

        def emptied() -> None:
            assert not worker.work, "said to be empty while it holds a batch"
            worker.times_empty += 1

        worker.is_retired = True
        self.scheduler.retire(worker, emptied)

    @precondition(lambda self: any(worker.times_empty for worker in self.workers.values()))
    @rule()
    def let_go(self) -> None:
        """Emptied workers end their processes."""
        for worker in [worker for worker in self.workers.values() if worker.times_empty]:
            self.kill(worker, is_hung=False)

    @precondition(lambda self: len(self.waiting()) > 4)
    @rule()
    def give_up(self) -> None:
        """Nobody will come: what waits is ended."""
        waited = self.waiting()
        self.scheduler.fail_waiting(lambda: Unavailable("no workers"), self.now)
        assert all(record.place == ENDED for record in waited)

    @precondition(lambda self: not self.is_draining and self.offered > 12)
    @rule()
    def drain(self) -> None:
        self.is_draining = True
        self.scheduler.when_idle(self.idle)

    def teardown(self) -> None:
        """Drain ends: whatever the story was, with one worker that answers everything comes to its end."""
        if not self.is_draining:
            self.is_draining = True
            self.scheduler.when_idle(self.idle)
        if not any(not worker.is_retired for worker in self.workers.values()):
            self.add_worker(1)
        for _ in range(500):
            if self.alarm.is_due:
                self.feed()
            elif busy := self.busy():
                self.finish(busy[0], ["whole"] * 10)
            elif self.alarm.time < math.inf:
                self.now = max(self.now, self.alarm.time)
                self.feed()
            else:
                break
        assert self.times_idle == 1, "the drain did not end"
        assert all(record.place == ENDED for record in self.records.values()), "a request was lost"
        self.check()

    # -- how it happens --------------------------------------------------------------------------------------------

    def add_worker(self, places: int) -> None:
        self.made += 1
        worker = Worker(f"w{self.made}", places, self.begin_batch)
        self.workers[worker.id] = worker
        self.scheduler.join(worker)

    def feed(self) -> None:
        self.alarm.is_due = False
        self.alarm.time = math.inf
        self.scheduler.feed(self.now)

    def begin_batch(self, worker: Worker, batch: Batch) -> None:
        """A batch reaches a worker: every rule about who may travel is checked here."""
        records = [self.records[request.id] for request in batch.requests]
        assert not worker.is_retired, "a retiring instance was sent a batch"
        assert len(worker.work) - len(worker.begun) < worker.places, "an instance holds more batches than it has places"
        if len(worker.work) == len(worker.begun):
            others = [other for other in self.workers.values() if other.is_free and not other.is_retired]
            assert worker.is_free, "an instance was given more than it may answer"
            assert len(worker.begun) == min(len(other.begun) for other in others), "another has less to answer"
        assert batch.instance == worker.id
        assert batch.rows == sum(request.rows for request in batch.requests)
        assert batch.rows <= self.policy.limit or len(batch) == 1, "a batch is over its limit"
        assert len({request.group for request in batch.requests}) == 1, "two groups in one batch"
        if not self.mixes_priorities:
            assert len({request.priority for request in batch.requests}) == 1, "two priorities in one batch"
        for record in records:
            assert record.place == WAITING, "a request runs that did not wait"
            assert record.request.deadline > self.now, "an expired request reached a worker"
            halvings = HALVINGS if self.isolates else 0
            assert record.times_run < self.attempts + halvings, "a request was tried too often"
            record.place = RUNNING
            record.times_run += 1
            record.block.readers += 1
        self.check_order(records)
        worker.work.append((batch, [name_of(request) for request in batch.requests]))

    def check_order(self, left: list[Record]) -> None:
        first = left[0].request
        for other in self.waiting():
            request = other.request
            assert request.priority >= first.priority, "a greater priority left first"
            if request.priority != first.priority:
                continue
            if self.isolates and (other.times_run or left[0].times_run > 1):
                continue  # those under suspicion run apart, in an order of their own
            if request.group != first.group:
                is_first_known = not any(r.times_run for r in self.waiting() if r.request.group == request.group)
                if is_first_known:
                    assert other.turn[0] >= left[0].turn[0], "another group was due before"
            elif other.times_run:
                assert all(record.times_run > 1 for record in left), "one that had left already was overtaken"
            else:
                turns = [record.turn for record in left if record.times_run == 1]
                assert not turns or other.turn > max(turns), "an equal was overtaken"

    def finish(self, worker: Worker, answers: list[str], place: int = 0) -> None:
        batch, read = worker.work.pop(place)
        worker.begun.discard(batch)
        self.let_read(batch)
        batch.stages = Stages(0.001, 0.002, 0.001)
        self.scheduler.freed(worker, batch, self.now, self.now)
        for index, answer in enumerate(answers[: len(read)]):
            if answer == "whole":
                batch.deliver(index, Result(read[index]), True, self.now)
            elif answer == "failure":
                batch.deliver(index, HandlerFailed("it raised"), False, self.now)  # an error is the end, said or not
        self.scheduler.closed(batch, self.now, lambda: HandlerFailed("no answer"))
        for request in batch.requests:
            assert request.has_ended or (self.isolates and len(batch) > 1), "a request of a closed batch goes on"
        self.settle(batch)

    def kill(self, worker: Worker, *, is_hung: bool) -> None:
        del self.workers[worker.id]
        hung = worker.work[0][0] if is_hung and worker.work else None
        for batch, _ in worker.work:
            self.let_read(batch)
        self.scheduler.leave(worker, self.now, lambda batch: self.why(batch, hung), hung=hung)
        for batch, _ in worker.work:
            assert batch.is_closed
            is_over = all(request.has_ended for request in batch.requests)
            assert batch is not hung or is_over or (self.isolates and len(batch) > 1), "a hung batch goes on"
            self.settle(batch)

    def why(self, batch: Batch, hung: Batch | None) -> ServingError:
        return ResponseTimeout("too slow") if batch is hung else WorkerDied("gone")

    def let_read(self, batch: Batch) -> None:
        """No worker reads this batch any more."""
        for request in batch.requests:
            self.records[request.id].block.readers -= 1

    def settle(self, batch: Batch) -> None:
        """Bring the truth up to date once a batch is over: each of it has ended, or waits again."""
        for request in batch.requests:
            record = self.records[request.id]
            if record.place == RUNNING and record.request.state is State.QUEUED:
                assert not record.heard, "a stream was begun again"
                record.place = WAITING
            elif record.has_left:
                record.place = ENDED

    def hear(self, request: Request, outcome: Outcome, is_last: bool) -> None:
        record = self.records[request.id]
        assert record.place != ENDED, "answered after its end"
        assert not record.has_left, "answered after it left"
        record.heard.append(outcome)
        if isinstance(outcome, Result):
            assert bytes(outcome.body) == name_of(request), "somebody else's answer"
            assert record.place == RUNNING, "answered by nobody"
        else:
            assert is_last, "an error that is not the end"
        if is_last:
            record.place = ENDED
            if record.manner == "follows" and not self.is_draining:
                self.offer(Wish())
        elif record.manner == "leaves":
            self.leave(record)

    def leave(self, record: Record) -> None:
        if record.place != ENDED:
            record.has_left = True
        if record.place == WAITING:
            record.place = ENDED
        self.scheduler.withdraw(record.request, self.now)

    def idle(self) -> None:
        self.times_idle += 1
        assert not self.waiting() and not self.busy(), "idle with work to do"
        assert all(record.request.has_ended or record.place == ENDED for record in self.records.values())

    # -- what is always true ---------------------------------------------------------------------------------------

    def waiting(self) -> list[Record]:
        return [record for record in self.records.values() if record.place == WAITING]

    def busy(self) -> list[Worker]:
        return [worker for worker in self.workers.values() if worker.work]

    def check(self) -> None:
        self.every_request_is_where_it_should_be()
        self.lent_memory_comes_back_once_and_only_when_nobody_reads_it()
        self.the_fleet_is_the_truth()

    @invariant()
    def every_request_is_where_it_should_be(self) -> None:
        for record in self.records.values():
            if record.place == WAITING:
                assert record.request.state is State.QUEUED
            elif record.place == RUNNING and not record.has_left:
                assert record.request.state is State.RUNNING
        assert len(self.scheduler.batcher.queue) == len(self.waiting()), "the queue miscounts"

    @invariant()
    def the_admitted_limit_holds_but_for_those_taken_back(self) -> None:
        admitted = [record for record in self.waiting() if not record.times_run]
        assert len(admitted) <= LIMIT

    @invariant()
    def lent_memory_comes_back_once_and_only_when_nobody_reads_it(self) -> None:
        held = {
            request.id for worker in self.workers.values() for batch, _ in worker.work for request in batch.requests
        }
        for id, record in self.records.items():
            is_over = record.place == ENDED and id not in held
            assert record.block.released == is_over, (record.place, record.block.released)

    @invariant()
    def the_fleet_is_the_truth(self) -> None:
        working = [worker for worker in self.workers.values() if not worker.is_retired]
        fleet = self.scheduler.batcher.fleet
        assert fleet.size == len(working)
        assert fleet.idle == sum(worker.is_free for worker in working)
        assert self.scheduler.running == sum(len(worker.work) for worker in self.workers.values())

    @invariant()
    def a_retired_worker_is_told_once_when_it_is_empty(self) -> None:
        for worker in self.workers.values():
            assert worker.times_empty == (worker.is_retired and not worker.work)

    @invariant()
    def whoever_waits_is_looked_at_again(self) -> None:
        if self.alarm.is_due or not (waiting := self.waiting()):
            return
        nearest = min(record.request.deadline for record in waiting)
        assert self.alarm.time <= nearest, "a deadline would pass unseen"
        if self.scheduler.batcher.fleet.idle:
            assert self.alarm.time < math.inf, "somebody waits for ever beside an idle instance"

    @invariant()
    def a_drain_is_over_once_and_only_when_nothing_is_left(self) -> None:
        assert self.times_idle <= 1
        if self.is_draining and not self.alarm.is_due and not self.waiting() and not self.busy():
            assert self.times_idle == 1

    @invariant()
    def what_ended_was_counted(self) -> None:
        states = [record.request.state for record in self.records.values()]
        assert self.stats.withdrawn == states.count(State.WITHDRAWN)
        assert self.scheduler.batcher.expired == states.count(State.EXPIRED) + self.late

    @invariant()
    def a_worker_is_told_whom_nobody_waits_for(self) -> None:
        for worker in self.workers.values():
            left = {r.id for batch, _ in worker.work for r in batch.requests if r.state is State.WITHDRAWN}
            assert left <= worker.cancelled


class SingleCore(Core):
    policies = st.builds(Single)

    @invariant()
    def nobody_waits_while_an_instance_is_idle(self) -> None:
        if not self.alarm.is_due and self.waiting():
            assert not self.scheduler.batcher.fleet.idle


class FixedCore(Core):
    policies = st.builds(Fixed, st.sampled_from([4, 8, 3, 1]), st.sampled_from([0.05, 0.5, 0.0]))


class AdaptiveCore(Core):
    policies = st.builds(
        Adaptive,
        st.sampled_from([8, 4, 3]),
        st.sampled_from([{1: 0.01, 8: 0.02}, {1: 0.02, 8: 0.2}, {1: 0.1, 8: 0.12}, None]),
    )


class PreferredCore(Core):
    """Two levels with queue policies; the second is what any other priority means."""

    policies = st.builds(
        Preferred,
        st.sampled_from([8, 4, 3]),
        st.sampled_from([[], [2], [1, 3]]),
        st.sampled_from([0.0, 0.05, 0.5]),
    )
    mixes_priorities = True
    levels: list[QueuePolicy]

    def make_queue(self, data: st.DataObject) -> Queue:
        policies = st.builds(
            QueuePolicy,
            timeout_action=st.sampled_from(["REJECT", "DELAY"]),
            default_timeout_microseconds=st.sampled_from([0, 30_000, 400_000]),
        )
        self.levels = data.draw(st.lists(policies, min_size=2, max_size=2))
        return LevelQueue("m", LIMIT, self.levels, 2)

    def place_of(self, record: Record) -> tuple[int, bool, int]:
        level = 0 if record.request.priority == 1 else 1
        return level, self.is_over_time(record, "DELAY"), record.number

    def is_over_time(self, record: Record, action: str) -> bool:
        policy = self.levels[0 if record.request.priority == 1 else 1]
        timeout = policy.default_timeout_microseconds / 1e6
        return bool(timeout) and policy.timeout_action == action and record.request.arrived + timeout <= self.now

    def check_order(self, left: list[Record]) -> None:
        fresh = [record for record in left if record.times_run == 1]
        waiting = [record for record in self.waiting() if not record.times_run]
        assert left[len(left) - len(fresh) :] == fresh, "one that had left already stands behind others"
        assert not fresh or len(waiting) == len(self.waiting()), "one that had left already was overtaken"
        assert fresh == sorted(fresh + waiting, key=self.place_of)[: len(fresh)], "somebody was overtaken"
        assert not any(self.is_over_time(record, "REJECT") for record in fresh), "one that should be rejected left"
        if len(left) == len(fresh) and waiting:
            after = min(waiting, key=self.place_of).request
            rows = sum(record.request.rows for record in left)
            if not self.policy.delay and self.policy.sizes == [self.policy.limit]:  # type: ignore[attr-defined]
                is_full = rows + after.rows > self.policy.limit or rows == self.policy.limit
                assert is_full or after.group != left[0].request.group, "a batch left with room for the next"

    @invariant()
    def nobody_waits_past_a_time_out(self) -> None:
        if self.alarm.is_due:
            return
        for record in self.waiting():
            policy = self.levels[0 if record.request.priority == 1 else 1]
            if policy.default_timeout_microseconds and policy.timeout_action == "REJECT" and not record.times_run:
                assert self.alarm.time <= record.request.arrived + policy.default_timeout_microseconds / 1e6


TestSingle = SingleCore.TestCase
TestFixed = FixedCore.TestCase
TestAdaptive = AdaptiveCore.TestCase
TestPreferred = PreferredCore.TestCase
TestSingle.settings = TestFixed.settings = TestAdaptive.settings = TestPreferred.settings = settings(
    max_examples=100,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)

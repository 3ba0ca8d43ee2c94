"""Any order of events over sequences: none are mixed, none run twice at once, none overtake themselves, all end."""

import math
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shoal.config.model import Batching
from shoal.config.scheduling import scheduling_of
from shoal.core.batch import Batch, Stages
from shoal.core.choice import batcher_for
from shoal.core.request import QUEUED, InSequence, Outcome, Request, State
from shoal.core.scheduler import Scheduler
from shoal.errors import HandlerFailed, InvalidInput, QueueFull, SequenceLost, Unavailable, WorkerDied
from shoal.payload import Part, Payload, Result
from shoal.telemetry import ModelStats
from tests.support import FakeAlarm, FakeBlock

LIMIT = 12
IDLE = 1.0
ROWS = 3
STRATEGIES: list[dict[str, Any]] = [
    {},
    {"direct": {"minimum_slot_utilization": 0.6, "max_queue_delay_microseconds": 50_000}},
    {"oldest": {"max_candidate_sequences": 4}},
    {"oldest": {"preferred_batch_size": [2], "max_queue_delay_microseconds": 50_000}},
]


@dataclass(eq=False)
class Story:
    """One sequence as its client sees it."""

    id: int
    sent: int = 0
    has_end: bool = False
    is_broken: bool = False  # a request of it ended in another way than by running
    quiet_since: float = 0.0
    open: int = 0  # requests that have not ended
    joined: "Story | None" = None  # one that had not ended when this began: they share a slot, and their end

    def shares_a_broken_one(self) -> bool:
        return self.joined is not None and (self.joined.is_broken or self.joined.shares_a_broken_one())


@dataclass(eq=False)
class Record:
    """What is true of one request."""

    request: Request
    block: FakeBlock
    story: Story
    index: int  # within its story
    times_run: int = 0
    has_left: bool = False
    heard: list[Outcome] = field(default_factory=list)
    has_ended: bool = False


class Worker:
    """An instance with one cell of state for each slot."""

    places = 2  # what would fit is not sent: state is used by one execution at a time

    def __init__(self, id: str, machine: "Sequences") -> None:
        self.id = id
        self.machine = machine
        self.state: dict[int, tuple[Story, int]] = {}
        self.batch: Batch | None = None
        self.is_retired = False

    def run(self, batch: Batch) -> None:
        assert self.batch is None, "two executions at once"
        assert not self.is_retired, "a retiring instance was sent a batch"
        self.batch = batch
        self.machine.begun(self, batch)

    def cancel(self, batch: Batch, index: int) -> None:
        assert batch is self.batch
        assert batch.requests[index].state is State.WITHDRAWN


class Sequences(RuleBasedStateMachine):
    """A few clients, each with a sequence after the other under one id."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.alarm = FakeAlarm()
        self.records: dict[Request, Record] = {}
        self.stories: dict[int, Story] = {}
        self.workers: dict[str, Worker] = {}
        self.made = 0
        self.is_direct = True
        self.stats = ModelStats("m", "1")
        self.on_hear: Callable[[Record], None] | None = None
        self.scheduler: Scheduler | None = None

    @initialize(strategy=st.sampled_from(STRATEGIES), workers=st.integers(1, 2))
    def begin(self, strategy: dict[str, Any], workers: int) -> None:
        scheduling = scheduling_of(
            {
                "max_batch_size": ROWS,
                "sequence_batching": {"max_sequence_idle_microseconds": int(1e6 * IDLE), **strategy},
            },
            "m",
        )
        self.is_direct = "oldest" not in strategy
        batcher = batcher_for("m", LIMIT, Batching(), scheduling)
        self.scheduler = Scheduler(batcher, self.alarm, self.stats, max_attempts=3, isolates=True)
        for _ in range(workers):
            self.join()

    @property
    def loop(self) -> Scheduler:
        assert self.scheduler is not None
        return self.scheduler

    # -- what may happen -------------------------------------------------------------------------------------------

    @rule(
        id=st.integers(1, 7),
        flags=st.sampled_from(["", "", "", "", "s", "s", "e", "se"]),
        patience=st.sampled_from([math.inf, math.inf, math.inf, 0.3]),
        timeout=st.sampled_from([0.0, 0.0, 0.2]),
        group=st.sampled_from(["x", "x", "x", "y"]),
        is_turn=st.booleans(),
    )
    def ask(self, id: int, flags: str, patience: float, timeout: float, group: str, is_turn: bool) -> None:
        self.send(id, "s" in flags, "e" in flags, patience, timeout, group)
        if is_turn:
            self.turn()

    @rule(count=st.integers(2, 5), length=st.integers(1, 3))
    def ask_whole(self, count: int, length: int) -> None:
        """Several clients send all of a sequence at once, one after the other."""
        for index in range(length):
            for id in range(1, count + 1):
                self.send(id, index == 0, index == length - 1)
        self.turn()

    @rule()
    def turn(self) -> None:
        if self.alarm.is_due:
            self.feed()

    @rule(seconds=st.sampled_from([0.01, 0.05, 0.3, 0.7, 1.5]), is_late=st.booleans())
    def pass_time(self, seconds: float, is_late: bool) -> None:
        self.now += seconds
        if self.alarm.time <= self.now and not is_late:
            self.feed()

    @precondition(lambda self: self.busy())
    @rule(data=st.data(), fails=st.booleans(), follows=st.booleans())
    def finish(self, data: st.DataObject, fails: bool, follows: bool) -> None:
        worker = data.draw(st.sampled_from(self.busy()))
        if follows:  # a client sends its next from inside the answer
            self.on_hear = lambda record: self.send(record.story.id, False, False)
        self.end(worker, fails=fails)
        self.on_hear = None

    @precondition(lambda self: len(self.workers) < 4)
    @rule()
    def join(self) -> None:
        self.made += 1
        worker = Worker(f"w{self.made}", self)
        self.workers[worker.id] = worker
        self.loop.join(worker)

    @precondition(lambda self: self.workers)
    @rule(data=st.data(), leaves=st.booleans())
    def die(self, data: st.DataObject, leaves: bool) -> None:
        worker = self.workers.pop(data.draw(st.sampled_from(sorted(self.workers))))
        if leaves:  # a client leaves with everything it has when it hears of it
            self.on_hear = lambda record: self.leave_all(record.story)
        self.lose_state(worker)
        for request in worker.batch.requests if worker.batch else ():
            self.records[request].block.readers -= 1
        self.loop.leave(worker, self.now, lambda batch: WorkerDied("gone"))
        self.turn()
        self.on_hear = None

    @precondition(lambda self: any(not worker.is_retired for worker in self.workers.values()))
    @rule(data=st.data())
    def retire(self, data: st.DataObject) -> None:
        working = sorted(worker.id for worker in self.workers.values() if not worker.is_retired)
        worker = self.workers[data.draw(st.sampled_from(working))]
        worker.is_retired = True
        self.lose_state(worker)
        self.loop.retire(worker, lambda: None)
        self.turn()

    @precondition(lambda self: self.open())
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        record = data.draw(st.sampled_from(self.open()))
        self.leave(record)
        assert record.request.state is State.WITHDRAWN
        self.turn()
        for other in self.open():
            if other.story is record.story:
                assert other.request.state is not QUEUED, "a cancelled sequence has something waiting"

    @rule()
    def give_up(self) -> None:
        self.loop.fail_waiting(lambda: Unavailable("no workers"), self.now)
        assert not len(self.loop.batcher.queue)

    def teardown(self) -> None:
        """With one worker that answers, and clients that end their sequences or fall silent, everything ends."""
        if self.scheduler is None:
            return
        if not any(not worker.is_retired for worker in self.workers.values()):
            self.join()
        idle: list[bool] = []
        self.loop.when_idle(lambda: idle.append(True))
        for _ in range(2000):
            if self.alarm.is_due:
                self.feed()
            elif busy := self.busy():
                self.end(busy[0], fails=False)
            elif self.alarm.time < math.inf:
                self.now = max(self.now, self.alarm.time)
                self.feed()
            else:
                break
        assert idle == [True], "the drain did not end"
        assert all(record.has_ended or record.has_left for record in self.records.values()), "a request was lost"
        self.memory_comes_back_once()
        states = Counter(record.request.state for record in self.records.values())
        assert self.stats.withdrawn == states[State.WITHDRAWN]
        assert self.stats.expired == states[State.EXPIRED]
        assert self.stats.answered == states[State.ANSWERED]
        assert self.stats.failed == states[State.FAILED]

    # -- how it happens --------------------------------------------------------------------------------------------

    def send(
        self,
        id: int,
        start: bool,
        end: bool,
        patience: float = math.inf,
        timeout: float = 0.0,
        group: str = "x",
    ) -> None:
        block = FakeBlock()
        request = Request(
            Payload([Part("body", "", block)]),
            self.hear,
            self.now,
            group=group,
            deadline=self.now + patience,
            timeout=timeout,
            sequence=InSequence(id, start, end),
        )
        story = self.stories.get(id)
        may_go_on = story is not None and not story.has_end and not story.is_broken
        is_surely_live = (
            may_go_on
            and story is not None
            and not story.shares_a_broken_one()
            and (story.open or self.now < story.quiet_since + IDLE)
        )
        try:
            self.loop.offer(request, self.now)
        except QueueFull:
            assert len(self.loop.batcher.queue) >= LIMIT
            assert not block.released
            return
        except InvalidInput:
            assert not start, "a START was refused"
            assert not is_surely_live, "a live sequence was refused"
            return
        assert start or may_go_on, "a request without START began a sequence"
        if start or story is None:
            joined = story if may_go_on else None
            story = self.stories[id] = Story(id, quiet_since=self.now, joined=joined)
        record = Record(request, block, story, story.sent)
        story.sent += 1
        story.open += 1
        story.has_end = end
        self.records[request] = record

    def feed(self) -> None:
        self.alarm.is_due = False
        self.alarm.time = math.inf
        self.loop.feed(self.now)

    def begun(self, worker: Worker, batch: Batch) -> None:
        assert len(batch.slots) == len(batch.requests)
        assert len(set(batch.slots)) == len(batch.slots), "two requests of one slot"
        assert len({request.group for request in batch.requests}) == 1
        assert len(batch) <= ROWS
        if self.is_direct:
            assert list(batch.slots) == sorted(batch.slots)
            assert batch.slots[-1] < ROWS
        running = Counter(
            request.sequence.id
            for other in self.workers.values()
            if other.batch is not None
            for request in other.batch.requests
            if request.sequence is not None
        )
        assert max(running.values()) == 1, "one sequence runs twice at once"
        for request, slot in zip(batch.requests, batch.slots, strict=True):
            record = self.records[request]
            record.times_run += 1
            record.block.readers += 1
            assert record.times_run == 1, "a request of a sequence ran twice"
            assert request.deadline > self.now
            mark = request.sequence
            assert mark is not None
            if not mark.start:
                assert worker.state[slot] == (record.story, record.index - 1), "state of another sequence"
            else:
                assert record.index == 0
            worker.state[slot] = (record.story, record.index)

    def end(self, worker: Worker, *, fails: bool) -> None:
        batch, worker.batch = worker.batch, None
        assert batch is not None
        for request in batch.requests:
            self.records[request].block.readers -= 1
        batch.stages = Stages()
        requests = list(batch.requests)
        self.loop.freed(worker, batch, self.now, self.now)
        for index in range(0 if fails else len(requests)):
            batch.deliver(index, Result(b"fine"), True, self.now)
        self.loop.closed(batch, self.now, lambda: HandlerFailed("bad"))

    def hear(self, request: Request, outcome: Outcome, is_last: bool) -> None:
        record = self.records[request]
        assert not record.has_ended and not record.has_left, "answered after its end"
        record.has_ended = True
        record.story.open -= 1
        record.story.quiet_since = self.now
        record.heard.append(outcome)
        if not isinstance(outcome, Result | HandlerFailed):
            record.story.is_broken = True
        if self.on_hear is not None:
            self.on_hear(record)

    def lose_state(self, worker: Worker) -> None:
        for story, _ in worker.state.values():
            story.is_broken = True

    def leave(self, record: Record) -> None:
        record.has_left = True
        record.story.is_broken = True
        record.story.open -= 1
        self.loop.withdraw(record.request, self.now)

    def leave_all(self, story: Story) -> None:
        for record in self.open():
            if record.story is story and not record.request.has_ended:
                self.leave(record)

    def open(self) -> list[Record]:
        return [record for record in self.records.values() if not record.has_ended and not record.has_left]

    def busy(self) -> list[Worker]:
        return [worker for worker in self.workers.values() if worker.batch is not None]

    # -- what is always true ---------------------------------------------------------------------------------------

    @invariant()
    def the_queue_counts_who_waits(self) -> None:
        if self.scheduler is not None:
            waiting = [record for record in self.open() if record.request.state is QUEUED]
            assert len(self.loop.batcher.queue) == len(waiting)

    @invariant()
    def memory_comes_back_once(self) -> None:
        held = {request for worker in self.workers.values() if worker.batch for request in worker.batch.requests}
        for request, record in self.records.items():
            is_over = request.has_ended and request not in held
            assert record.block.released == is_over

    @invariant()
    def the_fleet_is_the_truth(self) -> None:
        if self.scheduler is not None:
            working = [worker for worker in self.workers.values() if not worker.is_retired]
            assert self.loop.batcher.fleet.size == len(working)
            assert self.loop.batcher.fleet.idle == sum(worker.batch is None for worker in working)

    @invariant()
    def a_deadline_is_not_missed(self) -> None:
        if not self.alarm.is_due:
            for record in self.open():
                if record.request.state is QUEUED:
                    assert self.alarm.time <= record.request.deadline


TestSequences = Sequences.TestCase
TestSequences.settings = settings(
    max_examples=150,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


class Adder:
    """An instance that keeps a sum for each slot, as a stateful model would."""

    places = 1

    def __init__(self, id: str) -> None:
        self.id = id
        self.sums: dict[int, int] = {}
        self.batch: Batch | None = None

    def run(self, batch: Batch) -> None:
        self.batch = batch

    def cancel(self, batch: Batch, index: int) -> None:
        raise AssertionError("nobody leaves here")

    def answers(self, batch: Batch) -> list[bytes]:
        results = []
        for request, slot in zip(batch.requests, batch.slots, strict=True):
            mark, part = request.sequence, request.payload.parts[0].data
            assert mark is not None and isinstance(part, bytes)
            self.sums[slot] = (0 if mark.start else self.sums[slot]) + int(part)
            results.append(b"%d" % self.sums[slot])
        return results


@pytest.mark.parametrize("strategy", [{"direct": {}}, {"oldest": {"max_candidate_sequences": 40}}])
@pytest.mark.parametrize("seed", range(4))
def test_a_hundred_sequences_add_up_while_instances_are_killed(strategy: dict[str, Any], seed: int) -> None:
    """Each client adds its own numbers; one whose sequence is lost begins again. Every sum comes out right."""
    rng = random.Random(seed)
    length, clients = 12, 100
    scheduling = scheduling_of({"max_batch_size": 16, "sequence_batching": strategy}, "m")
    alarm = FakeAlarm()
    scheduler = Scheduler(batcher_for("m", 1000, Batching(), scheduling), alarm, ModelStats("m", "1"))
    workers = {f"w{number}": Adder(f"w{number}") for number in range(3)}
    for worker in workers.values():
        scheduler.join(worker)
    numbers = {client: [rng.randrange(1000) for _ in range(length)] for client in range(1, clients + 1)}
    sums: dict[int, list[int]] = {client: [] for client in numbers}
    done: set[int] = set()
    restarts, now = 0, 0.0

    def send(client: int) -> None:
        index = len(sums[client])
        mark = InSequence(client, index == 0, index == length - 1)
        data = b"%d" % numbers[client][index]
        scheduler.offer(Request(Payload([Part("n", "", data)]), hear, now, sequence=mark), now)

    def hear(request: Request, outcome: Outcome, is_last: bool) -> None:
        nonlocal restarts
        assert request.sequence is not None
        client = int(request.sequence.id)
        if isinstance(outcome, Result):
            sums[client].append(int(bytes(outcome.body)))
        else:
            assert isinstance(outcome, WorkerDied | SequenceLost)
            sums[client] = []
            restarts += 1
        if len(sums[client]) == length:
            done.add(client)
        else:
            try:
                send(client)
            except InvalidInput:  # the sequence went with its instance while nothing of it was there
                sums[client] = []
                restarts += 1
                send(client)

    for client in numbers:
        send(client)
    made = len(workers)
    for step in range(20_000):
        if len(done) == clients:
            break
        if alarm.is_due or alarm.time <= now:
            alarm.is_due, alarm.time = False, math.inf
            scheduler.feed(now)
        now += 0.001
        busy = [worker for worker in workers.values() if worker.batch is not None]
        if step % 15 == 14:
            victim = workers.pop(rng.choice(sorted(workers)))
            scheduler.leave(victim, now, lambda batch: WorkerDied("killed"))
            made += 1
            workers[f"w{made}"] = Adder(f"w{made}")
            scheduler.join(workers[f"w{made}"])
        elif busy:
            worker = rng.choice(busy)
            batch, worker.batch = worker.batch, None
            assert batch is not None
            results = worker.answers(batch)
            batch.stages = Stages()
            scheduler.freed(worker, batch, now, now)
            for index, result in enumerate(results):
                batch.deliver(index, Result(result), True, now)
            scheduler.closed(batch, now, lambda: HandlerFailed("no answer"))
    assert len(done) == clients
    assert restarts > 0
    for client, given in numbers.items():
        assert sums[client] == [sum(given[: index + 1]) for index in range(length)]

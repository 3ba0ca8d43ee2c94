"""Batches that have begun: their answers come beside what their instance runs next."""

import pytest

from shoal.config.model import Batching
from shoal.config.scheduling import scheduling_of
from shoal.core.batch import Batch
from shoal.core.batcher import Batcher
from shoal.core.choice import batcher_for
from shoal.core.poison import Poison
from shoal.core.policy import Single
from shoal.core.queue import RequestQueue
from shoal.core.request import InSequence, State
from shoal.core.scheduler import MOST_BEGUN, Scheduler
from shoal.core.turns import ALL, Claim, Gate, Turns
from shoal.errors import Poisoned, ResponseTimeout, WorkerDied
from shoal.payload import Result
from shoal.telemetry import ModelStats
from tests.support import Asked, Bench, FakeAlarm, Scripted, StubInstance, ask


def begin(bench: Bench, instance: StubInstance, place: int = -1) -> Batch:
    """A batch of an instance begins to be answered; the last one it was sent."""
    batch = instance.batches[place]
    bench.scheduler.begun(instance, batch, bench.now)
    return batch


def start(bench: Bench, instance: StubInstance, count: int) -> list[Asked]:
    """Have so many requests answered at once, each a batch of its own."""
    requests = [ask() for _ in range(count)]
    for request in requests:
        bench.offer(request)
        bench.feed()
        begin(bench, instance)
    return requests


def end(bench: Bench, instance: StubInstance, batch: Batch, body: bytes = b"yes") -> None:
    instance.batches.remove(batch)
    instance.batches.insert(0, batch)
    bench.finish(instance, body)


def test_the_next_batch_leaves_once_the_one_before_has_begun() -> None:
    bench = Bench(Single())
    instance = bench.join()
    bench.offer(*(requests := [ask(), ask(), ask()]))
    bench.feed()
    assert len(instance.batches) == 1
    begin(bench, instance)
    assert len(instance.batches) == 2, "at once, without a turn of the loop"
    begin(bench, instance)

    assert [list(batch.requests) for batch in instance.batches] == [[request] for request in requests]
    assert (bench.scheduler.running, bench.fleet.idle) == (3, 0)
    assert list(bench.scheduler.held["a"]) == instance.batches


def test_each_is_answered_by_its_own_batch_whoever_ends_first() -> None:
    bench = Bench(Single())
    instance = bench.join()
    first, second, third = start(bench, instance, 3)
    batches = list(instance.batches)
    batches[0].deliver(0, Result(b"a"), False, 0.0)
    end(bench, instance, batches[2], b"third")
    batches[0].deliver(0, Result(b"b"), False, 0.0)
    end(bench, instance, batches[1], b"second")
    end(bench, instance, batches[0], b"c")

    assert [request.ear.bodies for request in (first, second, third)] == [[b"a", b"b", b"c"], [b"second"], [b"third"]]
    assert all(request.block.released for request in (first, second, third))
    assert bench.scheduler.is_idle and bench.fleet.idle == 1


def test_the_policy_hears_once_that_the_instance_is_through_with_it() -> None:
    bench = Bench(policy := Scripted())
    instance = bench.join()
    start(bench, instance, 1)
    assert [word for word, _ in policy.told] == ["arrived", "sent", "done"]
    end(bench, instance, instance.batches[0])
    assert [word for word, _ in policy.told] == ["arrived", "sent", "done"]
    start(bench, instance, 1)
    bench.kill(instance)

    assert [word for word, _ in policy.told].count("done") == 2


def test_a_begin_that_is_said_again_changes_nothing() -> None:
    bench = Bench(Single())
    instance = bench.join()
    start(bench, instance, 1)
    begin(bench, instance)

    assert (bench.fleet.idle, bench.scheduler.running) == (1, 1)


def test_an_instance_answers_no_more_at_once_than_it_may() -> None:
    bench = Bench(Single())
    assert bench.scheduler.most_begun == MOST_BEGUN == 1024
    bench.scheduler.most_begun = 2
    instance = bench.join(places=2)
    start(bench, instance, 2)
    assert bench.fleet.idle == 0
    bench.offer(waiting := ask())
    bench.feed()
    assert len(instance.batches) == 2
    end(bench, instance, instance.batches[0])

    assert list(instance.batches[-1].requests) == [waiting]
    end(bench, instance, instance.batches[-1])
    assert bench.fleet.idle == 1


def test_what_ends_without_having_begun_does_not_free_an_instance_that_is_full() -> None:
    bench = Bench(Single())
    bench.scheduler.most_begun = 1
    instance = bench.join()
    bench.offer(ask(), ask())
    bench.feed()
    begun = begin(bench, instance)
    assert (len(instance.batches), bench.fleet.idle) == (1, 0), "the second waits"
    end(bench, instance, begun)
    assert len(instance.batches) == 1
    bench.finish(instance, b"yes")

    assert bench.fleet.idle == 1


def test_the_instance_with_the_least_to_answer_is_next() -> None:
    bench = Bench(Single())
    instances = [bench.join(id) for id in "abc"]
    for _ in range(7):
        bench.offer(ask())
        bench.feed()
        (busy,) = [instance for instance in instances if instance.batches and not instance.batches[-1].has_begun]
        begin(bench, busy)

    assert sorted(len(instance.batches) for instance in instances) == [2, 2, 3]


def test_a_drain_waits_for_the_last_answer() -> None:
    bench = Bench(Single())
    instance = bench.join()
    start(bench, instance, 2)
    told: list[str] = []
    bench.scheduler.when_idle(lambda: told.append("idle"))
    assert not bench.scheduler.is_idle
    end(bench, instance, instance.batches[1])
    assert told == []
    end(bench, instance, instance.batches[0])

    assert told == ["idle"]


def test_an_instance_retires_after_its_last_answer() -> None:
    bench = Bench(Single())
    instance = bench.join()
    start(bench, instance, 2)
    told: list[str] = []
    bench.scheduler.retire(instance, lambda: told.append("empty"))
    assert (bench.fleet.size, bench.fleet.idle) == (0, 0)
    bench.offer(waiting := ask())
    bench.feed()
    end(bench, instance, instance.batches[0])
    assert told == [] and not waiting.batch
    end(bench, instance, instance.batches[0])
    assert told == ["empty"]
    bench.kill(instance)

    assert (bench.fleet.size, bench.fleet.idle) == (0, 0)


def test_what_begins_while_its_instance_retires_does_not_make_that_free() -> None:
    bench = Bench(Single())
    instance = bench.join()
    bench.offer(ask())
    bench.feed()
    told: list[str] = []
    bench.scheduler.retire(instance, lambda: told.append("empty"))
    begin(bench, instance)
    assert (bench.fleet.idle, told) == (0, [])
    end(bench, instance, instance.batches[0])

    assert (bench.fleet.idle, told) == (0, ["empty"])


def test_with_the_worker_end_those_that_had_an_answer_and_the_others_run_again_in_their_order() -> None:
    bench = Bench(Single())
    instance = bench.join()
    answered, silent, other = start(bench, instance, 3)
    bench.offer(unbegun := ask())
    bench.feed()
    instance.batches[0].deliver(0, Result(b"piece"), False, 0.0)
    bench.kill(instance)
    assert isinstance(answered.ear.last, WorkerDied) and answered.ear.bodies == [b"piece"]
    assert (bench.fleet.size, bench.fleet.idle, bench.scheduler.running) == (0, 0, 0)
    fresh = bench.join("b")
    for _ in range(3):
        bench.feed()
        begin(bench, fresh)

    assert [batch.requests[0] for batch in fresh.batches] == [silent, other, unbegun]
    assert bench.stats.reruns == 3


def test_nothing_that_hung_runs_again() -> None:
    bench = Bench(Single())
    instance = bench.join()
    hung, other = start(bench, instance, 2)
    bench.scheduler.leave(instance, 0.0, lambda _: ResponseTimeout("late"), hung=instance.batches[0])

    assert isinstance(hung.ear.last, ResponseTimeout)
    assert other.state is State.QUEUED


def test_nobody_is_blamed_for_a_death_beside_others() -> None:
    bench = Bench(Single(), max_attempts=1, poison=Poison(1, 60.0))
    beside, alone = bench.join("a"), bench.join("b")
    first, _ = start(bench, beside, 1), start(bench, alone, 1)
    bench.offer(ask())
    bench.feed()
    assert [len(instance.batches) for instance in (beside, alone)] == [2, 1]
    bench.kill(beside)
    assert first[0].state is State.FAILED and not bench.scheduler.poison.blamed
    bench.kill(alone)

    assert bench.scheduler.poison.blamed
    with pytest.raises(Poisoned):
        bench.offer(ask())


def test_each_that_was_being_answered_is_isolated() -> None:
    bench = Bench(Scripted(), isolates=True, max_attempts=2)
    instance = bench.join(places=2)
    for _ in range(2):
        bench.offer(ask(), ask())
        bench.feed()
        begin(bench, instance)
    bench.kill(instance)
    fresh = bench.join("b")
    bench.feed()
    begin(bench, fresh)

    assert len(fresh.batches) == 1 and len(fresh.batches[0]) == 1, "each runs alone"
    assert not fresh.batches[0].has_begun, "and nobody beside it"
    assert bench.fleet.idle == 0


def test_one_that_leaves_is_cancelled_and_the_others_go_on() -> None:
    bench = Bench(Single())
    instance = bench.join()
    first, second = start(bench, instance, 2)
    batches = list(instance.batches)
    bench.scheduler.withdraw(first, 0.0)
    assert instance.cancelled == [(batches[0], 0)]
    assert bench.fleet.idle == 1 and bench.scheduler.running == 2
    end(bench, instance, batches[0])
    end(bench, instance, batches[1])

    assert first.state is State.WITHDRAWN and second.ear.bodies == [b"yes"]
    assert bench.stats.withdrawn == 1 and bench.stats.answered == 1


def test_what_instances_share_is_given_back_when_a_batch_has_begun() -> None:
    turns, resource = Turns(), ("R", ALL)
    benches = []
    for _ in range(2):
        alarm = FakeAlarm()
        gate = Gate(turns, lambda _: Claim({resource: 1}), alarm.soon)
        scheduler = Scheduler(Batcher(RequestQueue("m", 10), Single()), alarm, ModelStats("m", "1"), gate=gate)
        instance = StubInstance()
        scheduler.join(instance)
        scheduler.offer(ask(), 0.0)
        benches.append((scheduler, instance))
    (first, one), (second, two) = benches
    first.feed(0.0)
    second.feed(0.0)
    assert (len(one.batches), len(two.batches)) == (1, 0)
    first.begun(one, one.batches[0], 0.0)
    second.feed(0.0)
    assert len(two.batches) == 1
    first.offer(ask(), 0.0)
    first.feed(0.0)
    assert len(one.batches) == 1, "it is the other's turn"
    first.freed(one, one.batches[0], 0.0, 0.0)
    first.feed(0.0)
    assert len(one.batches) == 1, "what was given back is not given back again"
    second.begun(two, two.batches[0], 0.0)
    first.feed(0.0)
    assert len(one.batches) == 2


def test_a_sequence_waits_for_the_end_of_its_answers() -> None:
    batcher = batcher_for("m", 10, Batching(), scheduling_of({"max_batch_size": 8, "sequence_batching": {}}, "m"))
    scheduler = Scheduler(batcher, FakeAlarm(), ModelStats("m", "1"))
    scheduler.join(instance := StubInstance())
    first, second = ask(), ask()
    first.sequence, second.sequence = InSequence(7, True, False), InSequence(7, False, True)
    scheduler.offer(first, 0.0)
    scheduler.offer(second, 0.0)
    scheduler.feed(0.0)
    scheduler.begun(instance, instance.batches[0], 0.0)
    assert len(instance.batches) == 1 and not instance.batches[0].has_begun
    scheduler.freed(instance, instance.batches[0], 0.0, 0.0)

    assert len(instance.batches) == 2

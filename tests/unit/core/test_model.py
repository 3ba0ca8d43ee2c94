import asyncio
import logging

import pytest

from shoal.config.model import ModelConfig
from shoal.core.model import MOVES, Life, Model
from shoal.errors import LoadFailed, QueueFull, ServingError, Unavailable
from tests.support import Bench, FakeClock, FakePool, StubInstance, ask


class Bed:
    """A model over a scheduler without workers and a pool that does nothing by itself."""

    def __init__(self, *, limit: int = 100, request_timeout: float = 0.0, job_tickets: bool = False) -> None:
        self.bench = Bench(limit=limit)
        self.pool = FakePool()
        self.pool.size = 1
        config = ModelConfig(name="m", path="m.py", request_timeout=request_timeout, job_tickets=job_tickets)
        self.model = Model(config, self.bench.scheduler, self.pool, FakeClock(5.0))

    def ready(self) -> StubInstance:
        self.model.move(Life.READY)
        instance = self.bench.join()
        self.bench.feed()
        return instance


def test_a_started_model_is_ready() -> None:
    bed = Bed()
    asyncio.run(bed.model.start())

    assert bed.model.life is Life.READY
    assert bed.pool.calls == ["start"]
    assert not bed.model.is_ready  # nobody could run a request yet
    bed.bench.join()
    assert bed.model.is_ready


def test_a_model_that_cannot_be_loaded_has_failed_and_says_why() -> None:
    bed = Bed()

    def fail() -> None:
        raise LoadFailed("no such module", "line 1")

    bed.pool.on_start = fail
    bed.model.submit(waiting := ask())
    with pytest.raises(LoadFailed):
        asyncio.run(bed.model.start())

    assert bed.model.life is Life.FAILED
    assert (bed.model.error, bed.model.traceback) == ("no such module", "line 1")
    assert "no such module" in str(waiting.ear.last)
    with pytest.raises(Unavailable, match="failed: no such module") as refused:
        bed.model.submit(ask())
    assert refused.value.retry_after == 10.0


def test_requests_wait_while_the_model_is_loading() -> None:
    bed = Bed()
    bed.model.submit(request := ask())

    assert not request.has_ended
    assert len(bed.bench.batcher.queue) == 1


def test_a_full_queue_refuses_and_counts_the_refused() -> None:
    bed = Bed(limit=1)
    bed.ready()
    bed.model.submit(ask())

    with pytest.raises(QueueFull):
        bed.model.submit(ask())
    assert bed.bench.stats.refused == 1


def test_a_model_without_workers_refuses_and_says_what_to_do() -> None:
    bed = Bed()
    bed.model.move(Life.READY)
    bed.pool.size = 0

    with pytest.raises(Unavailable, match="scale it to at least one"):
        bed.model.submit(ask())
    assert bed.bench.stats.refused == 1


def test_a_model_whose_workers_do_not_come_up_refuses_with_the_reason() -> None:
    bed = Bed()
    bed.model.move(Life.READY)
    bed.pool.trouble = "no worker comes up: out of memory"

    with pytest.raises(Unavailable, match="out of memory") as refused:
        bed.model.submit(ask())
    assert refused.value.retry_after == 10.0
    assert bed.bench.stats.refused == 1


def test_a_model_whose_worker_is_being_replaced_lets_requests_wait() -> None:
    bed = Bed()
    bed.model.move(Life.READY)
    bed.model.submit(request := ask())

    assert not request.has_ended


@pytest.mark.parametrize(("own", "deadline"), [(float("inf"), 4.5), (2.0, 2.0), (9.0, 4.5)])
def test_a_request_expires_after_the_models_time_or_its_own_whichever_is_sooner(own: float, deadline: float) -> None:
    bed = Bed(request_timeout=3.5)
    bed.ready()
    bed.model.submit(request := ask(arrived=1.0, deadline=own))

    assert request.deadline == deadline


def test_without_a_time_limit_a_request_never_expires() -> None:
    bed = Bed()
    bed.ready()
    bed.model.submit(request := ask())

    assert request.deadline == float("inf")


def test_one_whose_client_left_is_withdrawn() -> None:
    bed = Bed()
    bed.model.submit(request := ask())
    bed.model.withdraw(request)

    assert request.has_ended
    assert request.answered == 5.0
    assert bed.bench.stats.withdrawn == 1


def test_a_draining_model_refuses_the_new_and_finishes_the_old() -> None:
    bed = Bed()
    instance = bed.ready()
    bed.model.submit(old := ask())
    bed.bench.feed()

    async def story() -> None:
        draining = asyncio.create_task(bed.model.drain(60.0))
        await asyncio.sleep(0)
        with pytest.raises(Unavailable, match="is draining"):
            bed.model.submit(ask())
        assert not draining.done()
        bed.bench.finish(instance, b"yes")
        await draining

    asyncio.run(story())
    assert old.ear.bodies == [b"yes"]
    assert bed.model.life is Life.UNLOADED
    assert bed.pool.calls == ["stop 5"]
    assert bed.bench.stats.refused == 1


def test_what_is_not_finished_in_time_is_ended(caplog: pytest.LogCaptureFixture) -> None:
    bed = Bed()
    bed.model.move(Life.READY)
    bed.model.submit(waiting := ask())
    with caplog.at_level(logging.WARNING, "shoal"):
        asyncio.run(bed.model.drain(0.0))

    assert "was unloaded" in str(waiting.ear.last)
    assert bed.model.life is Life.UNLOADED
    assert "did not drain in 0 s" in caplog.text


@pytest.mark.parametrize("is_busy", [True, False])
def test_draining_says_whether_everything_was_finished(is_busy: bool) -> None:
    bed = Bed()
    bed.ready()
    if is_busy:
        bed.model.submit(ask())

    assert asyncio.run(bed.model.drain(0.0)) is not is_busy
    assert asyncio.run(bed.model.drain(0.0)) is True


def test_an_idle_model_drains_at_once_even_when_given_no_time(caplog: pytest.LogCaptureFixture) -> None:
    bed = Bed()
    bed.ready()
    with caplog.at_level(logging.WARNING, "shoal"):
        asyncio.run(bed.model.drain(0.0))

    assert bed.model.life is Life.UNLOADED
    heard = [record for record in caplog.records if record.name.startswith("shoal")]
    assert not [record.getMessage() for record in heard if record.levelno >= logging.WARNING]


def test_draining_twice_is_draining_once() -> None:
    bed = Bed()
    bed.ready()
    asyncio.run(bed.model.drain(1.0))
    asyncio.run(bed.model.drain(1.0))

    assert bed.pool.calls == ["stop 1"]


def test_a_model_that_fails_while_it_drains_does_not_keep_anybody_waiting() -> None:
    bed = Bed()
    bed.model.move(Life.READY)
    bed.model.submit(waiting := ask())

    async def story() -> None:
        draining = asyncio.create_task(bed.model.drain(60.0))
        await asyncio.sleep(0)
        bed.model.fail("no worker comes up")
        await asyncio.wait_for(draining, 5.0)

    asyncio.run(story())
    assert "no worker comes up" in str(waiting.ear.last)
    assert bed.model.life is Life.UNLOADED


def test_a_model_unloaded_while_it_was_loading_does_not_become_ready() -> None:
    bed = Bed()
    bed.pool.on_start = lambda: bed.model.move(Life.DRAINING)

    with pytest.raises(ServingError, match="unloaded while it was loading"):
        asyncio.run(bed.model.start())
    assert bed.model.life is Life.DRAINING


def test_scaling_brings_the_pool_to_size() -> None:
    bed = Bed()
    bed.ready()
    asyncio.run(bed.model.scale(3))

    assert bed.pool.calls == ["scale 3"]
    assert (bed.model.min_workers, bed.model.max_workers) == (3, 3)


@pytest.mark.parametrize(("low", "high", "workers"), [(1, 5, 3), (4, 5, 4), (1, 2, 2), (0, 5, 0)])
def test_scaling_between_limits_does_no_more_than_it_must(low: int, high: int, workers: int) -> None:
    bed = Bed()
    bed.ready()
    bed.pool.size = 3
    asyncio.run(bed.model.scale(low, high))

    assert bed.pool.calls == [f"scale {workers}"]
    assert (bed.model.min_workers, bed.model.max_workers) == (low, high)


def test_a_model_has_at_least_as_many_workers_at_most_as_it_begins_with() -> None:
    config = ModelConfig(name="m", path="m.py", workers=3, max_workers=2)
    model = Model(config, Bench().scheduler, FakePool(), FakeClock())

    assert (model.min_workers, model.max_workers) == (3, 3)


def test_a_failed_model_is_ready_again_once_workers_are_up() -> None:
    bed = Bed()
    bed.model.fail("bad luck")
    asyncio.run(bed.model.scale(0))
    life_without_workers: Life = bed.model.life
    asyncio.run(bed.model.scale(1))

    assert life_without_workers is Life.FAILED
    assert bed.model.life is Life.READY
    assert bed.model.error == ""


def test_scaling_to_nobody_ends_what_waits() -> None:
    bed = Bed()
    bed.model.move(Life.READY)
    bed.model.submit(waiting := ask())
    asyncio.run(bed.model.scale(0))

    assert "no workers" in str(waiting.ear.last)


@pytest.mark.parametrize("life", [Life.DRAINING, Life.UNLOADED])
def test_a_model_on_its_way_out_is_not_scaled(life: Life) -> None:
    bed = Bed()
    bed.model.life = life

    with pytest.raises(Unavailable, match=f"is {life.value}"):
        asyncio.run(bed.model.scale(1))
    assert bed.pool.calls == []


@pytest.mark.parametrize(
    ("life", "next"), [(life, other) for life in Life for other in Life if other not in MOVES[life] | {life}]
)
def test_a_move_outside_the_table_is_a_mistake(life: Life, next: Life) -> None:
    model = Bed().model
    model.life = life

    with pytest.raises(AssertionError):
        model.move(next)


def test_an_unloaded_model_is_at_its_end() -> None:
    assert MOVES[Life.UNLOADED] == frozenset()
    assert MOVES.keys() == set(Life)


# -- job tickets -------------------------------------------------------------------------------------------------------


def ticketed(workers: int) -> Bed:
    bed = Bed(job_tickets=True)
    bed.model.move(Life.READY)
    for number in range(workers):
        bed.bench.join(f"w{number}")
    return bed


def test_with_job_tickets_a_request_is_taken_for_every_idle_worker() -> None:
    bed = ticketed(2)
    bed.model.submit(ask())
    bed.model.submit(ask())

    with pytest.raises(Unavailable, match="no idle worker"):
        bed.model.submit(ask())
    assert bed.bench.stats.refused == 1
    assert len(bed.bench.batcher.queue) == 2


def test_a_worker_that_is_idle_again_gives_a_ticket() -> None:
    bed = Bed(job_tickets=True)
    instance = bed.ready()
    bed.model.submit(ask())
    bed.bench.feed()
    with pytest.raises(Unavailable):
        bed.model.submit(ask())

    bed.bench.finish(instance, b"done")
    bed.model.submit(ask())


def test_with_job_tickets_nobody_waits_for_the_first_worker() -> None:
    with pytest.raises(Unavailable):
        Bed(job_tickets=True).model.submit(ask())


def test_without_job_tickets_requests_wait_for_a_busy_worker() -> None:
    bed = Bed()
    bed.ready()
    for _ in range(5):
        bed.model.submit(ask())

    assert len(bed.bench.batcher.queue) == 5


# -- proof -------------------------------------------------------------------------------------------------------------


def test_a_handler_that_cannot_batch_is_sent_one_request_at_a_time() -> None:
    bed = Bed()
    instance = bed.ready()
    for _ in range(3):
        bed.model.submit(ask())
    bed.bench.alarm.is_due = False
    bed.model.proof.settle(False, "it answers in pieces")

    assert bed.bench.alarm.is_due, "what was held for company need not wait for it"
    bed.bench.feed()
    assert [len(batch) for batch in instance.batches] == [1]
    assert bed.model.proof.words == "no: it answers in pieces"


def test_a_handler_that_can_batch_is_batched_as_before() -> None:
    bed = Bed()
    instance = bed.ready()
    assert bed.model.proof.words == "not yet"
    bed.model.proof.settle(True, "")
    bed.bench.offer(ask(), ask())
    bed.bench.feed()

    assert [len(batch) for batch in instance.batches] == [2]
    assert bed.model.proof.words == "yes"


def test_a_no_outweighs_a_yes_and_stays() -> None:
    bed = Bed()
    for can_batch, why in ((True, ""), (False, "of 2 requests"), (True, ""), (False, "another")):
        bed.model.proof.settle(can_batch, why)

    assert bed.model.proof.words == "no: of 2 requests"
    assert bed.bench.batcher.policy.limit == 1


def test_a_drained_model_finishes_what_it_had_refuses_the_next_and_comes_back_when_scaled() -> None:
    bed = Bed()
    instance = bed.ready()
    bed.model.submit(running := ask())
    bed.bench.feed()

    async def story() -> None:
        resting = asyncio.ensure_future(bed.model.rest(5.0))
        await asyncio.sleep(0)
        life: Life = bed.model.life
        assert life is Life.DRAINING
        with pytest.raises(Unavailable, match="is draining"):
            bed.model.submit(ask())
        bed.bench.finish(instance, b"done")
        assert await resting is True
        assert running.ear.bodies == [b"done"]
        assert (bed.model.life, bed.pool.size, bed.model.min_workers) == (Life.DRAINED, 0, 0)
        with pytest.raises(Unavailable, match="is drained"):
            bed.model.submit(ask())
        with pytest.raises(Unavailable, match="only a ready one"):
            await bed.model.rest(5.0)
        await bed.model.scale(0)
        assert bed.model.life is Life.DRAINED
        await bed.model.scale(2)
        assert (bed.model.life, bed.pool.size) == (Life.READY, 2)

    asyncio.run(story())


def test_a_drain_that_takes_too_long_ends_the_rest() -> None:
    bed = Bed()
    bed.ready()
    bed.model.submit(ask())
    bed.bench.feed()
    bed.model.submit(waiting := ask())

    assert asyncio.run(bed.model.rest(0.0)) is False
    assert bed.model.life is Life.DRAINED
    assert "was drained" in str(waiting.ear.last)


def test_a_drained_model_can_be_unloaded_also_while_it_drains() -> None:
    bed = Bed()
    instance = bed.ready()
    bed.model.submit(ask())
    bed.bench.feed()

    async def story() -> None:
        both = asyncio.gather(bed.model.rest(5.0), bed.model.drain(5.0))
        await asyncio.sleep(0)
        bed.bench.finish(instance, b"x")
        await both
        assert bed.model.life is Life.UNLOADED

    asyncio.run(story())
    stuck = Bed()
    stuck.ready()
    stuck.model.submit(ask())
    stuck.bench.feed()

    async def give_up() -> None:
        await asyncio.gather(stuck.model.rest(0.02), stuck.model.drain(0.0))
        assert stuck.model.life is Life.UNLOADED

    asyncio.run(give_up())
    idle = Bed()
    idle.ready()
    asyncio.run(idle.model.rest(1.0))
    assert asyncio.run(idle.model.drain(1.0)) is True
    assert idle.model.life is Life.UNLOADED

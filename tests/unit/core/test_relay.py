"""Requests that go to other models: begun at once, ended once."""

import asyncio
from collections.abc import Callable

import pytest

from shoal.config.model import ModelConfig
from shoal.core.batch import Stages
from shoal.core.model import Life, Model
from shoal.core.relay import NoWorkers, Relay, Tell
from shoal.core.request import Request, State
from shoal.errors import DeadlineExceeded, HandlerFailed, Unavailable
from shoal.payload import Result
from shoal.telemetry import ModelStats
from tests.support import FakeAlarm, FakeClock, ask


class Ways:
    """Where requests are sent to: nothing happens until the test tells."""

    def __init__(self, at_once: Result | HandlerFailed | None = None) -> None:
        self.clock = FakeClock(1.0)
        self.stats = ModelStats("e", "1")
        self.tells: list[Tell] = []
        self.called_off = 0
        self.relay = Relay(FakeAlarm(), self.stats, self._begin, self.clock.now)
        self._at_once = at_once

    def _begin(self, request: Request, tell: Tell) -> Callable[[], None]:
        self.tells.append(tell)
        if self._at_once is not None:
            tell(self._at_once, True, Stages())
        return self._call_off

    def _call_off(self) -> None:
        self.called_off += 1


def test_a_request_is_begun_at_once_and_answered() -> None:
    ways, request = Ways(), ask(arrived=1.0)
    seen = []
    ways.stats.on_batch.append(lambda stats, batch, now: seen.append((batch.rows, batch.stages, now)))
    ways.relay.offer(request, 1.0)
    assert (ways.relay.running, ways.relay.is_idle, request.state) == (1, False, State.RUNNING)
    ways.clock.time = 3.0
    stages = Stages(1, 2, 3)
    ways.tells[0](Result(b"yes"), True, stages)

    assert request.ear.bodies == [b"yes"]
    assert request.block.released == 1
    assert ways.relay.is_idle
    assert seen == [(1, stages, 3.0)]
    assert (ways.stats.answered, ways.stats.failed) == (1, 0)


def test_pieces_are_told_as_they_come() -> None:
    ways, request = Ways(), ask()
    ways.relay.offer(request, 0.0)
    ways.tells[0](Result(b"1"), False, Stages())
    assert request.ear.bodies == [b"1"]
    assert not request.block.released
    ways.tells[0](Result(b"2"), True, Stages())

    assert request.ear.bodies == [b"1", b"2"]


@pytest.mark.parametrize("outcome", [Result(b"yes"), HandlerFailed("no")])
def test_an_answer_may_come_before_the_request_is_on_its_way(outcome: Result | HandlerFailed) -> None:
    ways, request = Ways(outcome), ask()
    ways.relay.offer(request, 0.0)

    assert request.ear.last is outcome
    assert ways.relay.is_idle


def test_an_error_ends_it_and_counts_no_execution() -> None:
    ways, request = Ways(), ask()
    seen = []
    ways.stats.on_batch.append(lambda stats, batch, now: seen.append(batch.stages))
    ways.relay.offer(request, 0.0)
    ways.tells[0](HandlerFailed("no"), False, Stages(1, 1, 1))
    ways.tells[0](Result(b"late"), True, Stages())

    assert str(request.ear.last) == "no"
    assert ways.stats.failed == 1
    assert seen == [None]


def test_one_that_is_late_is_counted_as_late() -> None:
    ways, request = Ways(), ask()
    ways.relay.offer(request, 0.0)
    ways.tells[0](DeadlineExceeded("late"), True, Stages())

    assert request.state is State.EXPIRED
    assert (ways.stats.expired, ways.stats.failed) == (1, 0)


def test_a_client_that_leaves_calls_it_off() -> None:
    ways, request = Ways(), ask()
    ways.relay.offer(request, 0.0)
    ways.relay.withdraw(request, 1.0)
    ways.relay.withdraw(request, 1.0)
    ways.tells[0](Result(b"late"), True, Stages())

    assert (ways.called_off, ways.stats.withdrawn) == (1, 1)
    assert request.ear.heard == []
    assert request.block.released == 1
    assert ways.relay.is_idle


def test_a_client_may_leave_when_it_hears_a_piece() -> None:
    ways = Ways()
    request = ask()
    request.on_answer = lambda *_: ways.relay.withdraw(request, 1.0)
    ways.relay.offer(request, 0.0)
    ways.tells[0](Result(b"1"), False, Stages())

    assert ways.called_off == 1
    assert ways.stats.withdrawn == 1


def test_a_model_of_it_is_ready_drains_and_ends_what_is_left() -> None:
    async def work() -> None:
        ways = Ways()
        config = ModelConfig(name="e", version="1", path="e")
        model = Model(config, ways.relay, NoWorkers(ways.relay), ways.clock)
        await model.start()
        assert model.is_ready
        first, second = ask(), ask()
        model.submit(first)
        draining = asyncio.ensure_future(model.drain(30.0))
        await asyncio.sleep(0)
        with pytest.raises(Unavailable):
            model.submit(second)
        assert not draining.done()
        ways.tells[0](Result(b"yes"), True, Stages())
        assert await draining
        assert model.life is Life.UNLOADED
        assert not model.is_ready

    asyncio.run(asyncio.wait_for(work(), 10))


def test_a_drain_that_takes_too_long_ends_what_is_on_its_way() -> None:
    async def work() -> None:
        ways, request = Ways(), ask()
        model = Model(ModelConfig(name="e", version="1", path="e"), ways.relay, NoWorkers(ways.relay), ways.clock)
        await model.start()
        model.submit(request)
        assert not await model.drain(0.01)

        assert isinstance(request.ear.last, Unavailable)
        assert ways.called_off == 1
        assert request.block.released == 1

    asyncio.run(asyncio.wait_for(work(), 10))

"""What the front process makes of a worker's word that a batch has begun."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from shoal.core.policy import Single
from shoal.pool.link import LinkedInstance, WorkerLink
from shoal.wire.channel import frame
from shoal.wire.messages import Begun, Ended, Piece, Pieces
from tests.support import Asked, Bench, FakeClock, ask


class Wired:
    """A scheduler whose one instance is behind a link without a worker."""

    def __init__(self) -> None:
        self.bench = Bench(Single())
        self.clock = FakeClock()
        self.link = WorkerLink(self.bench.scheduler, self.clock, _nothing, _nothing, _nothing, _nothing)
        self.bench.scheduler.join(LinkedInstance("a", 0, 1, self.link))

    def ask(self) -> Asked:
        self.bench.offer(request := ask())
        self.bench.feed(self.clock.now())
        return request

    def hear(self, report: Any, body: bytes = b"") -> None:
        self.link.data_received(b"".join(frame(report, [body] if body else [])))

    @property
    def began(self) -> dict[int, float]:
        return {number: began for number, (_, _, began) in self.link.running.items()}


def _nothing(_: object) -> None:
    """Stands where nobody listens."""


def within(story: Callable[[Wired], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    async def run() -> None:
        await story(Wired())

    def test() -> None:
        asyncio.run(run())

    return test


@within
async def test_the_next_batch_is_sent_and_the_pieces_of_the_first_find_their_way(wired: Wired) -> None:
    first, second = wired.ask(), wired.ask()
    assert list(wired.link.running) == [1]
    wired.hear(Begun(1))
    assert list(wired.link.running) == [1, 2]
    wired.hear(Pieces(2, [Piece(0, False, 1)]), b"2")
    wired.hear(Pieces(1, [Piece(0, False, 1)]), b"1")
    wired.hear(Pieces(1, [Piece(0, True, 0)]))
    wired.hear(Ended(1, (0.0, 0.0, 0.0)))
    await asyncio.sleep(0)

    assert first.ear.bodies == [b"1", b""] and first.ear.has_ended
    assert second.ear.bodies == [b"2"] and not second.ear.has_ended
    assert wired.bench.scheduler.running == 1


@within
async def test_each_batch_has_its_own_time_once_it_has_begun(wired: Wired) -> None:
    wired.ask()
    wired.clock.time += 5.0
    wired.hear(Begun(1))
    assert wired.began == {1: 5.0}
    wired.clock.time += 1.0
    wired.ask()
    wired.clock.time += 1.0
    wired.hear(Begun(2))
    assert wired.began == {1: 5.0, 2: 7.0}, "that another begins says nothing of the first"
    wired.clock.time += 1.0
    wired.ask()
    wired.hear(Pieces(1, [Piece(0, False, 1)]), b"x")
    wired.clock.time += 1.0
    wired.hear(Ended(2, (0.0, 0.0, 0.0)))
    assert wired.began == {1: 8.0, 3: 8.0}, "the end of one that had begun starts nobody"
    wired.hear(Ended(3, (0.0, 0.0, 0.0)))
    await asyncio.sleep(0)

    assert wired.began == {1: 8.0}


@within
async def test_a_begin_of_a_batch_that_it_does_not_hold_ends_the_worker(wired: Wired) -> None:
    wired.ask()
    wired.hear(Begun(7))

    assert "batch 7 has begun, which this worker does not hold" in wired.link._problem


@within
async def test_a_dead_worker_takes_all_that_had_begun_with_it(wired: Wired) -> None:
    answered, silent = wired.ask(), wired.ask()
    wired.hear(Begun(1))
    wired.hear(Pieces(1, [Piece(0, False, 1)]), b"1")
    wired.hear(Begun(2))
    (instance,) = {instance for instance, _, _ in wired.link.running.values()}
    wired.bench.kill(instance)  # type: ignore[arg-type]  # it is an instance like any other

    assert answered.has_ended and not silent.has_ended
    assert len(wired.bench.batcher.queue) == 1

"""When a batch leaves, as the link tells it: never before those in it had come."""

import asyncio

from shoal.core.policy import Single
from shoal.pool.link import LinkedInstance, WorkerLink
from shoal.wire.channel import frame
from shoal.wire.messages import Answered
from tests.support import Bench, FakeClock, ask


def _nothing(_: object) -> None:
    """Stands where nobody listens."""


async def _a_request_comes_before_the_answered_batch_is_settled() -> None:
    bench, clock = Bench(Single()), FakeClock()
    link = WorkerLink(bench.scheduler, clock, _nothing, _nothing, _nothing, _nothing)
    bench.scheduler.join(LinkedInstance("a", 0, 1, link))
    bench.offer(first := ask())
    bench.feed(clock.now())
    clock.time = 1.0
    link.data_received(b"".join(frame(Answered(1, [1], ["text/plain"], (0.0, 0.0, 0.0)), [b"1"])))
    assert first.ear.has_ended, "the answers are handed out first"

    clock.time = 1.5
    late = ask(arrived=clock.now())
    bench.scheduler.offer(late, clock.now())
    bench.feed(clock.now())
    clock.time = 1.6
    await asyncio.sleep(0)

    ((_, batch, _),) = link.running.values()
    assert batch.requests == [late]
    assert batch.left == late.batched == 1.6


def test_a_batch_leaves_when_it_does_not_when_the_one_before_it_was_answered() -> None:
    asyncio.run(_a_request_comes_before_the_answered_batch_is_settled())

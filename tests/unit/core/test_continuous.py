from shoal.config.model import Batching, ModelConfig
from shoal.core.batcher import Batcher
from shoal.core.continuous import Continuous
from shoal.core.model import Model
from tests.support import Bench, FakeClock, FakePool, ask


def joined() -> Bench:
    bench = Bench()
    config = ModelConfig(name="m", path="m.py", continuous=True, batching=Batching(batch_size=3))
    Model(config, bench.scheduler, FakePool(), FakeClock())
    return bench


def settle(bench: Bench) -> None:
    """Feed for as long as somebody asks for it."""
    bench.feed()
    for _ in range(100):
        if not bench.alarm.is_due:
            return
        bench.feed()
    raise AssertionError("it never came to rest")


def test_requests_that_come_together_all_leave_at_once_each_on_its_own() -> None:
    bench = joined()
    instance = bench.join(places=3)
    bench.offer(ask(), ask(), ask(), ask(), ask())
    settle(bench)

    assert [len(batch) for batch in instance.batches] == [1, 1, 1]
    assert len(bench.batcher.queue) == 2


def test_a_request_takes_the_place_that_another_left() -> None:
    bench = joined()
    instance = bench.join(places=2)
    bench.offer(first := ask(), second := ask(), third := ask())
    settle(bench)
    bench.finish(instance, b"done")
    settle(bench)

    assert [batch.requests[0] for batch in instance.batches] == [second, third]
    assert first.ear.bodies == [b"done"]


def test_requests_are_spread_over_the_workers() -> None:
    bench = joined()
    instances = [bench.join(id, places=4) for id in "abc"]
    bench.offer(*[ask() for _ in range(6)])
    settle(bench)

    assert [len(instance.batches) for instance in instances] == [2, 2, 2]


def test_nothing_is_asked_for_again_when_nothing_was_sent() -> None:
    bench = joined()
    bench.join(places=3)
    bench.feed()

    assert not bench.alarm.is_due
    assert isinstance(bench.batcher, Batcher) and isinstance(bench.batcher.policy, Continuous)
    assert bench.batcher.policy.describe() == {}

"""A scheduler whose instance has room for some rows only."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.core.ceiling import FIRST
from shoal.core.request import State
from shoal.errors import HandlerFailed
from tests.support import Asked, Bench, StubInstance, ask


def run_until_idle(bench: Bench, instance: StubInstance, room: int, huge: set[Asked] | None = None) -> list[int]:
    """Run batches on an instance with room for so many rows, and for no huge request; the rows of each run."""
    runs = []
    bench.feed()
    while instance.batches:
        batch = instance.batches[0]
        runs.append(batch.rows)
        assert len(runs) < 1000, "it never ends"
        if batch.rows > room or any(request in (huge or ()) for request in batch.requests):
            bench.run_short(instance)
        else:
            bench.finish(instance, *[b"fine"] * len(batch))
        bench.feed()
    return runs


@pytest.mark.parametrize("isolates", [True, False])
def test_a_batch_without_memory_is_halved_until_it_fits_and_the_next_ones_are_smaller(isolates: bool) -> None:
    bench = Bench(isolates=isolates)
    instance = bench.join("a")
    bench.offer(*(first := [ask() for _ in range(32)]))

    assert run_until_idle(bench, instance, 8) == [32, 16, 16, 8, 8, 8, 8]
    assert all(request.state is State.ANSWERED for request in first)
    bench.offer(*(ask() for _ in range(32)))
    assert run_until_idle(bench, instance, 8) == [16, 16, 8, 8, 8, 8], "one, and one that had left before it was known"
    bench.offer(*(ask() for _ in range(32)))
    assert run_until_idle(bench, instance, 8) == [8, 8, 8, 8]
    assert bench.stats.ceilings == {"a": 8}
    assert bench.stats.out_of_memory == 5


def test_larger_batches_are_tried_again_later() -> None:
    bench = Bench(isolates=True, limit=1000)
    instance = bench.join("a")
    bench.offer(*(ask() for _ in range(16)))
    run_until_idle(bench, instance, 8)
    bench.now += FIRST
    bench.offer(*(ask() for _ in range(100)))
    runs = run_until_idle(bench, instance, 1000)

    assert runs[0] == 12, "half-way to what failed"
    bench.offer(*(ask() for _ in range(400)))
    run_until_idle(bench, instance, 1000)
    assert bench.stats.ceilings == {}


def test_a_request_that_fits_nowhere_gets_its_error_and_costs_the_others_no_room() -> None:
    bench = Bench(isolates=True)
    instance = bench.join("a")
    requests = [ask() for _ in range(32)]
    bench.offer(*requests)
    run_until_idle(bench, instance, 32, {requests[5]})

    assert isinstance(requests[5].ear.last, HandlerFailed)
    assert sum(request.state is State.ANSWERED for request in requests) == 31
    assert bench.stats.ceilings == {}


def test_one_large_request_alone_teaches_nothing() -> None:
    bench = Bench(isolates=True)
    instance = bench.join("a")
    bench.offer(ask(rows=50))
    run_until_idle(bench, instance, 10)

    assert bench.stats.ceilings == {}
    assert bench.stats.out_of_memory == 1


def test_what_has_side_effects_is_not_run_again() -> None:
    bench = Bench(isolates=False, max_attempts=1)
    instance = bench.join("a")
    bench.offer(*(requests := [ask() for _ in range(4)]))

    assert run_until_idle(bench, instance, 2) == [4]
    assert all(isinstance(request.ear.last, HandlerFailed) for request in requests)
    assert bench.stats.ceilings == {"a": 2}, "the next ones fit"


def test_an_instance_that_leaves_for_good_is_forgotten() -> None:
    bench = Bench(isolates=True)
    instance = bench.join("a")
    bench.offer(*(ask() for _ in range(4)))
    run_until_idle(bench, instance, 2)
    bench.scheduler.retire(instance, lambda: None)

    assert bench.stats.ceilings == {}
    assert bench.scheduler.ceilings.known == {}


@given(
    room=st.integers(1, 40),
    sizes=st.lists(st.integers(1, 60), min_size=1, max_size=6),
    huge=st.sets(st.integers(0, 40), max_size=3),
)
@settings(deadline=None)
def test_everybody_who_fits_is_answered_and_nobody_twice(room: int, sizes: list[int], huge: set[int]) -> None:
    bench = Bench(isolates=True, limit=1000)
    instance = bench.join("a")
    asked: list[Asked] = []
    for size in sizes:
        new = [ask() for _ in range(size)]
        asked += new
        bench.offer(*new)
        too_large = {asked[number] for number in huge if number < len(asked)}
        run_until_idle(bench, instance, room, too_large)
        bench.now += 20.0
    for number, request in enumerate(asked):
        assert (request.state is State.ANSWERED) is (number not in huge)
        assert request.block.released == 1
    assert all(1 <= rows < 100 for rows in bench.stats.ceilings.values())
    assert bench.scheduler.is_idle

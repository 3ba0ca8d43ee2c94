import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core.pace import SPAN, Pace
from shoal.core.policy import Fixed
from shoal.errors import QueueFull
from tests.support import Bench, ask


def test_nothing_is_known_before_a_whole_span_under_load() -> None:
    pace = Pace()
    pace.note(5, True, 0.0)
    pace.note(5, True, SPAN / 2)

    assert pace.time_for(100) == 0.0


@given(st.integers(1, 64), st.floats(0.001, 0.2), st.integers(0, 5000))
def test_the_time_of_those_who_wait_follows_from_the_pace(size: int, every: float, waiting: int) -> None:
    pace = Pace()
    for number in range(2000):
        pace.note(size, True, number * every)
        if number * every > 3:
            break

    assert pace.time_for(waiting) == pytest.approx(waiting * every / size, rel=0.3)


def test_idle_time_does_not_count() -> None:
    pace = Pace()
    pace.note(10, True, 0.0)
    pace.note(10, True, SPAN)
    pace.note(10, False, SPAN + 0.1)
    pace.note(10, True, 100.0)
    pace.note(10, True, 100.0 + SPAN)

    assert pace.per_second == pytest.approx(10 / SPAN)


def test_a_refused_client_is_told_how_long_the_queue_takes() -> None:
    bench = Bench(Fixed(2, 0.0), limit=10)
    instance = bench.join()
    bench.offer(*(ask() for _ in range(10)))
    bench.feed()
    for _ in range(3):  # two requests every 400 ms
        bench.now += 0.4
        bench.finish(instance, b"x", b"x")
        bench.offer(ask(), ask())
        bench.feed()
    while len(bench.batcher.queue) < 10:
        bench.offer(ask())

    with pytest.raises(QueueFull) as refused:
        bench.offer(ask())
    assert refused.value.retry_after == pytest.approx(10 / 5, rel=0.3)

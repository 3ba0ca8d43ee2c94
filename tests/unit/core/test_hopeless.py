import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core.adaptive import Adaptive
from shoal.core.cost import CostCurve
from shoal.core.triage import CAUTION, is_hopeless
from shoal.errors import DeadlineExceeded
from tests.support import Bench, Scripted, ask
from tests.unit.core.adaptive_server import learn

CURVE = CostCurve(32, {1: 0.010, 32: 0.100})


def test_nothing_is_hopeless_while_nothing_was_learned_or_nobody_is_up() -> None:
    assert not is_hopeless(CostCurve(32), 1e-6, 1000, 1, 1)
    assert not is_hopeless(CURVE, 1e-6, 1000, 1, 0)


def test_who_has_less_than_the_rows_before_it_need_is_lost() -> None:
    ahead = CURVE.total(320)

    assert is_hopeless(CURVE, CAUTION * ahead, 320, 1, 1)
    assert not is_hopeless(CURVE, ahead + 0.011, 320, 1, 1)
    assert not is_hopeless(CURVE, CAUTION * ahead, 320, 1, 2), "two instances share them"


@given(
    slack=st.floats(0.0, 10.0),
    ahead=st.integers(0, 5000),
    rows=st.integers(1, 100),
    instances=st.integers(1, 8),
    more=st.floats(0.0, 5.0),
)
def test_more_time_fewer_rows_or_more_instances_never_make_it_worse(
    slack: float, ahead: int, rows: int, instances: int, more: float
) -> None:
    if is_hopeless(CURVE, slack, ahead, rows, instances):
        return
    assert not is_hopeless(CURVE, slack + more, ahead, rows, instances)
    assert not is_hopeless(CURVE, slack, ahead, rows, instances + 1)
    assert not is_hopeless(CURVE, slack, 0, 1, instances) or slack < CURVE.seconds[1]


@given(speeds=st.lists(st.floats(CAUTION, 1.0), min_size=1, max_size=30), ahead=st.integers(0, 900))
def test_who_would_have_been_in_time_with_batches_a_good_part_faster_is_never_refused(
    speeds: list[float], ahead: int
) -> None:
    took, left, number = 0.0, ahead, 0
    while left > 0:
        rows = min(left, CURVE.cap)
        took += CURVE.seconds[rows] * speeds[number % len(speeds)]
        left, number = left - rows, number + 1
    took += CURVE.seconds[1] * speeds[number % len(speeds)]

    assert not is_hopeless(CURVE, took * (1 + 1e-9), ahead, 1, 1)


def test_a_queue_takes_no_more_than_can_be_answered_in_time() -> None:
    bench = busy()
    taken = 0
    with pytest.raises(DeadlineExceeded, match=r"cannot be met: 28 rows are before it and 2000 ms are left"):
        for _ in range(40):
            bench.offer(ask(deadline=2.0))
            taken += 1
    bench.offer(ask(), ask(deadline=30.0))
    bench.feed()

    assert taken == 28, "of which 20 would be in time if nothing were faster than learned"
    assert bench.stats.expired == 1


def busy() -> Bench:
    """One instance, which runs something already."""
    bench = Bench(Adaptive(8, {1: 0.1, 8: 0.8}))
    bench.join()
    bench.offer(ask())
    bench.feed()
    return bench


def test_with_nobody_waiting_nobody_is_refused_on_arrival() -> None:
    bench = Bench(Adaptive(8, {1: 0.1, 8: 0.8}))
    instance = bench.join()
    bench.offer(ask())
    bench.feed()
    assert instance.batches, "it runs, and the queue is empty"
    bench.offer(ask(deadline=0.001))

    assert len(bench.batcher.queue) == 1


def test_one_that_overtakes_those_who_wait_is_taken() -> None:
    bench = busy()
    bench.offer(*(ask(deadline=20.0) for _ in range(8)))
    bench.offer(ask(deadline=0.3))

    assert len(bench.batcher.queue) == 9


def test_only_the_rows_it_would_leave_behind_are_counted_and_none_without_a_deadline() -> None:
    policy = Scripted()
    bench = Bench(policy)
    bench.offer(ask(rows=3, deadline=5.0), ask(group="other"), ask(deadline=50.0), ask(deadline=60.0, priority=1))

    assert [ahead for what, ahead in policy.told if what == "hopeless"] == [3, 0]
    assert math.inf not in [ahead for _, ahead in policy.told]


def test_a_slow_time_is_no_reason_to_refuse() -> None:
    curve = CostCurve(8, {1: 0.001, 8: 0.002})
    for _ in range(3):
        learn(curve, 8, 0.0065)  # a busy neighbour

    assert CAUTION * (curve.total(8) + curve.seconds[1]) > 0.006
    assert not is_hopeless(curve, 0.006, 8, 1, 1)


def test_workers_that_stood_still_do_not_make_a_minute_too_short() -> None:
    curve = CostCurve(8, {1: 0.001, 8: 0.002})
    for seconds in (8.0, 8.0, 8.0, 0.002, 9.0, 9.0, 9.0):
        learn(curve, 8, seconds)

    assert not is_hopeless(curve, 60.0, 200, 1, 1)

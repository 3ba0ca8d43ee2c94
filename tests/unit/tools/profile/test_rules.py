import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.tools.profile.rules import Limits, Row, best_under, can_repeat, disturbed, is_enough, knee, row_of, why_stop

SEEN = {1: 2.75, 2: 3.89, 4: 5.88, 8: 10.7, 16: 19.4, 32: 37.3, 64: 70.5, 128: 136.0, 256: 262.0}  # ms, a real model


def row(size: int, total: float, memory: int = 0) -> Row:
    return Row(size, 5, total, total, total, total / size, size / total, {}, memory, 0)


ROWS = [row(size, ms / 1000) for size, ms in SEEN.items()]


def test_a_size_is_summed_up_by_its_median_and_the_middle_of_its_runs() -> None:
    totals = [0.010 * number for number in range(1, 12)]

    found = row_of(4, totals[::-1], {"inference": [3.0, 1.0, 2.0]}, 7, 8)

    assert found.total == pytest.approx(0.06)
    assert [found.low, found.high] == pytest.approx([0.02, 0.10])
    assert found.per_item == pytest.approx(0.015)
    assert found.per_second == pytest.approx(4 / 0.06)
    assert found.stages == {"inference": 2.0}
    assert (found.runs, found.memory, found.device_memory) == (11, 7, 8)


def test_a_size_is_run_often_and_long_enough() -> None:
    limits = Limits(per_size=1.0, least_runs=5)

    assert not is_enough([1.0] * 4, limits)
    assert is_enough([1.0] * 5, limits)
    assert not is_enough([0.01] * 99, limits)
    assert is_enough([0.0] * 1000, limits)


def test_the_first_size_is_always_tried() -> None:
    assert why_stop([], 1, 999.0, Limits(total=1.0), 1) == ""


def test_it_stops_when_the_next_size_would_not_fit_into_the_time() -> None:
    limits = Limits(least_runs=5, total=10.0)

    assert why_stop([row(8, 0.5)], 16, 4.0, limits, 0) == ""  # 6 runs of 1 s are left
    assert why_stop([row(8, 0.5)], 16, 4.1, limits, 0).startswith("time: batch size 16")


def test_it_stops_when_the_next_size_would_not_fit_into_memory() -> None:
    rows = [row(8, 0.001, memory=1_000_000_000)]

    assert why_stop(rows, 16, 0.0, Limits(), 1_300_000_000) == ""
    assert why_stop(rows, 16, 0.0, Limits(), 1_200_000_000).startswith("memory: batch size 16")
    assert why_stop(rows, 16, 0.0, Limits(), 0) == ""


def test_the_knee_is_the_smallest_size_near_the_best() -> None:
    assert knee(ROWS) == 64
    assert knee([]) == 0
    assert knee([row(1, 1.0), row(2, 4.0)]) == 1


def test_a_goal_between_two_sizes_is_met_between_them() -> None:
    best = best_under(ROWS, 0.050)

    assert best is not None
    assert best.size == 44  # 37.3 ms + 12 * 33.2 / 32 ms
    assert best.total == pytest.approx(0.0373 + 12 * 0.0332 / 32)


def test_a_goal_above_all_sizes_takes_the_best_that_was_measured() -> None:
    whole = best_under(ROWS, 10.0)
    assert whole is not None and (whole.size, whole.total) == (256, 0.262)
    found = best_under([row(1, 1.0), row(2, 4.0)], 10.0)
    assert found is not None and found.size == 1


def test_a_goal_that_a_single_item_misses_has_no_batch() -> None:
    assert best_under(ROWS, 0.002) is None


def test_a_goal_that_a_disturbed_size_misses_is_met_by_the_others() -> None:
    found = best_under([row(1, 0.069), row(2, 0.012), row(4, 0.010), row(8, 0.015), row(16, 0.023)], 0.020)

    assert found is not None and found.size == 13


def test_a_size_is_disturbed_where_a_larger_one_took_clearly_less() -> None:
    assert disturbed(ROWS) == []
    assert disturbed([]) == []
    assert disturbed([row(1, 0.0010), row(2, 0.0009), row(4, 0.0009)]) == []  # as long for any batch
    assert disturbed(rows := [row(1, 0.069), row(2, 0.012), row(4, 0.005), row(8, 0.004)]) == rows[:2]
    assert disturbed(rows := [row(1, 0.001), row(2, 0.9), row(4, 0.004)]) == rows[1:2]


def test_a_size_is_measured_again_only_if_there_is_time() -> None:
    limits = Limits(per_size=1.0, least_runs=5, total=10.0)

    assert can_repeat(row(1, 0.01), 9.0, limits)
    assert not can_repeat(row(1, 0.01), 9.1, limits)
    assert can_repeat(row(1, 1.0), 4.0, limits)
    assert not can_repeat(row(1, 1.0), 4.1, limits), "six runs of a second each"


@given(st.lists(st.floats(0.001, 10.0), min_size=1, max_size=9), st.floats(0.0005, 20.0))
def test_what_a_goal_allows_is_within_it(times: list[float], goal: float) -> None:
    rows = [row(2**place, time) for place, time in enumerate(times)]

    best = best_under(rows, goal)

    if best is None:
        assert min(times) > goal
    else:
        assert best.total <= goal * (1 + 1e-9)
        assert best.per_second == pytest.approx(best.size / best.total)
        assert best.per_second >= max(each.per_second for each in rows if each.total <= goal)

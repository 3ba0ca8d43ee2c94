import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core.cost import (
    COLD_CAP,
    LEAP,
    LEAST,
    PASSING,
    PROBES,
    TRUSTED,
    CostCurve,
    interpolate,
    key_of,
    never_falling,
)
from tests.unit.core.adaptive_server import learn

FLAT = {1: 0.0201, 256: 0.0456}
DENTED = {1: 0.0022, 2: 0.0060, 3: 0.0078, 4: 0.0080}  # two together take longer than one after the other
PEAKED = {8: 0.140, 16: 0.260, 32: 0.440, 64: 1.040}  # 32 rows are the most efficient


def taught(curve: CostCurve, costs: dict[int, float], times: int = 20) -> CostCurve:
    for _ in range(times):
        for rows, seconds in costs.items():
            learn(curve, rows, seconds)
    return curve


def test_a_curve_that_knows_nothing_asks_for_small_batches() -> None:
    curve = CostCurve(256)

    assert not curve.is_known
    assert curve.cap == COLD_CAP
    assert CostCurve(4).cap == 4


def test_one_size_is_enough_to_know_something() -> None:
    curve = CostCurve(256)

    assert learn(curve, 4, 0.010)
    assert curve.seconds[4] == pytest.approx(0.010)
    assert curve.seconds[1] < 0.010 < curve.seconds[8]


def test_sizes_count_exactly_up_to_eight_and_by_quarter_octaves_above() -> None:
    assert [key_of(rows) for rows in range(1, 9)] == list(range(1, 9))
    assert key_of(9) > key_of(8)
    assert key_of(16) + 4 == key_of(32)
    assert key_of(250) == key_of(256)


def test_between_sizes_seen_the_curve_is_a_straight_line_and_it_goes_on_beyond_them() -> None:
    table = interpolate({2: 0.010, 4: 0.020, 8: 0.060}, 10)

    assert table[3] == pytest.approx(0.015)
    assert table[6] == pytest.approx(0.040)
    assert table[10] == pytest.approx(0.080)
    assert table[0] == LEAST


def test_the_curve_never_falls() -> None:
    table = CostCurve(32, {1: 0.010, 4: 0.030, 8: 0.020, 16: 0.040}).seconds

    assert table == sorted(table)


def test_a_sample_weighs_at_least_five_percent() -> None:
    curve = taught(CostCurve(8), {1: 0.010, 2: 0.011}, times=1000)
    even = curve.seconds[1] / curve.pace
    learn(curve, 1, 0.015)  # not so far off that the whole curve shifts

    curve.refit()
    assert curve.pace == pytest.approx(1.0)  # one surprise says nothing about the pace
    assert curve.seconds[1] / curve.pace == pytest.approx(0.95 * even + 0.05 * 0.015)


def test_a_slower_time_of_all_sizes_passes_without_a_trace() -> None:
    curve = taught(CostCurve(64), PEAKED, times=50)
    for slower in (1.3, 1.6, 1.9, 2.5, 3.5, 2.4, 1.7, 1.2, 1.0):
        for _ in range(40):
            learn(curve, 32, 0.440 * slower)  # the others are not tried meanwhile

    for rows in (8, 16, 32, 64):
        assert curve.profile()[rows] == pytest.approx(PEAKED[rows], rel=0.25)


def test_a_grown_curve_is_fitted_every_sixteen_samples_and_a_young_one_at_once() -> None:
    curve = CostCurve(8)
    assert all(learn(curve, 1, 0.010) for _ in range(4))
    taught(curve, {1: 0.010}, times=200)
    while not learn(curve, 1, 0.010):
        pass

    assert [learn(curve, 1, 0.010) for _ in range(16)] == [False] * 15 + [True]


def test_a_fit_that_is_merely_due_waits_until_it_is_asked_for() -> None:
    curve = CostCurve(8)
    assert curve.learn(1, 0.010)  # the first of all: without it nothing is known
    taught(curve, {1: 0.010}, times=200)
    curve.refit()
    fitted = curve.seconds[1]
    for count in range(20):
        assert curve.is_due == (count >= 16)
        assert not curve.learn(1, 0.0105)
    assert curve.seconds[1] == fitted
    curve.refit()
    assert not curve.is_due
    assert curve.seconds[1] > fitted


def test_where_larger_is_never_worse_the_cap_grows_to_the_limit() -> None:
    curve = CostCurve(256)
    largest = 0
    for _ in range(100):
        largest = max(largest, curve.cap)
        learn(curve, curve.cap, 0.020 + 0.0001 * curve.cap)

    assert largest == 256


def test_unseen_sizes_are_tried_up_to_four_times_the_largest_seen() -> None:
    curve = taught(CostCurve(256), {1: 0.020, 8: 0.021})

    assert curve.cap == 32


def test_the_cap_is_the_size_of_most_rows_a_second() -> None:
    assert taught(CostCurve(256), PEAKED).cap == 32


def test_sizes_as_good_as_the_best_give_way_to_the_largest() -> None:
    curve = taught(CostCurve(32), {8: 0.082, 16: 0.160, 32: 0.352}, times=100)
    assert curve.cap == 16
    taught(curve, {8: 0.082, 16: 0.160, 32: 0.3216}, times=200)  # now only half a percent worse

    assert curve.cap == 32


def test_a_little_better_is_not_enough_to_change_the_cap() -> None:
    curve = taught(CostCurve(64), {16: 0.160, 32: 0.330, 64: 1.040}, times=100)
    assert curve.cap == 16
    taught(curve, {16: 0.160, 32: 0.3145}, times=200)  # now 1.7 % better than 16

    assert curve.cap == 16
    taught(curve, {16: 0.160, 32: 0.290}, times=200)
    assert curve.cap == 32


def test_a_stale_size_is_worth_another_look() -> None:
    curve = taught(CostCurve(64), PEAKED, times=2)
    caps = set()
    for _ in range(16 * 400):
        learn(curve, 32, 0.440)
        caps.add(curve.cap)

    assert max(caps) == 64


@pytest.mark.parametrize("factor", [10.0, 0.1])
def test_a_model_that_changed_as_a_whole_is_known_again_after_three_batches(factor: float) -> None:
    curve = taught(CostCurve(64), PEAKED, times=50)
    for _ in range(3):
        learn(curve, 16, 0.260 * factor)

    for rows in (8, 16, 32, 64):
        assert curve.profile()[rows] == pytest.approx(PEAKED[rows] * factor, rel=0.15)


def test_a_worker_that_stood_still_is_not_taken_for_a_model_a_thousand_times_slower() -> None:
    curve = taught(CostCurve(64), PEAKED, times=50)
    for _ in range(3):
        learn(curve, 16, 1000 * 0.260)
    assert curve.profile()[32] < 20 * 0.440

    for _ in range(3):
        learn(curve, 16, 0.260)
    assert curve.profile()[32] == pytest.approx(0.440, rel=0.2)


@given(st.lists(st.tuples(st.integers(1, 64), st.floats(1e-4, 10.0)), max_size=200))
def test_what_is_expected_was_never_beyond_what_was_seen_by_more_than_may_pass(
    samples: list[tuple[int, float]],
) -> None:
    curve = CostCurve(64)
    for rows, seconds in samples:
        learn(curve, rows, seconds)
        assert 1 / PASSING <= curve.pace <= PASSING

    if samples:
        slowest = max(seconds for _, seconds in samples)
        assert max(curve.profile().values()) <= LEAP * PASSING * slowest


def test_one_stalled_batch_does_not_shift_the_curve() -> None:
    curve = taught(CostCurve(64), PEAKED, times=50)
    for seconds in (5.0, 0.260, 0.260, 5.0, 0.260):
        learn(curve, 16, seconds)
        assert curve.profile()[32] == pytest.approx(0.440, rel=0.03)


def test_a_profile_starts_the_curve_warm_and_comes_back_out() -> None:
    curve = CostCurve(256, FLAT)

    assert curve.cap == 256
    assert curve.seconds[100] == pytest.approx(0.0300, rel=0.01)
    assert CostCurve(256, curve.profile()).seconds == pytest.approx(curve.seconds)


def test_a_profile_with_nonsense_in_it_is_taken_without_the_nonsense() -> None:
    curve = CostCurve(256, {0: 0.1, -3: 0.1, 2: math.nan, 3: math.inf, 4: -1.0, 5: 0.0})

    assert not curve.is_known


def test_what_a_profile_says_counts_until_a_size_is_met_and_then_for_the_others_at_its_speed() -> None:
    curve = taught(CostCurve(64), {1: 0.010, 16: 0.020, 64: 0.040})
    warm = CostCurve(64, {1: 0.020, 16: 0.040, 64: 0.080})  # the same model where everything takes twice as long
    learn(warm, 16, 0.020)

    assert warm.cap == 64
    assert warm.seconds[1:] == pytest.approx(curve.seconds[1:], rel=0.01)


def test_the_first_batch_of_a_size_may_be_slow_without_unsaying_the_profile() -> None:
    curve = CostCurve(64, {1: 0.010, 16: 0.020, 64: 0.050})
    for seconds in (0.200, 0.150):  # a device gets ready
        learn(curve, 16, seconds)
        assert curve.seconds[16] == pytest.approx(0.020)
    learn(curve, 16, 0.021)

    assert curve.seconds[16] == pytest.approx(0.020, rel=0.05)
    assert curve.seconds[64] == pytest.approx(0.050)


def test_a_worker_that_stood_still_thrice_does_not_unsay_the_profile_but_a_slow_machine_does() -> None:
    curve = CostCurve(64, {1: 0.010, 16: 0.020, 64: 0.050})
    for _ in range(3):
        learn(curve, 16, 4.0)
    assert curve.seconds[16] == pytest.approx(0.020)

    for _ in range(3):
        learn(curve, 16, 4.0)
    assert curve.seconds[16] == pytest.approx(4.0)


def test_a_profile_may_promise_and_not_forbid() -> None:
    slow, fast = CostCurve(64, {1: 0.020, 4: 0.200}), CostCurve(64, {1: 0.020, 4: 0.021})
    assert slow.cap == 1
    for curve in (slow, fast):
        for _ in range(3):
            learn(curve, 1, 0.020)

    assert slow.cap == 8, "larger batches are tried as if nothing were known of them"
    assert slow.first_of(4) == 4
    assert slow.seconds[4] == pytest.approx(0.050), "half of a lone row's time is taken to be fixed"
    assert fast.cap == 16
    assert fast.seconds[4] == pytest.approx(0.021)


def test_a_profile_that_was_right_of_two_batches_is_believed_in_its_warnings_until_it_is_wrong() -> None:
    curve = CostCurve(64, {1: 0.035, **PEAKED})
    assert curve.cap == 32
    learn(curve, 1, 0.035)
    learn(curve, 16, 0.260)
    assert not curve.is_borne_out
    assert curve.cap == 64, "64 are tried, though the profile says that they are slow"
    learn(curve, 8, 0.140)
    assert curve.is_borne_out
    assert curve.cap == 32

    for _ in range(3):
        learn(curve, 32, 0.700)
    assert not curve.is_borne_out
    assert curve.seconds[64] == pytest.approx(3 * 0.700 - 2 * 0.260, rel=0.01), "a straight line through what was met"


def test_a_batch_that_costs_more_here_whatever_its_size_does_not_speak_against_a_profile() -> None:
    more = 0.002  # to hand it over
    curve = CostCurve(64, {1: 0.004, 8: 0.016, 16: 0.028, 32: 0.050, 64: 0.130})
    for _ in range(3):
        learn(curve, 1, 0.004 + more)
    assert curve.seconds[1] == pytest.approx(0.006)
    for rows, seconds in ((8, 0.016), (16, 0.028)):
        learn(curve, rows, seconds + more)

    assert curve.is_borne_out
    assert curve.cap == 32


def test_rows_are_not_parted_by_what_a_profile_says_alone() -> None:
    curve = CostCurve(256, DENTED)
    assert curve.first_of(2) == 2
    for _ in range(3):
        learn(curve, 1, DENTED[1])
        learn(curve, 2, DENTED[2])

    assert curve.first_of(2) == 1


def test_total_counts_batches_of_at_most_the_cap() -> None:
    curve = taught(CostCurve(256), PEAKED)

    assert curve.total(0) == 0.0
    assert curve.total(70) == pytest.approx(2 * curve.seconds[32] + curve.seconds[6])


def test_a_few_more_than_the_best_size_are_one_batch_where_a_rest_would_make_it_longer() -> None:
    curve = taught(CostCurve(256), {1: 0.0082, 5: 0.0212, 6: 0.0265})

    assert curve.cap == 5
    assert [curve.most(rows) for rows in (4, 5, 6, 11, 60)] == [5, 5, 6, 5, 5]
    assert curve.total(6) == curve.seconds[6]


@pytest.mark.parametrize(
    "costs",
    [
        {1: 0.0020, 5: 0.0100, 6: 0.0200},  # five and one are done sooner,
        {1: 0.0050, 3: 0.0060, 5: 0.0090, 6: 0.0130},  # twice three
    ],
)
def test_a_few_more_than_the_best_size_are_parted_where_that_is_shorter(costs: dict[int, float]) -> None:
    curve = taught(CostCurve(256), costs)

    assert curve.cap == 5
    assert curve.most(6) == 5


def test_one_batch_of_a_few_more_is_never_larger_than_is_allowed() -> None:
    curve = taught(CostCurve(6), {1: 0.0082, 5: 0.0212, 6: 0.0265})

    assert [curve.most(rows) for rows in (6, 7)] == [6, 5]


def test_a_batch_that_took_no_time_is_no_division_by_zero() -> None:
    curve = CostCurve(8)
    for _ in range(10):
        learn(curve, 1, 0.0)

    assert curve.seconds[1] > 0.0


def test_fitting_is_the_largest_batch_that_ends_in_time() -> None:
    curve = taught(CostCurve(256), PEAKED)

    assert curve.fitting(0.440) == 32
    assert curve.fitting(0.0) < 1


@given(st.lists(st.tuples(st.floats(0.001, 10), st.floats(0.1, 100)), min_size=1, max_size=12))
def test_evened_out_values_never_fall_and_keep_their_weighted_mean(samples: list[tuple[float, float]]) -> None:
    evened = never_falling(samples)

    assert all(low <= high * (1 + 1e-9) for low, high in pairwise(evened))
    total = sum(weight for _, weight in samples)
    before = sum(value * weight for value, weight in samples) / total
    after = sum(value * weight for value, (_, weight) in zip(evened, samples, strict=True)) / total
    assert after == pytest.approx(before)


def test_values_that_never_fall_are_left_alone() -> None:
    assert never_falling([(1.0, 5.0), (2.0, 1.0), (2.0, 9.0), (3.0, 1.0)]) == [1.0, 2.0, 2.0, 3.0]


def test_one_lucky_sample_does_not_choose_the_batch_size() -> None:
    curve = CostCurve(32)
    for _ in range(40):
        for rows in (4, 8, 16, 32):
            learn(curve, rows, 0.001 + 0.00002 * rows)

    learn(curve, 11, 0.0004)  # measured once, in a quiet moment

    assert curve.cap == 32


def test_a_size_that_is_slow_the_first_time_gets_another_chance() -> None:
    curve = taught(CostCurve(256), dict.fromkeys(range(1, 8), 0.0029))

    for rows in (8, 10, 13, 16, 20, 27):  # a device prepares each size it has not seen, and that takes long
        learn(curve, rows, 0.022)
        assert curve.cap > rows, "one bad start must not keep larger batches away"

    for _ in range(5):
        for rows in (8, 10, 13, 16, 20, 27):
            learn(curve, rows, 0.0032)
    assert curve.cap >= 27
    assert curve.seconds[20] == pytest.approx(0.0032, rel=0.1)


def test_a_size_that_stays_slow_is_left_alone() -> None:
    curve = taught(CostCurve(256), dict.fromkeys(range(1, 9), 0.0029))
    for _ in range(4):
        learn(curve, 16, 0.100)

    assert curve.cap <= 8


def test_a_smaller_size_is_not_tried_out_of_mere_curiosity() -> None:
    curve = CostCurve(64, {16: 0.0163, 32: 0.032})  # 16 is 2 % worse, and little is known of it
    for _ in range(200):
        learn(curve, 32, 0.032)
        assert curve.cap == 64


def test_a_few_rows_leave_one_after_the_other_where_together_they_take_longer() -> None:
    curve = taught(CostCurve(256), DENTED)

    assert [curve.first_of(rows) for rows in range(1, 10)] == [1, 1, 1, 4, 5, 6, 7, 8, 9]
    assert curve.total(3) == pytest.approx(0.0066)


def test_a_size_that_was_tried_too_seldom_or_long_ago_is_not_parted() -> None:
    curve = CostCurve(256)
    for _ in range(20):
        learn(curve, 1, 0.0022)
    for _ in range(2):
        learn(curve, 2, 0.0060)
        assert curve.first_of(2) == 2
    learn(curve, 2, 0.0060)
    assert curve.first_of(2) == 1

    batches = 0
    while curve.first_of(2) == 1:
        learn(curve, 1, 0.0022)
        batches += 1
    assert 500 < batches < 5000, "now and then it is tried again, for the model may have changed"


@given(st.dictionaries(st.integers(1, 12), st.floats(1e-4, 0.1), min_size=1), st.integers(1, 64), st.integers(3, 6))
def test_parting_takes_no_longer_than_going_together(costs: dict[int, float], limit: int, times: int) -> None:
    curve = taught(CostCurve(limit), {rows: cost for rows, cost in costs.items() if rows <= limit}, times)

    for rows in range(1, limit + 1) if curve.is_known else ():
        first, took, left = curve.first_of(rows), 0.0, rows
        assert 1 <= first <= rows
        while left:
            took += curve.seconds[curve.first_of(left)]
            left -= curve.first_of(left)
        assert took <= curve.seconds[rows] * (1 + 1e-9)


def test_a_long_queue_tries_sizes_beyond_a_dent() -> None:
    curve = taught(CostCurve(256), {1: 0.0022, 2: 0.0060, 3: 0.0078})
    assert curve.cap == 1, "of what was tried, one by one is fastest"

    for size in (12, 48, 192):
        cap = curve.cap
        assert curve.beyond == size if cap == 1 else cap >= size
        for _ in range(3):
            learn(curve, size, 0.007 + 0.0002 * size)
    assert curve.cap == 256


@pytest.mark.parametrize(("seconds", "beyond"), [(0.030, 32), (0.060, 0)])
def test_larger_sizes_are_tried_unless_the_largest_is_far_from_the_best(seconds: float, beyond: int) -> None:
    assert taught(CostCurve(256), {1: 0.0022, 8: seconds}).beyond == beyond


def test_a_size_that_cannot_be_had_is_not_tried_for_ever() -> None:
    curve = taught(CostCurve(256), {1: 0.0022, 8: 0.030})
    for _ in range(PROBES):
        assert curve.beyond == 32
        curve.probed(32)
        learn(curve, 4, 0.015)  # all there was memory for
    assert taught(curve, {1: 0.0022, 8: 0.030}).beyond == 0


def test_nothing_is_beyond_the_limit() -> None:
    assert taught(CostCurve(8), {1: 0.0022, 8: 0.030}).beyond == 0


def test_one_of_few_rows_is_wanted_alone_while_nobody_knows_what_it_takes() -> None:
    curve = CostCurve(256)
    for _ in range(TRUSTED):
        assert not curve.wants_single(2), "what the two take together is not known either"
        learn(curve, 2, 0.014)
    assert [curve.wants_single(rows) for rows in (1, 2, 3)] == [False, True, False]

    for _ in range(TRUSTED):
        assert curve.wants_single(2)
        curve.probed(1)
        learn(curve, 1, 0.005)
    assert not curve.wants_single(2)
    assert curve.first_of(2) == 1


def test_a_lone_row_that_teaches_nothing_is_not_wanted_for_ever() -> None:
    curve = taught(CostCurve(256), {2: 0.014})
    for _ in range(PROBES):
        assert curve.wants_single(2)
        curve.probed(1)
    assert not curve.wants_single(2)


def test_a_profile_says_what_a_lone_row_takes() -> None:
    assert not taught(CostCurve(256, {1: 0.005}), {2: 0.014}).wants_single(2)

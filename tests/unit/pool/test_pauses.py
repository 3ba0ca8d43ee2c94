import math

from hypothesis import given
from hypothesis import strategies as st

from shoal.pool.pauses import FIRST, LONGEST, after_deaths, after_failed_starts, explained


def test_the_first_start_after_a_failed_one_comes_at_once_and_later_ones_wait_longer() -> None:
    pauses = [after_failed_starts(failures) for failures in range(20)]

    assert pauses[:3] == [0.0, 0.0, 0.1]
    assert pauses == sorted(pauses)
    assert max(pauses) == 55.0


@given(rows=st.integers(1, 65536), attempts=st.integers(1, 10))
def test_one_bad_request_never_delays_a_restart(rows: int, attempts: int) -> None:
    size, deaths = rows, 1  # it is in a batch of that many, whose worker dies; then in the larger half, and so on
    while size > 1:
        size = (size + 1) // 2
        deaths += 1
    deaths += max(0, attempts - deaths)  # alone, it is tried until it was given to that many workers

    assert after_deaths(deaths, explained(rows, attempts)) == 0.0


@given(free=st.integers(0, 40), deaths=st.integers(0, 5000))
def test_pauses_never_shrink_as_deaths_go_on_and_are_bounded(free: int, deaths: int) -> None:
    pause = after_deaths(deaths, free)

    assert 0.0 <= pause <= LONGEST
    assert pause <= after_deaths(deaths + 1, free)
    assert (pause > 0.0) is (deaths > free)


def test_a_model_that_crashes_on_everything_waits_twice_as_long_each_time() -> None:
    pauses = [after_deaths(10 + over, 10) for over in range(1, 12)]

    assert pauses[:4] == [FIRST, 2 * FIRST, 4 * FIRST, 8 * FIRST]
    assert pauses[-1] == LONGEST
    assert math.isclose(sum(pauses), sum(min(LONGEST, FIRST * 2**n) for n in range(11)))

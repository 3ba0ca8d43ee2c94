import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.frontend.dashboard.latencies import STEPS, Latencies, percentiles


def counted(*seconds: float) -> Latencies:
    latencies = Latencies()
    latencies.update(seconds)
    return latencies


def test_nothing_has_no_percentiles() -> None:
    assert percentiles([], 0.5, 0.99) == [None, None]
    assert percentiles([Latencies()], 0.5) == [None]


@given(st.lists(st.floats(1.1e-6, 1000.0), min_size=1, max_size=200), st.sampled_from([0.5, 0.95, 0.99]))
def test_a_percentile_is_off_by_no_more_than_a_step(durations: list[float], share: float) -> None:
    exact = sorted(durations)[max(0, math.ceil(share * len(durations)) - 1)]

    (found,) = percentiles([counted(*durations)], share)

    assert found == pytest.approx(1000 * exact, rel=2 ** (1 / STEPS) - 1, abs=0.001)


def test_several_are_taken_together() -> None:
    parts = [counted(0.001), counted(0.1, 0.1, 0.1)]

    assert percentiles(parts, 0.25, 0.5) == [pytest.approx(1, rel=0.05), pytest.approx(100, rel=0.05)]
    assert sum(part.count for part in parts) == 4


def test_what_took_no_time_counts_too() -> None:
    assert percentiles([counted(0.0, -1.0, 1e-9)], 0.99) == [0.001]

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.tools.histogram import Histogram, merged, quantiles

DURATIONS = st.lists(st.floats(1e-6, 1e4), min_size=1, max_size=200)


def of(values: list[float]) -> Histogram:
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    return histogram


@given(DURATIONS, st.sampled_from([0.01, 0.5, 0.9, 0.99, 0.999, 1.0]))
def test_a_quantile_is_right_to_half_a_per_cent(values: list[float], share: float) -> None:
    ordered = sorted(values)
    exact = next(value for place, value in enumerate(ordered, 1) if place >= share * len(ordered) - 1e-9)

    assert of(values).quantile(share) == pytest.approx(exact, rel=0.005)


@given(DURATIONS)
def test_mean_count_and_extremes_are_exact(values: list[float]) -> None:
    histogram = of(values)

    assert histogram.count == len(values)
    assert histogram.mean == pytest.approx(sum(values) / len(values))
    assert (histogram.shortest, histogram.longest) == (min(values), max(values))


@given(st.lists(st.lists(st.floats(1e-6, 1e4), max_size=50), max_size=5))
def test_merging_is_as_if_all_had_been_counted_in_one(parts: list[list[float]]) -> None:
    together = merged(map(of, parts))
    whole = of([value for part in parts for value in part])

    assert together.counts == whole.counts
    assert together.total == pytest.approx(whole.total)
    assert (together.shortest, together.longest) == (whole.shortest, whole.longest)


def test_nothing_has_no_quantiles() -> None:
    assert quantiles({}, [0.5]) == []
    assert (Histogram().quantile(0.5), Histogram().mean) == (0.0, 0.0)


def test_a_duration_of_nothing_is_counted() -> None:
    assert of([0.0, -1e-9]).count == 2


def test_histograms_do_not_share_their_counts() -> None:
    of([1.0])

    assert Histogram().count == 0

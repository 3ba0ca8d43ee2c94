import pytest

from shoal.clock import stood_still


@pytest.mark.parametrize(("now", "seconds"), [(9.5, 0.0), (10.0, 0.0), (11.0, 0.0), (11.5, 1.5), (400.0, 390.0)])
def test_a_process_that_is_late_by_more_than_a_period_stood_still(now: float, seconds: float) -> None:
    assert stood_still(due=10.0, now=now, period=1.0) == seconds

"""Budgets."""

from hypothesis import given
from hypothesis import strategies as st

from shoal.frontend.http2.budget import Budget


def test_a_burst_is_allowed_and_no_more() -> None:
    budget = Budget(3, 1.0, 0.0)

    assert [budget.spend(0.0) for _ in range(4)] == [True, True, True, False]


def test_it_comes_back_with_time_up_to_its_size() -> None:
    budget = Budget(2, 1.0, 0.0)
    budget.spend(0.0), budget.spend(0.0)

    assert budget.spend(1.0)
    assert not budget.spend(1.5)
    assert [budget.spend(100.0) for _ in range(3)] == [True, True, False]


@given(st.lists(st.floats(0, 5), max_size=200))
def test_in_the_long_run_the_rate_holds(steps: list[float]) -> None:
    budget, now, allowed = Budget(10, 2.0, 0.0), 0.0, 0
    for step in steps:
        now += step
        allowed += budget.spend(now)

    assert allowed <= 10 + 2.0 * now + 1e-6

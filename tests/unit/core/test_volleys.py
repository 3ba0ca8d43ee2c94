"""Whether arrivals come in volleys, and whether a first one should wait for the rest."""

import pytest

from shoal.core.volleys import ENOUGH, LATELY, Volleys, is_worth


def volleys_of(followers: int, count: int = ENOUGH + 1) -> Volleys:
    volleys = Volleys()
    for number in range(count):
        volleys.opened(float(number))
        for step in range(followers):
            assert volleys.followed(1, number + 0.0001 * (step + 1), 0.01)
    return volleys


def test_followers_are_counted_and_timed() -> None:
    rows, within = volleys_of(10).usual()

    assert rows == 10
    assert within == pytest.approx(0.001)


def test_those_of_a_volley_who_are_here_are_not_waited_for() -> None:
    volleys = volleys_of(10)
    volleys.opened(100.0)
    rows, until = volleys.to_come(0.01)
    assert rows == 10
    assert until == pytest.approx(100.001)

    for step in range(4):
        volleys.followed(1, 100.0 + 0.0001 * step, 0.01)
    assert volleys.to_come(0.01) == (6, until), "the time counts from the first, whoever is here"

    for step in range(20):
        volleys.followed(1, 100.0005 + 0.0001 * step, 0.01)
    assert volleys.to_come(0.01)[0] == 0
    assert volleys.to_come(0.0005)[1] == 100.0005


def test_a_few_volleys_are_no_custom() -> None:
    assert volleys_of(10, ENOUGH).usual() == (0, 0.0)  # the last one is not over
    assert volleys_of(10, ENOUGH + 1).usual()[0] == 10


def test_what_has_not_come_lately_is_not_waited_for() -> None:
    volleys = volleys_of(50, 33)
    for number in range(33, 33 + LATELY + 1):
        volleys.opened(float(number))

    assert volleys.usual() == (0, 0.0)


def test_waiting_is_worth_it_where_the_followers_gain_more_than_the_first_loses() -> None:
    flat = [0.020] * 11
    steep = [0.001 * rows for rows in range(11)]

    assert is_worth(flat, 1, 10, 0.002)
    assert not is_worth(steep, 1, 10, 0.002)

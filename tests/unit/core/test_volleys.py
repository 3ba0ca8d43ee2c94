"""Whether arrivals come in volleys, and whether a first one should wait for the rest."""

from shoal.core.volleys import ENOUGH, Volleys, is_worth


def volleys_of(followers: int, count: int = ENOUGH + 1) -> Volleys:
    volleys = Volleys()
    for number in range(count):
        volleys.opened(float(number))
        for step in range(followers):
            assert volleys.followed(1, number + 0.0001 * (step + 1), 0.01)
    return volleys


def test_volleys_are_usual_when_far_more_follow_than_chance_would_bring() -> None:
    assert volleys_of(10).is_usual(rate=100.0, span=0.01)
    assert not volleys_of(10).is_usual(rate=1000.0, span=0.01)


def test_one_follower_is_no_volley() -> None:
    assert not volleys_of(1).is_usual(rate=1.0, span=0.01)


def test_a_few_volleys_are_no_custom() -> None:
    assert not volleys_of(10, ENOUGH).is_usual(rate=100.0, span=0.01)  # the last one is not over
    assert volleys_of(10, ENOUGH + 1).is_usual(rate=100.0, span=0.01)


def test_waiting_is_worth_it_where_the_followers_gain_more_than_the_first_loses() -> None:
    flat = [0.020] * 11
    steep = [0.001 * rows for rows in range(11)]

    assert is_worth(flat, 1, 10, 0.002)
    assert not is_worth(steep, 1, 10, 0.002)

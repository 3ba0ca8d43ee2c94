"""Which requests a new version gets, and when it gets no more: rules without time, processes or models."""

import math
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.config.model import Canary
from shoal.core.canary import PARTS, SLOTS, Share, Tally, Window, is_chosen, parts_of, verdict

WEIGHTS = st.integers(1, PARTS).map(lambda parts: parts * 100 / PARTS)


@given(WEIGHTS, st.integers(0, 300), st.integers(1, 300))
def test_a_share_holds_over_any_requests_in_a_row(weight: float, before: int, count: int) -> None:
    share = Share(weight)
    for _ in range(before):
        share.take()

    taken = sum(share.take() for _ in range(count))

    exact = count * parts_of(weight) / PARTS
    assert math.floor(exact) <= taken <= math.ceil(exact)


def test_a_share_of_everything_is_everything_and_a_tenth_is_every_tenth() -> None:
    everything, tenth = Share(100.0), Share(10.0)

    assert all(everything.take() for _ in range(50))
    assert [tenth.take() for _ in range(20)] == [n in (9, 19) for n in range(20)]


def test_the_smallest_share_is_one_of_ten_thousand() -> None:
    share = Share(0.01)

    assert sum(share.take() for _ in range(3 * PARTS)) == 3


@given(st.text(max_size=40), WEIGHTS, WEIGHTS)
def test_a_client_that_is_chosen_stays_so_at_every_higher_weight(client: str, one: float, other: float) -> None:
    low, high = sorted((parts_of(one), parts_of(other)))

    assert is_chosen(client, high) or not is_chosen(client, low)
    assert is_chosen(client, PARTS)
    assert not is_chosen(client, 0)


def test_clients_are_chosen_about_as_often_as_the_weight_says() -> None:
    chosen = sum(is_chosen(f"10.0.{n // 250}.{n % 250}", parts_of(20.0)) for n in range(5000))

    assert 800 < chosen < 1200


def test_a_window_counts_what_is_recent_and_forgets_the_rest() -> None:
    window = Window(12.0)
    window.answered(0.5, 0.010)
    window.failed(6.5, 2)

    assert window.tally(6.6).ended == 3
    assert window.tally(11.9) == Tally(1, 2, window.tally(6.6).slow)
    assert window.tally(12.1) == Tally(0, 2, 0.0)
    assert window.tally(30.0) == Tally()


def test_a_slot_that_comes_round_again_begins_anew() -> None:
    window = Window(12.0)
    window.answered(0.5, 0.010)
    window.answered(12.5, 0.020)

    assert window.tally(12.6).answered == 1


@given(st.lists(st.tuples(st.floats(0, 1000), st.floats(0, 1e5)), max_size=80))
def test_a_window_keeps_the_same_memory_whatever_comes(events: list[tuple[float, float]]) -> None:
    window = Window(10.0)
    size = _size(window)
    for now, seconds in sorted(events):
        window.answered(now, seconds)
        window.failed(now)

    assert _size(window) == size
    assert window.tally(1000.0).answered <= len(events)


@given(st.lists(st.floats(2e-5, 3600), min_size=1, max_size=60))
def test_nine_of_ten_answers_are_not_above_the_bound_and_it_is_no_higher_than_a_fifth_too_much(
    times: list[float],
) -> None:
    window = Window(60.0)
    for seconds in times:
        window.answered(1.0, seconds)

    slow = window.tally(1.0).slow

    exact = sorted(times)[math.ceil(0.9 * len(times)) - 1]
    assert exact <= slow * 1.000001
    assert slow <= exact * 1.19


RULE = Canary(weight=10.0, min_requests=20, max_errors=5.0, max_slowdown=2.0)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (Tally(1000, 0, 0.01), Tally(20, 0, 0.01), ""),
        (Tally(1000, 0, 0.01), Tally(9, 10, 0.01), ""),  # too few to say
        (Tally(1000, 0, 0.01), Tally(10, 10, 0.01), "10 of its 20 requests failed, and 0 of 1000"),
        (Tally(1000, 0, 0.01), Tally(0, 20), "20 of its 20 requests failed"),
        (Tally(1000, 0, 0.01), Tally(95, 5, 0.01), ""),  # not more than is allowed
        (Tally(1000, 0, 0.01), Tally(94, 6, 0.01), "6 of its 100 requests failed"),
        (Tally(500, 500, 0.01), Tally(10, 10, 0.01), ""),  # the old one is as bad
        (Tally(18, 2, 0.01), Tally(16, 4, 0.01), ""),  # may well be chance
        (Tally(1800, 200, 0.01), Tally(1600, 400, 0.01), "400 of its 2000 requests failed, and 200 of 2000"),
        (Tally(), Tally(18, 2, 0.01), "2 of its 20 requests failed, and 0 of 0"),
        (Tally(), Tally(20, 0, 9.0), ""),  # nothing to compare its time with
        (Tally(1000, 0, 0.01), Tally(20, 0, 0.02), ""),
        (Tally(1000, 0, 0.01), Tally(20, 0, 0.021), "took up to 21 ms, and 10 ms of the old version's"),
        (Tally(19, 0, 0.01), Tally(20, 0, 0.03), ""),  # too few of the old one
        (Tally(1000, 0, 0.01), Tally(19, 1, 0.03), ""),  # too few answers of the new one
    ],
)
def test_a_version_is_taken_back_when_it_is_worse_and_not_by_chance(old: Tally, new: Tally, words: str) -> None:
    found = verdict(RULE, old, new)

    assert bool(found) == bool(words)
    assert words in found


def test_a_version_may_be_as_slow_as_it_likes_where_that_is_said() -> None:
    rule = Canary(max_slowdown=0.0)

    assert verdict(rule, Tally(100, 0, 0.01), Tally(100, 0, 10.0)) == ""


@given(st.integers(0, 500), st.integers(0, 500), st.integers(0, 500), st.integers(0, 500))
def test_a_version_that_fails_less_often_is_never_taken_back_for_its_errors(a: int, b: int, c: int, d: int) -> None:
    old, new = Tally(a, b, 0.01), Tally(c, d, 0.01)

    if new.failing <= old.failing:
        assert verdict(RULE, old, new) == ""


def _size(window: Window) -> int:
    slots = window._slots
    assert len(slots) == SLOTS
    return sum(sys.getsizeof(slot.times) for slot in slots)

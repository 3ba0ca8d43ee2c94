import pytest

from shoal.tools.bench.messages import Slice
from shoal.tools.bench.runner import _measured, alive
from shoal.tools.bench.stability import Window, is_dead, is_enough, spread, window_of
from shoal.tools.histogram import Histogram


def slices(*answered: int, errors: dict[str, int] | None = None) -> list[Slice]:
    return [Slice(number, count, errors=dict(errors or {})) for number, count in enumerate(answered)]


def test_three_windows_must_agree_in_rate_and_in_the_median() -> None:
    steady = [Window(100.0, 0.010), Window(102.0, 0.010), Window(98.0, 0.010)]

    assert spread(steady) == pytest.approx(0.02)
    assert spread([*steady[:2], Window(98.0, 0.020)]) == pytest.approx(0.5)
    assert spread([Window(1.0, 9.0), *steady]) == pytest.approx(0.02)  # what was before does not count


def test_fewer_windows_or_none_answered_are_never_stable() -> None:
    assert spread([]) == spread([Window(100.0, 0.01)] * 2) == 1.0
    assert spread([Window(0.0, 0.0)] * 3) == 1.0


def test_an_open_loop_is_judged_by_the_share_that_is_answered() -> None:
    noisy = [Window(rate, 0.01, 1.0) for rate in (90.0, 100.0, 110.0)]

    assert spread(noisy) == 0.0
    assert spread([*noisy[:2], Window(100.0, 0.01, 0.5)]) > 0.3


def test_windows_in_which_nothing_came_back_are_not_enough_until_a_request_must_have_ended() -> None:
    silent, answered, refused = slices(0, 0), slices(0, 1), slices(0, 0, errors={"timeout": 1})

    assert is_enough([Window(0.0, 0.0)] * 3, answered, 3, 100)
    assert is_enough([Window(0.0, 0.0)] * 3, refused, 3, 100)
    assert not is_enough([Window(0.0, 0.0)] * 2, answered, 3, 100)
    assert not is_enough([Window(0.0, 0.0)] * 99, silent, 3, 100)
    assert is_enough([Window(0.0, 0.0)] * 100, silent, 3, 100)


def test_a_window_is_the_sum_of_its_slices() -> None:
    latencies = Histogram()
    latencies.add(0.25)
    found = window_of([Slice(0, 3, latencies, due=6), Slice(1, 5, due=4)], 0.5)

    assert found.throughput == 8.0
    assert found.p50 == pytest.approx(0.25)
    assert found.share == 0.8


def test_a_server_is_dead_when_only_broken_connections_came_back_for_long_enough() -> None:
    gone = slices(5, 0, 0, 0, 0, errors={"refused": 1})

    assert is_dead(gone, 0.5, 2.0)
    assert not is_dead(gone[:-1], 0.5, 2.0)  # the answers are only 1.5 s ago
    assert not is_dead(slices(0, 0, 0, 0, errors={"503": 1}), 0.5, 2.0)
    assert not is_dead(slices(0, 0, 0, 0), 0.5, 2.0)  # slow, for all we know
    assert not is_dead(slices(0, 0, errors={"refused": 1}), 0.5, 2.0)


def test_what_came_after_a_servers_death_does_not_count() -> None:
    assert [each.answered for each in alive(slices(4, 0, 5, 0, 0, 0))] == [4, 0, 5, 0]
    assert len(alive(slices(0, 0, 0))) == 1


def test_the_last_windows_count_and_the_warm_up_does_not() -> None:
    seen = slices(*range(22))

    assert [each.number for each in _measured(seen, warm=2, each=4, windows=5)] == list(range(10, 22))
    assert [each.number for each in _measured(seen, warm=2, each=4, windows=2)] == list(range(2, 10))
    assert [each.number for each in _measured(seen[:5], warm=2, each=4, windows=0)] == [2, 3, 4]
    assert [each.number for each in _measured(seen[:2], warm=2, each=4, windows=0)] == [0, 1]


def test_the_warm_up_counts_if_a_server_answered_nothing_after_it() -> None:
    left = slices(7, 9, 0)

    assert [each.number for each in _measured(left, warm=2, each=4, windows=0)] == [0, 1, 2]
    assert [each.number for each in _measured(left[:1], warm=2, each=4, windows=0)] == [0]

import math
from collections.abc import Sequence

import msgspec
import pytest

from shoal.errors import InvalidInput
from shoal.tools.bench.results import Level, Piece, Server
from shoal.tools.histogram import Histogram
from shoal.tools.tune.goal import (
    FAILED,
    Goals,
    Merit,
    figures_of,
    gain,
    merit_of,
    read_goals,
)


def level(latencies: list[list[float]], waiting: Sequence[int] = (), **more: object) -> Level:
    """Slices of a tenth of a second with these latencies, and so many requests without an answer at their ends."""
    pieces = []
    for place, found in enumerate(latencies):
        histogram = Histogram()
        for latency in found:
            histogram.add(latency)
        pieces.append(Piece(len(found), histogram.counts, waiting[place] if waiting else 0))
    answered = sum(map(len, latencies))
    made = Level(
        label="",
        kind="closed",
        seconds=0.1 * len(pieces),
        answered=answered,
        throughput=answered / (0.1 * len(pieces)),
        latency={},
        errors={},
        server=Server({}, {}, {}, 0.0, {}),
        pieces=pieces,
        seconds_each=0.1,
    )
    return msgspec.structs.replace(made, **more)


EVEN = level([[0.010] * 10] * 10)  # 100/s at 10 ms


def test_the_most_answers_are_the_goal_where_nothing_is_said() -> None:
    assert read_goals([], is_open=False) == Goals({}, "throughput")


def test_a_rate_makes_p99_the_goal() -> None:
    assert read_goals([], is_open=True) == Goals({}, "p99")


def test_goals_are_read_in_any_order_and_number() -> None:
    assert read_goals(["p99=50ms,memory=2GB", "mean=min"], is_open=False) == Goals({"p99": 0.05, "memory": 2e9}, "mean")


@pytest.mark.parametrize(
    "text",
    ["", "p99", "p99=", "p99=fast", "p98=5ms", "memory=2XB", "memory=0", "throughput=100", "p99=max"],
)
def test_what_is_no_goal_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        read_goals([text], is_open=False)


def test_two_things_cannot_both_be_made_best() -> None:
    with pytest.raises(InvalidInput, match="cannot both be made best"):
        read_goals(["p99=min", "throughput=max"], is_open=False)


def test_the_most_answers_mean_nothing_at_a_rate() -> None:
    with pytest.raises(InvalidInput, match="--rate"):
        read_goals(["throughput=max"], is_open=True)


def test_slices_are_summed_up() -> None:
    figures = figures_of(EVEN.pieces, 0.1)

    assert figures["throughput"] == pytest.approx(100)
    assert all(figures[name] == pytest.approx(0.010, rel=0.01) for name in ("mean", "p50", "p90", "p95", "p99"))
    assert figures_of([], 0.1) == {}


def test_a_setting_within_its_limits_is_as_good_as_its_throughput() -> None:
    merit = merit_of(Goals({"p99": 0.02}), EVEN, 0)

    assert merit.rank == 1
    assert merit.value == pytest.approx(100)


def test_a_setting_beyond_its_limits_is_as_bad_as_the_worst_of_them() -> None:
    merit = merit_of(Goals({"p99": 0.005, "memory": 100.0}), EVEN, 150)

    assert merit.rank == 0
    assert merit.value == pytest.approx(-1, rel=0.02)


def test_a_small_latency_is_better_where_latency_is_the_goal() -> None:
    slow = level([[0.020] * 10] * 10)

    assert merit_of(Goals({}, "p99"), EVEN, 0) > merit_of(Goals({}, "p99"), slow, 0)


def test_a_setting_that_fails_requests_does_not_do_what_it_must() -> None:
    assert merit_of(Goals(), level([[0.01] * 10] * 10, errors={"503": 1}), 0).rank == 0


def test_a_setting_that_falls_behind_its_rate_does_not_do_what_it_must() -> None:
    grows = range(2, 22, 2)

    assert merit_of(Goals({}, "p99"), level([[0.01] * 10] * 10, grows, offered=120.0), 0).rank == 0
    assert merit_of(Goals({}, "p99"), level([[0.01] * 10] * 10, offered=101.0), 0).rank == 1


def test_requests_on_their_way_at_the_end_of_a_short_look_are_not_behind() -> None:
    few = level([[0.02], [0.02] * 2] * 4, [0, 1, 0, 2, 0, 0, 1, 2], offered=14 / 0.8)  # 14 came, 12 were answered

    assert merit_of(Goals({}, "p99"), few, 0).rank == 1


def test_no_answers_are_a_failure() -> None:
    assert merit_of(Goals(), level([[], []]), 0) == FAILED


def test_a_gain_is_a_share_or_without_end() -> None:
    assert gain(Merit(1, 120.0), Merit(1, 100.0)) == pytest.approx(0.2)
    assert gain(Merit(1, 1.0), Merit(0, -0.1)) == math.inf
    assert gain(Merit(0, -0.1), Merit(1, 1.0)) == -math.inf
    assert gain(Merit(0, -0.1), Merit(0, -0.5)) == pytest.approx(1.5 / 1.1 - 1)  # 1.1 and 1.5 times what is allowed
    assert gain(Merit(0, -43.2), Merit(0, -43.8)) == pytest.approx(44.8 / 44.2 - 1)


def test_merits_are_ordered_by_rank_first() -> None:
    assert FAILED < Merit(0, -9.0) < Merit(0, -0.1) < Merit(1, 0.001)


def test_goals_say_what_they_are() -> None:
    assert str(read_goals(["p99=50ms"], is_open=False)) == "p99 50.0 ms at most; the most answers per second"

"""Loops of models with stages that ride in halves: when, and how they come to it."""

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core.adaptive import Adaptive
from shoal.core.batch import Stages
from shoal.core.cost import CostCurve
from shoal.core.halves import AS_GOOD, BETTER, FEWEST, MEMORY, Halves, at_most, is_alike
from shoal.core.policy import Leave
from shoal.core.running import Edges
from tests.unit.core.adaptive_server import Server

PROFILE = {1: 0.002, 25: 0.0062, 50: 0.0075, 100: 0.0107}  # ResNet-50 from photographs on an H200
READING = 0.0032  # seconds for half of 50
BACK = 0.0018  # seconds until 50 are back


def halves(reading: float = READING) -> Halves:
    edges = Edges()
    edges.learn(25, Stages(reading, PROFILE[25] - reading, 0.0))
    return Halves(CostCurve(256, PROFILE), edges)


def ran(model: Halves, rows: int, every: float, *, behind: int, times: int = 3 * MEMORY, since: float = 1.0) -> float:
    """Batches of so many rows, one after the other; when the last ended."""
    for number in range(times):
        model.ended(rows, behind, since + every * number)
    return since + every * (times - 1)


def test_they_are_tried_where_overlapping_could_save_enough() -> None:
    assert halves().half(50, BACK) == 25
    assert halves().half(49, BACK) == 25, "the larger one"


def test_they_are_not_tried_where_little_is_done_beside_inference() -> None:
    assert halves(reading=0.0002).half(50, BACK) == 0


def test_a_few_are_left_alone() -> None:
    model = halves(reading=0.006)
    assert model.half(2 * FEWEST, BACK) == FEWEST
    assert model.half(2 * FEWEST - 2, BACK) == 0


def test_they_are_given_up_where_the_stages_hinder_each_other() -> None:
    model = halves()
    ran(model, 25, PROFILE[25], behind=25)
    assert model.half(50, BACK) == 0


def test_they_are_kept_where_they_do_as_much_and_tried_only_where_they_do_more() -> None:
    as_much = (AS_GOOD + BETTER) / 2 * (PROFILE[50] + BACK) / 2
    known, new = halves(), halves()
    assert known.half(50, BACK) == 25
    for model in (known, new):
        ran(model, 25, as_much, behind=25)
    assert (known.half(50, BACK), new.half(50, BACK)) == (25, 0)


def test_how_long_a_round_together_takes_is_measured_as_well() -> None:
    model = halves()
    now = ran(model, 25, 0.0044, behind=25)
    assert model.half(50, BACK) == 25
    ran(model, 50, 0.0085, behind=0, since=now)
    assert model.half(50, BACK) == 0, "everybody is back sooner than they were taken to be"


def test_what_was_learned_of_a_size_holds_for_sizes_like_it() -> None:
    model = halves()
    ran(model, 25, PROFILE[25], behind=25)
    assert model.half(44, BACK) == 0
    assert model.half(100, BACK) == 50, "of these nothing is known"


@pytest.mark.parametrize(
    "happens",
    [
        partial(ran, rows=25, every=30.0, behind=25),  # pauses
        partial(ran, rows=25, every=PROFILE[25], behind=3),  # behind a few
    ],
)
def test_what_says_nothing_about_halves_is_not_counted(happens: partial[float]) -> None:
    model = halves()
    happens(model)
    assert model.half(50, BACK) == 25


def test_a_batch_after_one_of_another_size_tells_nothing() -> None:
    model = halves()
    for number in range(60):
        model.ended((25, 50)[number % 2], 25, 0.006 * number)
    assert model.half(50, BACK) == 25


@given(
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 300), st.floats(0.0, 0.03)), max_size=40),
    st.integers(0, 600),
    st.floats(0.0, 1e9),
)
def test_whatever_happened_they_are_halves_or_none(
    batches: list[tuple[int, int, float]], everybody: int, back: float
) -> None:
    model, now = halves(), 0.0
    for rows, behind, since in batches:
        now += since
        model.ended(rows, behind, now)
    assert model.half(everybody, back) in (0, (everybody + 1) // 2)


@pytest.mark.parametrize(
    ("rows", "half", "leave"), [(50, 25, 25), (32, 25, 25), (31, 25, 31), (20, 25, 20), (50, 0, 50)]
)
def test_a_few_more_than_a_half_leave_together(rows: int, half: int, leave: int) -> None:
    assert at_most(rows, half) == leave


def test_sizes_alike() -> None:
    assert is_alike(20, 28)
    assert is_alike(28, 20)
    assert not is_alike(20, 30)
    assert not is_alike(20, 0)


# -- the rule as a whole -----------------------------------------------------------------------------------------------


def riding(reading: float, *, rounds: int = 60) -> Server:
    """A loop of 50 clients that ride together, of a model that has read before it computes."""
    server = Server(Adaptive(256, PROFILE))
    for _ in range(rounds):
        server.now += 0.0003
        for client in range(50):
            server.arrive(client)
        batch = server.leave_when_due()
        server.end(batch, PROFILE[50], Stages(reading, PROFILE[50] - reading, 0.0))
    assert server.policy.describe()["is_closed_loop"]
    return server


def all_are_back(server: Server) -> None:
    server.now += 0.0003
    for client in range(50):
        server.arrive(client)


def test_one_batch_of_everybody_parts_into_halves_that_overlap() -> None:
    server = riding(reading=0.0040)
    server.policy.ahead(server.lane, "0", server.now)  # as a server asks whose model has stages
    all_are_back(server)
    first = server.leave()
    assert first.rows == 25

    assert server.policy.ahead(server.lane, "0", server.now) == server.now, "the others are read meanwhile"
    assert server.decide() == Leave(25, "idle")


def test_a_few_and_many_become_halves() -> None:
    server = riding(reading=0.0040)
    server.policy.ahead(server.lane, "0", server.now)
    server.now += 0.0003
    for client in range(5):
        server.arrive(client)
    few = server.leave_when_due()
    server.now += 0.0004
    for client in range(5, 50):
        server.arrive(client)

    opens = server.policy.ahead(server.lane, "0", server.now)
    assert opens is not None
    assert opens <= few.left + PROFILE[25], "and not once the few are back"
    assert server.decide() == Leave(25, "idle")


def test_where_nothing_overlaps_everybody_rides_together() -> None:
    server = riding(reading=0.0040)
    all_are_back(server)
    assert server.decide() == Leave(50, "idle")


def test_a_model_that_reads_little_answers_everybody_together() -> None:
    server = riding(reading=0.0001)
    server.policy.ahead(server.lane, "0", server.now)
    all_are_back(server)
    assert server.decide() == Leave(50, "idle")

import pytest

from shoal.core.batch import Stages
from shoal.core.running import Edges, HandOver


def test_the_edges_of_a_batch_grow_with_its_rows() -> None:
    edges = Edges()
    assert edges.before(8) == edges.after(8) == 0.0

    for rows in (100, 400, 50):
        edges.learn(rows, Stages(0.001 * rows, 0.5, 0.002 * rows))

    assert edges.before(10) == pytest.approx(0.010)
    assert edges.after(10) == pytest.approx(0.020)


def test_what_a_lone_row_costs_says_little_about_many() -> None:
    edges = Edges()
    for _ in range(20):
        edges.learn(1, Stages(0.002, 0.5, 0.0))
        edges.learn(100, Stages(0.100, 0.5, 0.0))

    assert edges.before(100) == pytest.approx(0.100, rel=0.05)


@pytest.mark.parametrize(
    ("took", "share"),
    [
        (0.001, 0.018),  # it came out close behind a long one: its longest stage was still its own
        (0.022, 0.022),  # the pipeline was full: what the batch before left of the instance
        (0.900, 0.034),  # something else was in the way: never more than its stages
    ],
)
def test_a_batch_that_overlapped_costs_its_longest_stage_at_least_and_all_of_them_at_most(
    took: float, share: float
) -> None:
    assert Edges().share(took, Stages(0.012, 0.018, 0.004)) == pytest.approx(share)


def test_what_overlapping_saves_is_learned_from_batches_that_did() -> None:
    edges = Edges()
    edges.learn(8, Stages(0.004, 0.020, 0.004))
    assert edges.hidden(8) == pytest.approx(0.008), "all of it, until it is known"

    for _ in range(50):
        edges.share(0.020, Stages(0.004, 0.020, 0.004))
    assert edges.hidden(4) == pytest.approx(0.004)

    for _ in range(100):  # stages that hinder each other
        edges.share(0.026, Stages(0.004, 0.020, 0.004))
    assert edges.hidden(8) == pytest.approx(0.002, rel=0.02)


def test_the_usual_way_belongs_to_the_cost_of_a_batch() -> None:
    way = HandOver()
    for _ in range(50):
        way.cost(took=0.0012, inside=0.0010)

    assert way.cost(took=0.0052, inside=0.0050) == pytest.approx(0.0052)


def test_a_front_process_that_is_busy_teaches_nothing_about_the_batch() -> None:
    way = HandOver()
    for _ in range(50):
        way.cost(took=0.0012, inside=0.0010)

    assert way.cost(took=0.0912, inside=0.0010) == pytest.approx(0.0012, rel=0.05)


def test_a_shorter_way_is_learned_in_a_few_batches() -> None:
    way = HandOver()
    way.cost(took=0.0912, inside=0.0010)
    for _ in range(20):
        way.cost(took=0.0012, inside=0.0010)

    assert way.usual < 0.001


def test_without_word_from_the_worker_the_whole_time_counts() -> None:
    assert HandOver().cost(took=0.5, inside=0.0) == 0.5


def test_a_batch_that_overlapped_another_costs_what_it_held_the_instance() -> None:
    assert HandOver().cost(took=0.010, inside=0.014) == 0.010

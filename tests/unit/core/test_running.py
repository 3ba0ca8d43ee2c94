import pytest

from shoal.core.running import HandOver


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

"""Who waits for whom, and whether that ever ends."""

from hypothesis import given
from hypothesis import strategies as st

from shoal.core.stuck import Wait, is_stuck


def test_a_worker_that_calls_its_own_model_waits_for_itself() -> None:
    assert is_stuck("a-0", [Wait("a-0", "a", "a")], {"a": 1})


def test_another_worker_of_the_same_model_may_answer() -> None:
    assert not is_stuck("a-0", [Wait("a-0", "a", "a")], {"a": 2})


def test_the_last_of_several_workers_that_call_their_own_model_is_one_too_many() -> None:
    waits = [Wait("a-0", "a", "a"), Wait("a-1", "a", "a")]

    assert is_stuck("a-1", waits, {"a": 2})


def test_a_circle_of_models_is_seen() -> None:
    waits = [Wait("a-0", "a", "b"), Wait("b-0", "b", "c"), Wait("c-0", "c", "a")]

    assert is_stuck("c-0", waits, {"a": 1, "b": 1, "c": 1})
    assert not is_stuck("c-0", waits, {"a": 1, "b": 2, "c": 1})


def test_a_chain_of_models_ends() -> None:
    waits = [Wait("a-0", "a", "b"), Wait("b-0", "b", "c")]

    assert not is_stuck("a-0", waits, {"a": 1, "b": 1, "c": 1})


def test_a_call_that_lies_behind_its_own_caller_is_not_answered_by_others() -> None:
    waits = [Wait("b-0", "b", "a", at="a-0"), Wait("a-0", "a", "b")]

    assert is_stuck("a-0", waits, {"a": 2, "b": 1})
    assert not is_stuck("a-0", [Wait("b-0", "b", "a", at="a-1"), waits[1]], {"a": 2, "b": 1})


def test_all_calls_that_a_worker_waits_for_have_to_end() -> None:
    waits = [Wait("a-0", "a", "b"), Wait("a-0", "a", "a")]

    assert is_stuck("a-0", waits, {"a": 1, "b": 1})


def test_a_worker_that_waits_for_nothing_is_not_stuck() -> None:
    assert not is_stuck("c-0", [Wait("a-0", "a", "a")], {"a": 1, "c": 1})


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 3)), max_size=12),
    st.lists(st.integers(1, 3), min_size=4, max_size=4),
)
def test_without_a_free_worker_nobody_goes_on_and_with_one_somebody_does(
    calls: list[tuple[int, int, int]], sizes: list[int]
) -> None:
    """What is called not stuck can be played to its end: free a worker whose calls can be answered, again and again."""
    waits = [Wait(f"{model}-{worker % sizes[model]}", model, on) for model, worker, on in calls]
    known = dict(enumerate(sizes))
    left = {wait.worker: [each for each in waits if each.worker == wait.worker] for wait in waits}

    def is_free(model: object) -> bool:
        return any(f"{model}-{worker}" not in left for worker in range(known[model]))  # type: ignore[index]

    while going := [worker for worker, its in left.items() if all(is_free(wait.on) for wait in its)]:
        for worker in going:
            del left[worker]

    assert {wait.worker for wait in waits if is_stuck(wait.worker, waits, known)} == left.keys()

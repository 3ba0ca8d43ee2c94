"""Slices of a batch through the three steps of a handler."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.upstream.ts.context import Context, RequestProcessor
from shoal.upstream.ts.handler_utils.micro_batching import MicroBatching
from shoal.upstream.ts.metrics.metrics_store import MetricsStore


class Handler:
    """Doubles numbers and remembers which slice each step saw."""

    def __init__(self) -> None:
        self.context: Any = None
        self.micro: MicroBatching
        self.seen: list[tuple[str, int | None, list[int]]] = []

    def preprocess(self, data: list[int]) -> list[int]:
        self.seen.append(("preprocess", self.micro.get_micro_batch_idx(), data))
        return data

    def inference(self, data: list[int]) -> list[int]:
        self.seen.append(("inference", self.micro.get_micro_batch_idx(), data))
        return [2 * number for number in data]

    def postprocess(self, data: list[int]) -> list[int]:
        self.seen.append(("postprocess", self.micro.get_micro_batch_idx(), data))
        return data

    def describe_handle(self) -> str:
        return "described"

    def explain_handle(self, preprocessed: list[int], raw: list[int]) -> list[Any]:
        return ["explained", preprocessed, raw]


@pytest.fixture
def handler() -> Iterator[Handler]:
    made = Handler()
    made.micro = MicroBatching(made, 2)
    yield made
    made.micro.shutdown()


def context(**headers: str) -> Context:
    made = Context("m", "/", {}, 1, None, "0.12.0", metrics=MetricsStore({0: "r0"}, "m"))
    made.request_processor = [RequestProcessor(headers)]
    return made


def test_slices_go_through_every_step_with_their_number(handler: Handler) -> None:
    assert handler.micro([1, 2, 3, 4, 5], context()) == [2, 4, 6, 8, 10]
    for step, factor in (("preprocess", 1), ("inference", 1), ("postprocess", 2)):
        seen = sorted((number, data) for name, number, data in handler.seen if name == step)
        assert seen == [(0, [factor, 2 * factor]), (1, [3 * factor, 4 * factor]), (2, [5 * factor])]


@given(
    rows=st.lists(st.integers(), max_size=20),
    size=st.integers(1, 5),
    threads=st.dictionaries(st.sampled_from(["preprocess", "inference", "postprocess"]), st.integers(1, 4)),
)
def test_the_order_is_kept_whatever_the_sizes(rows: list[int], size: int, threads: dict[str, int]) -> None:
    handler = Handler()
    handler.micro = MicroBatching(handler, size, threads)
    try:
        assert handler.micro.handle(rows) == [2 * row for row in rows]
    finally:
        handler.micro.shutdown()


def test_steps_of_several_slices_run_side_by_side(handler: Handler) -> None:
    together = threading.Barrier(2, timeout=20)
    handler.inference = lambda data: [together.wait() * 0 + number for number in data]  # type: ignore[method-assign]
    handler.micro.parallelism = {"inference": 2}

    assert handler.micro.handle([1, 2, 3, 4]) == [1, 2, 3, 4]  # two rows of each slice wait for the other slice's


def test_parallelism_can_be_changed_while_slices_are_on_their_way(handler: Handler) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def preprocess(data: list[int]) -> list[int]:
        entered.set()
        assert go_on.wait(20)
        return data

    handler.preprocess = preprocess  # type: ignore[method-assign]
    results: list[Any] = []
    running = threading.Thread(target=lambda: results.append(handler.micro.handle([1, 2, 3, 4, 5])))
    running.start()
    assert entered.wait(20)
    handler.micro.parallelism = {"preprocess": 3, "inference": 2}
    go_on.set()
    running.join(20)

    assert results == [[2, 4, 6, 8, 10]]
    assert handler.micro.parallelism == {"preprocess": 3, "inference": 2}


def test_the_size_can_be_changed(handler: Handler) -> None:
    handler.micro.micro_batch_size = 3
    handler.micro.handle([1, 2, 3, 4])

    assert [data for step, _, data in handler.seen if step == "preprocess"] == [[1, 2, 3], [4]]


@pytest.mark.parametrize("step", ["preprocess", "inference", "postprocess"])
def test_an_exception_of_a_step_is_raised_and_the_next_batch_runs(handler: Handler, step: str) -> None:
    step_before = getattr(handler, step)

    def fail(data: list[int]) -> list[int]:
        raise ZeroDivisionError(step)

    setattr(handler, step, fail)
    with pytest.raises(ZeroDivisionError, match=step):
        handler.micro.handle([1, 2, 3, 4, 5, 6, 7])
    setattr(handler, step, step_before)

    assert handler.micro.handle([1, 2, 3]) == [2, 4, 6]


def test_explanations_bypass_it(handler: Handler) -> None:
    assert handler.micro([1, 2, 3], context(explain="True")) == ["explained", [1, 2, 3], [1, 2, 3]]
    assert handler.seen == [("preprocess", None, [1, 2, 3])]


def test_descriptions_bypass_it(handler: Handler) -> None:
    assert handler.micro([1, 2], context(describe="True")) == ["described"]
    assert handler.seen == []


def test_the_handler_is_given_the_context_and_its_time_is_a_metric(handler: Handler) -> None:
    given_context = context(explain="False")
    handler.micro([1], given_context)

    assert handler.context is given_context
    assert [(metric.name, metric.unit) for metric in given_context.metrics.store] == [("HandlerTime", "Milliseconds")]


@pytest.mark.parametrize("wrong", [{"thinking": 1}, {"inference": 0}, {"inference": "two"}])
def test_a_wrong_parallelism_is_refused_and_the_old_one_stays(handler: Handler, wrong: dict[str, Any]) -> None:
    handler.micro.parallelism = {"inference": 2}
    with pytest.raises(ValueError, match="parallelism"):
        handler.micro.parallelism = wrong

    assert handler.micro.parallelism == {"inference": 2}
    assert handler.micro.handle([1]) == [2]


def test_a_size_of_nothing_is_refused(handler: Handler) -> None:
    handler.micro.micro_batch_size = 0
    with pytest.raises(ValueError, match="micro_batch_size must be 1 or more"):
        handler.micro.handle([1])


def test_outside_of_a_step_there_is_no_slice(handler: Handler) -> None:
    handler.micro.handle([1])

    assert handler.micro.get_micro_batch_idx() is None

"""All stages on the thread that a model belongs to; what would wait there waits on another."""

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import pytest

from shoal.config.model import MicroBatching
from shoal.worker.items import read_native
from shoal.worker.main import gathers_on, places_of
from shoal.worker.pipeline import Gathered
from shoal.worker.program import Program, Stage, nothing_measured, nothing_to_close
from tests.unit.worker.making import Listener, batch, config, context, home


class Steps:
    """Three stages that say where they ran; bodies of `late` are answered once they are told to be."""

    def __init__(self) -> None:
        self.home = home()
        self.ran: list[tuple[str, str]] = []
        self.may_go = threading.Event()
        stages = (
            Stage("preprocess", "read", self._step("read"), gives_rows=True),
            Stage("inference", "run", self._step("run"), gives_rows=True),
            Stage("postprocess", "answer", self._answer, gives_rows=True, would_wait=self._is_late),
        )
        self.program = Program(
            "steps", stages, read_native, context(), False, nothing_measured, nothing_to_close, self.home
        )

    def _step(self, name: str) -> Callable[[Any], Any]:
        def step(data: Any) -> Any:
            self.ran.append((name, threading.current_thread().name))
            if b"bad" in data and name == "run":
                raise ValueError("a bug")
            return data

        return step

    def _is_late(self, data: Any) -> bool:
        return b"late" in data and not self.may_go.is_set()

    def _answer(self, data: Any) -> Any:
        self.ran.append(("answer", threading.current_thread().name))
        assert b"late" not in data or self.may_go.wait(20)
        return data


class Running:
    """A pipeline and who hears of it."""

    def __init__(self) -> None:
        self.steps, self.heard = Steps(), Listener()
        self.done: SimpleQueue[int] = SimpleQueue()
        self.pipeline = Gathered(self.steps.program, self.steps.home, None, lambda batch: self.done.put(batch.number))
        self.pipeline.start()

    def submit(self, number: int, *bodies: bytes) -> None:
        self.pipeline.submit(batch(number, bodies, self.heard))


def test_every_stage_runs_on_the_models_thread_in_order() -> None:
    running = Running()
    running.submit(1, b"a", b"b")
    assert running.done.get(timeout=20) == 1
    assert running.steps.ran == [("read", "model"), ("run", "model"), ("answer", "model")]
    assert running.heard.results(1, 2) == [b"a", b"b"]


def test_a_batch_that_would_wait_leaves_the_thread_to_the_next() -> None:
    running = Running()
    running.submit(1, b"late")
    running.submit(2, b"soon")
    assert running.done.get(timeout=20) == 2
    running.steps.may_go.set()
    assert running.done.get(timeout=20) == 1
    assert running.heard.results(1, 1) == [b"late"]
    assert ("answer", "waiting") in running.steps.ran


def test_a_failed_stage_ends_the_batch_and_not_the_thread() -> None:
    running = Running()
    running.submit(1, b"bad")
    running.submit(2, b"good")
    assert [running.done.get(timeout=20) for _ in range(2)] == [1, 2]
    (failure,) = running.heard.results(1, 1)
    assert not isinstance(failure, bytes) and "a bug" in failure.message
    assert running.heard.results(2, 1) == [b"good"]


def test_stages_are_gathered_where_nobody_asked_for_more_threads() -> None:
    program = Steps().program
    assert gathers_on(config(), program) is program.home
    assert places_of(config(), program) == 2


@pytest.mark.parametrize(
    "fields",
    [
        {"instances": 2},
        {"micro_batching": MicroBatching(micro_batch_size=2)},
        {"micro_batching": MicroBatching(parallelism={"preprocess": 2})},
    ],
)
def test_stages_are_not_gathered_where_somebody_did(fields: dict[str, Any]) -> None:
    assert gathers_on(config(**fields), Steps().program) is None

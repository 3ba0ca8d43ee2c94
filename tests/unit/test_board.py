"""What models ask of the server: calls that are checked and queued as a client's are, circles, and the repository."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from shoal.board import Board, checked_version, tensors_of
from shoal.core.request import InSequence
from shoal.errors import HandlerFailed, InvalidInput, LoadFailed, ProtocolError, TooLarge, Withdrawn
from shoal.frontend.kserve.controls import Told as Asked
from shoal.payload import Buffer, Result
from shoal.pool.errands import Caller
from shoal.tensor import split
from shoal.triton.inside import told_of
from shoal.wire.messages import Ask, Order, PartHead, Told
from tests.unit.frontend.kserve.bed import Bed, tensors

FOUR = PartHead("IN", "tensor/FP32;1,4", 16)
BODY = memoryview(bytes(range(16)))
FAILED = "Model {0} - Error when running inference: "


class Boarded:
    """A board over models without processes, and what callers are told."""

    def __init__(self, *models: str, limit: int = 100, **fields: Any) -> None:
        self.bed = Bed(limit=limit)
        for name in models:
            self.bed.add(name, **fields)
        self.board = Board(self.bed.desk, self.bed.control, largest=1000)
        self.told: list[tuple[Told, bytes]] = []
        self.made = 0

    def caller(self, model: str, worker: str = "") -> Caller:
        home = self.bed.benches[model, "1"].scheduler
        return Caller(worker or f"{model}-0", home, lambda is_waiting: None)

    def ask(
        self, model: str, *, by: str = "", worker: str = "", inputs: Sequence[PartHead] = (FOUR,), **more: Any
    ) -> Callable[[], None]:
        self.made += 1
        ask = Ask(self.made, model, more.pop("version", ""), list(inputs), more.pop("outputs", []), **more)
        body = BODY if inputs else memoryview(b"")
        return self.board.ask(ask, body, self.caller(by or model, worker), self._tell)

    def order(self, order: Order) -> Told:
        """Have an order carried out."""

        async def work() -> None:
            self.board.order(order, Caller("w", self.bed.add("home").scheduler, lambda _: None), self._tell)
            while not self.told:  # noqa: ASYNC110
                await asyncio.sleep(0)

        asyncio.run(work())
        return self.told[0][0]

    @property
    def failures(self) -> list[str]:
        return [told.failure.message for told, _ in self.told if told.failure is not None]

    def _tell(self, told: Told, data: Sequence[Buffer]) -> None:
        self.told.append((told, b"".join(data)))


def test_a_call_arrives_as_a_clients_request_would() -> None:
    boarded = Boarded("m")
    boarded.ask(
        "m", version="1", outputs=["OUT"], id="a", sequence=("s", True, False), timeout=2_000_000, parameters={"b": 1}
    )
    (request,) = boarded.bed.running()

    assert [(part.name, part.content_type, bytes(part.data)) for part in request.payload.parts] == [  # type: ignore[arg-type]
        ("IN", "tensor/FP32;1,4", bytes(BODY))
    ]
    assert told_of(request.payload) == Asked("a", {"b": 1}, ["OUT"], InSequence("s", True, False), 2_000_000)
    assert (request.rows, request.timeout, request.client) == (1, 2.0, "m-0")


def test_the_answer_is_told_as_it_came() -> None:
    boarded = Boarded("m")
    boarded.ask("m")
    boarded.bed.reply(tensors(("OUT", "FP32", [1, 4], bytes(16))))
    ((told, data),) = boarded.told

    assert told == Told(1, True)
    assert [head.name for head in split(data)[0].outputs] == ["OUT"]


def test_many_answers_are_told_one_by_one() -> None:
    boarded = Boarded("m", is_decoupled=True)
    boarded.ask("m", may_be_many=True)
    one = tensors(("OUT", "FP32", [1, 4], bytes(16)))
    boarded.bed.reply(one, one, Result(b""))

    assert [told for told, _ in boarded.told] == [Told(1, False), Told(1, False), Told(1, True)]
    assert [bool(data) for _, data in boarded.told] == [True, True, False]


def test_a_failure_is_told_in_the_models_words() -> None:
    boarded = Boarded("m")
    boarded.ask("m")
    boarded.bed.reply(HandlerFailed("no such bee", status=404))

    assert boarded.failures == ["no such bee"]
    assert boarded.told[0][0].is_last


def test_a_call_that_was_taken_back_is_told_as_cancelled() -> None:
    boarded = Boarded("m")
    boarded.ask("m")
    boarded.bed.reply(Withdrawn("gone"))

    failure = boarded.told[0][0].failure
    assert failure is not None and failure.status == 499


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"version": "2"}, "Failed for execute the inference request. Model 'm' is not ready."),
        ({"outputs": ["Q"]}, "unexpected inference output 'Q' for model 'm'"),
        ({"inputs": [PartHead("IN", "tensor/FP32;1,2", 16)]}, "[request id: <id_unknown>] unexpected shape for input"),
        ({"inputs": [PartHead("IN", "tensor/FP32;1,4", 15)]}, "the inputs of a call come with 16 bytes"),
        ({"inputs": [PartHead("IN", "text/plain", 16)]}, "'text/plain' is no tensor's content type"),
        ({"inputs": ()}, "[request id: <id_unknown>] expected 1 inputs but got 0 inputs for model 'm'"),
    ],
)
def test_a_call_that_cannot_be_made_is_told_why(more: Any, words: str) -> None:
    boarded = Boarded("m", "home")
    boarded.ask("m", by="home", holds=True, **more)

    assert [message.startswith(FAILED.format("m") + words) for message in boarded.failures] == [True], boarded.failures
    assert boarded.bed.running() == []
    boarded.ask("home", by="m", holds=True)  # what was not taken is not waited for
    assert len(boarded.failures) == 1


def test_a_model_of_many_answers_is_not_called_for_one() -> None:
    boarded = Boarded("m", is_decoupled=True)
    boarded.ask("m")

    assert "Please use 'decoupled=True' argument" in boarded.failures[0]


def test_a_model_that_takes_nothing_more_says_so() -> None:
    boarded = Boarded("m", limit=1)
    for _ in range(2):
        boarded.ask("m", id="a")

    assert boarded.failures[0].startswith(FAILED.format("m") + "[request id: a] Exceeds maximum queue size")


def test_what_is_called_off_is_withdrawn() -> None:
    boarded = Boarded("m")
    call_off = boarded.ask("m")
    (request,) = boarded.bed.running()
    call_off()

    assert request.has_ended
    assert boarded.told == []


def test_a_worker_that_would_wait_for_itself_is_told_so() -> None:
    boarded = Boarded("m")
    boarded.ask("m", by="m", holds=True)

    assert boarded.failures[0].startswith(FAILED.format("m") + "every instance of model 'm' waits for this call")
    assert boarded.bed.running() == []


def test_a_thread_that_holds_nothing_may_call_its_own_model() -> None:
    boarded = Boarded("m")
    boarded.ask("m", by="m")

    assert len(boarded.bed.running()) == 1


def test_a_circle_is_seen_and_ends_with_its_calls() -> None:
    boarded = Boarded("a", "b")
    call_off = boarded.ask("b", by="a", holds=True)
    boarded.ask("a", by="b", holds=True)
    assert len(boarded.failures) == 1
    call_off()
    boarded.ask("a", by="b", holds=True)

    assert len(boarded.failures) == 1


def test_a_call_that_was_answered_is_waited_for_no_more() -> None:
    boarded = Boarded("a", "b")
    boarded.ask("b", by="a", holds=True)
    boarded.bed.reply(tensors(("OUT", "FP32", [1, 4], bytes(16))), name="b")
    assert boarded.board._asking == {}
    boarded.ask("a", by="b", holds=True)

    assert boarded.failures == []


def test_a_call_that_lies_behind_the_caller_closes_the_circle_too() -> None:
    boarded = Boarded("a", "b")
    boarded.bed.repository.find("a").pool.size = 2  # type: ignore[misc]
    boarded.bed.instances["a", "1"].id = "a-0"
    boarded.ask("a", by="b", holds=True)
    boarded.bed.running("a")[0].batch.instance = "a-0"  # type: ignore[union-attr]
    boarded.ask("b", by="a", holds=True)

    assert boarded.failures[0].startswith(FAILED.format("b") + "every instance of model 'b' waits")


def test_a_call_whose_answers_have_begun_waits_for_no_instance() -> None:
    boarded = Boarded("a", "b")
    boarded.ask("a", by="b", holds=True)
    (request,) = boarded.bed.running("a")
    assert request.batch is not None
    request.batch.instance = "a-0"
    request.batch.has_begun = True
    boarded.ask("b", by="a", holds=True)

    assert boarded.failures == []


def test_the_inputs_of_a_call_are_limited() -> None:
    with pytest.raises(TooLarge, match="at most 15 bytes, got 16"):
        tensors_of(Ask(1, "m", "", [FOUR], []), BODY, 15)


@pytest.mark.parametrize("sizes", [[16, 1], [17, -1], [8], []])
def test_sizes_and_bytes_of_a_call_agree(sizes: list[int]) -> None:
    heads = [PartHead(str(size), "tensor/UINT8;1", size) for size in sizes]
    with pytest.raises(InvalidInput, match="come with 16 bytes"):
        tensors_of(Ask(1, "m", "", heads, []), BODY, 1000)


def test_a_call_carries_tensors_only() -> None:
    with pytest.raises(ProtocolError, match="no tensor's content type"):
        tensors_of(Ask(1, "m", "", [PartHead("IN", "tensor/FP33;4", 16)], []), BODY, 1000)


@pytest.mark.parametrize("version", ["x", "-1", "1.0", "²"])
def test_a_version_is_a_number(version: str) -> None:
    with pytest.raises(InvalidInput, match="version should be an integral value > 0"):
        checked_version(version)


def test_whether_a_model_is_ready_is_told() -> None:
    for order, is_true in (
        (Order(1, "ready", "m"), True),
        (Order(1, "ready", "m", "1"), True),
        (Order(1, "ready", "m", "2"), False),
        (Order(1, "ready", "nope"), False),
    ):
        assert Boarded("m").order(order) == Told(1, True, is_true)


def test_a_load_and_an_unload_reach_whoever_does_them() -> None:
    boarded = Boarded()
    files = {"file:1/model.py": b"x"}
    assert boarded.order(Order(1, "load", "m", "", "{}", files)) == Told(1, True, True)
    assert boarded.bed.control.told == [("load", "m", {"config": "{}", **files})]

    boarded = Boarded()
    boarded.order(Order(1, "unload", "m", with_dependents=True))
    assert boarded.bed.control.told == [("unload", "m", True)]

    boarded = Boarded()
    boarded.order(Order(1, "load", "m"))
    assert boarded.bed.control.told == [("load", "m", {})]


def test_why_a_model_cannot_be_loaded_is_told() -> None:
    boarded = Boarded()
    boarded.bed.control.error = LoadFailed("it is broken")
    boarded.order(Order(1, "load", "m"))
    assert boarded.failures == ["it is broken"]

    boarded = Boarded()
    boarded.bed.control.error = ZeroDivisionError("a defect")
    boarded.order(Order(1, "load", "m"))
    assert boarded.failures == ["ZeroDivisionError: a defect"]

    boarded = Boarded()
    boarded.bed.control.mode = "none"
    boarded.order(Order(1, "unload", "m"))
    assert boarded.failures == ["explicit model load / unload is not allowed if polling is enabled"]
    assert boarded.bed.control.told == []

"""Calls of a TritonPythonModel: what is sent, what is made of the answers, for whom, and when it may be done at all."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

from shoal.answer import Answer, Head
from shoal.payload import Buffer
from shoal.tensor import join
from shoal.upstream import triton_python_backend_utils as pb_utils
from shoal.upstream.triton_python_backend_utils import calls
from shoal.wire.messages import Ask, CallOff, Failure, Order, Told
from shoal.worker.errands import CANCELLED, Errands
from shoal.worker.scope import Scope

NOTHING = memoryview(b"")


class Server:
    """Answers what it is asked by what it was told to; notes it."""

    def __init__(self) -> None:
        self.is_gone = False
        self.errands = Errands()
        self.errands.connect(self, lambda: None)
        self.errands.serve()
        self.asked: list[Any] = []
        self.data: list[bytes] = []
        self.answers: list[tuple[dict[str, Any], bytes]] = []

    def send(self, message: msgspec.Struct, data: Sequence[Buffer] = ()) -> None:
        self.asked.append(message)
        self.data += [bytes(each) for each in data]
        if isinstance(message, Ask | Order):
            for fields, body in self.answers:
                self.errands.hear(Told(message.errand, **fields), memoryview(body))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    made = Server()
    monkeypatch.setattr(calls, "errands", made.errands)
    calls.introduce("me", "me_0")
    calls.loaded()
    yield made
    calls.introduce("", "")


def body(value: int, **fields: Any) -> bytes:
    data = np.array([value], np.int32).tobytes()
    return join(Answer([Head("y", "INT32", [1], 4)], **fields), [data])


def request(**fields: Any) -> Any:
    x = pb_utils.Tensor("x", np.array([[1.5]], np.float32))
    usual = {"model_name": "m", "inputs": [x], "requested_output_names": []}
    return pb_utils.InferenceRequest(**{**usual, **fields})


def value(response: Any) -> Any:
    if response.has_error():
        return response.error().code().name, response.error().message()
    return [int(tensor.as_numpy()[0]) for tensor in response.output_tensors()]


ONE = [({"is_last": True}, body(5))]
MANY = [({"is_last": False}, body(1)), ({"is_last": False}, body(2)), ({"is_last": True}, b"")]


def test_a_call_says_all_that_its_request_says(server: Server) -> None:
    server.answers = ONE
    request(
        request_id="a", correlation_id="s", model_version=3, flags=3, timeout=7, requested_output_names=["z", "y"],
        parameters={"p": True},
    ).exec()  # fmt: skip
    (ask,) = server.asked

    assert (ask.model, ask.version, ask.id, ask.outputs, ask.sequence) == ("m", "3", "a", ["y", "z"], ("s", True, True))
    assert (ask.timeout, ask.parameters, ask.may_be_many, ask.holds) == (7, {"p": True}, False, False)
    assert [(head.name, head.content_type, head.size) for head in ask.inputs] == [("x", "tensor/FP32;1,1", 4)]
    assert server.data == [np.float32(1.5).tobytes()]


def test_a_request_of_no_sequence_says_nothing_of_one(server: Server) -> None:
    server.answers = ONE
    request().exec()
    request(flags=1).exec()

    assert [ask.sequence for ask in server.asked] == [None, (0, True, False)]
    assert [ask.version for ask in server.asked] == ["", ""]


def test_the_answer_is_a_response(server: Server) -> None:
    server.answers = [({"is_last": True}, body(5, parameters={"a": 1, "b": None}))]
    response = request().exec()

    assert value(response) == [5] and not response.has_error()
    assert response.parameters() == '{"a": 1}'
    response.output_tensors()[0].as_numpy()[0] = 6  # it may be written to


@pytest.mark.parametrize(
    ("failure", "found"),
    [
        (Failure("handler", "no"), ("INTERNAL", "no")),
        (Failure("handler", "no", 404), ("INTERNAL", "no")),
        (Failure("handler", "left", CANCELLED), ("CANCELLED", "left")),
    ],
)
def test_a_failure_is_a_response_with_an_error(server: Server, failure: Failure, found: Any) -> None:
    server.answers = [({"is_last": True, "failure": failure}, b"")]

    assert value(request().exec()) == found


def test_many_responses_end_with_an_empty_one_and_can_be_gone_through_again(server: Server) -> None:
    server.answers = MANY
    responses = request().exec(decoupled=True)

    assert server.asked[0].may_be_many
    assert value(next(responses)) == [1]
    assert [value(each) for each in responses] == [[2], []]
    assert [value(each) for each in responses] == [[1], [2], []]


def test_an_error_within_a_stream_does_not_end_it(server: Server) -> None:
    server.answers = [({"is_last": False}, join(Answer([], {}, "seven", "NOT_FOUND"), [])), MANY[2]]

    assert [value(each) for each in request().exec(decoupled=True)] == [("INTERNAL", "seven"), []]


def test_a_stream_that_is_cancelled_says_so_and_ends(server: Server) -> None:
    server.answers = MANY[:1]
    responses = request().exec(decoupled=True)
    next(responses)
    responses.cancel()

    assert [value(each) for each in responses] == [("CANCELLED", "the request was cancelled")]
    assert server.asked[-1] == CallOff(server.asked[0].errand)


def test_a_response_is_awaited(server: Server) -> None:
    async def work() -> Any:
        waiting = request().async_exec()
        assert not waiting.done()
        threading.Timer(0.05, lambda: server.errands.hear(Told(1, True), memoryview(body(5)))).start()
        return await waiting

    assert value(asyncio.run(work())) == [5]


def test_an_answer_that_was_there_at_once_is_awaited_as_well(server: Server) -> None:
    server.answers = ONE

    async def work() -> Any:
        return await asyncio.gather(*(request().async_exec() for _ in range(3)))

    assert [value(each) for each in asyncio.run(work())] == [[5], [5], [5]]


def test_awaiting_a_stream_gives_an_iterator(server: Server) -> None:
    server.answers = MANY

    async def work() -> Any:
        return [value(each) for each in await request().async_exec(decoupled=True)]

    assert asyncio.run(work()) == [[1], [2], []]


def test_who_stops_to_await_calls_it_off(server: Server) -> None:
    async def work() -> None:
        waiting = request().async_exec()
        waiting.cancel()
        await asyncio.sleep(0)

    asyncio.run(work())
    assert server.asked[-1] == CallOff(1)


def test_an_answer_after_the_loop_has_ended_disturbs_nobody(server: Server) -> None:
    async def work() -> None:
        request().async_exec()

    asyncio.run(work())
    server.errands.hear(Told(1, True), memoryview(body(5)))


def test_without_a_loop_nothing_is_awaited_and_nothing_asked(server: Server) -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        request().async_exec()
    assert server.asked == []


def test_a_call_is_called_off_when_nobody_waits_for_its_batch(server: Server) -> None:
    with Scope(lambda: False, holds=True):
        found = value(request().exec())
    assert found == ("CANCELLED", "the request was cancelled")
    assert server.asked[0].holds and server.asked[-1] == CallOff(1)
    server.answers = ONE
    assert value(request().exec()) == [5]  # the batch is over
    assert not server.asked[-1].holds


def test_a_coroutine_that_nobody_waits_for_is_called_off_too(server: Server) -> None:
    is_wanted = True

    async def work() -> Any:
        nonlocal is_wanted
        waiting = request().async_exec()
        is_wanted = False
        return await waiting

    with Scope(lambda: is_wanted, holds=True):
        assert value(asyncio.run(work()))[0] == "CANCELLED"
    assert server.asked[0].holds


def test_a_thread_of_its_own_calls_for_nobodys_batch(server: Server) -> None:
    server.answers = ONE
    with Scope(lambda: False, holds=True):
        thread = threading.Thread(target=lambda: request().exec())
        thread.start()
        thread.join()
    assert not server.asked[0].holds and len(server.asked) == 1


def test_no_model_is_called_before_its_caller_is_loaded(server: Server) -> None:
    calls.introduce("me", "me_0")
    with pytest.raises(pb_utils.TritonModelException, match="BLS is only supported during the 'execute' function"):
        request().exec()
    assert server.asked == []


def test_the_repository_is_asked(server: Server) -> None:
    server.answers = [({"is_last": True, "is_true": True}, b"")]

    assert pb_utils.is_model_ready("m", "2") is True
    pb_utils.load_model("m", "{}", {"file:1/model.py": b"x"})
    pb_utils.unload_model("m", unload_dependents=True)
    assert server.asked == [
        Order(1, "ready", "m", "2"),
        Order(2, "load", "m", "", "{}", {"file:1/model.py": b"x"}),
        Order(3, "unload", "m", with_dependents=True),
    ]
    server.answers = [({"is_last": True}, b"")]
    assert pb_utils.is_model_ready("m") is False


def test_what_the_repository_refuses_is_raised(server: Server) -> None:
    server.answers = [({"is_last": True, "failure": Failure("handler", "no")}, b"")]
    words = "Failed to {0}: Failed to process the request for model 'me_0', message: no"
    for what, call in (
        ("load model", lambda: pb_utils.load_model("m")),
        ("unload model", lambda: pb_utils.unload_model("m")),
        ("check model readiness", lambda: pb_utils.is_model_ready("m")),
    ):
        with pytest.raises(pb_utils.TritonModelException) as caught:
            call()
        assert str(caught.value) == words.format(what)


def test_a_model_does_not_load_itself_while_it_is_loaded(server: Server) -> None:
    calls.introduce("me", "me_0")
    with pytest.raises(pb_utils.TritonModelException, match="'me' cannot load itself while it is loaded"):
        pb_utils.load_model("me")
    assert server.asked == []


@pytest.mark.parametrize(
    "call",
    [lambda: request().exec(), lambda: pb_utils.load_model("m"), lambda: pb_utils.is_model_ready("m")],
)
def test_where_there_is_no_server_that_is_said(server: Server, call: Any) -> None:
    server.errands.close()
    with pytest.raises(pb_utils.TritonModelException, match="there is no server to ask here"):
        call()


def test_outputs_that_cannot_be_put_on_a_gpu_are_an_error(server: Server) -> None:
    server.answers = ONE
    memory = pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_GPU, 99)
    code, message = value(request(preferred_memory=memory).exec())

    assert code == "INTERNAL" and message.startswith("tensor 'y' cannot be put on GPU 99: ")
    assert value(request(preferred_memory=pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU)).exec()) == [5]

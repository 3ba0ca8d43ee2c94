"""What is said to the requests of a batch, and when it is heard; and the thread that a model runs on."""

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from shoal.errors import HandlerFailed
from shoal.upstream import triton_python_backend_utils as pb_utils
from shoal.worker.backends.received import Asked, Received
from shoal.worker.backends.tensors import Call
from shoal.worker.backends.triton_replies import Reply
from shoal.worker.later import Later, Pump
from shoal.worker.program import Stage
from tests.process.tensor_front import values
from tests.unit.worker.making import Listener, batch


class Spoken:
    """Replies whose words the front process hears."""

    def __init__(self, count: int = 1, limit: int = 0) -> None:
        self.listener = Listener()
        self.batch = batch(1, [b""] * count, self.listener, limit=limit)
        (self.cut,) = self.batch.slices(0)
        self.pump = Pump()
        self.replies = [Reply(Call({}, Asked()), self.batch, place, is_decoupled=True) for place in range(count)]
        self.cut.leave = lambda cut: None
        Later(self.pump, self.replies, self.begin).open(self.cut, Stage("inference", "m", bool, gives_rows=True))

    def begin(self, returned: Callable[[], None]) -> None:
        self.returned = returned

    def told(self) -> list[list[Any]]:
        """What each request was told: numbers, failures, None for its end."""
        done = threading.Event()
        self.pump.put(done.set)
        assert done.wait(20)
        found: list[list[Any]] = [[] for _ in self.replies]
        for message, data in self.listener.frames:
            (piece,) = message.pieces
            body = int(values(data[0])["y"][0]) if data else None
            found[piece.index].append(piece.failure or body)
        return found


def response(value: int) -> Any:
    return pb_utils.InferenceResponse([pb_utils.Tensor("y", np.array([value], np.int32))])


def test_what_is_said_leaves_at_once_up_to_the_end() -> None:
    spoken = Spoken(2)
    first, second = spoken.replies
    first.send(response(1), False)
    second.send(response(5), False)
    assert spoken.told() == [[1], [5]]
    first.send(response(2), True)
    first.send(response(3), False)

    assert spoken.told() == [[1, 2, None], [5]]


def test_nobody_hears_what_is_said_to_one_that_has_left() -> None:
    spoken = Spoken(2)
    left, waiting = spoken.replies
    spoken.batch.cancel(0)
    spoken.told()
    assert left.is_cancelled() and not waiting.is_cancelled()
    left.send(response(1), True)
    waiting.send(response(2), False)

    assert spoken.told() == [[], [2]]


def test_a_failure_is_told_once() -> None:
    spoken = Spoken()
    spoken.replies[0].fail(HandlerFailed("no"))
    spoken.replies[0].fail(HandlerFailed("again"))
    ((failure,),) = spoken.told()

    assert failure.message == "no"


def test_one_that_failed_on_its_way_is_over_for_its_sender() -> None:
    spoken = Spoken(limit=8)
    (reply,) = spoken.replies
    assert not reply.is_cancelled()
    reply.send(response(1), False)
    ((failure,),) = spoken.told()

    assert "over the limit of 8" in failure.message
    assert reply.is_cancelled()


def test_a_reply_that_has_ended_lets_go_of_its_batch() -> None:
    spoken = Spoken()
    (reply,) = spoken.replies
    way = weakref.ref(reply._way)  # it is open
    reply.send(None, True)
    spoken.returned()
    spoken.told()
    gc.disable()
    try:
        del spoken.returned
        assert way() is None
    finally:
        gc.enable()


def test_a_request_that_is_forgotten_fails_and_one_that_is_kept_does_not() -> None:
    spoken = Spoken(2)
    kept, forgotten = spoken.replies
    request = kept.request([])
    sender = forgotten.request([]).get_response_sender()
    gc.collect()
    assert not kept.is_final and not forgotten.is_final
    del sender
    gc.collect()
    assert forgotten.is_final and not kept.is_final
    request.get_response_sender().send(response(1), 1)
    told, (failure,) = spoken.told()

    assert told == [1, None] and "let go of this request" in failure.message


def test_tensors_of_a_decoupled_request_are_copied_when_its_batch_ends() -> None:
    data = bytearray(b"\1\2")
    spoken = Spoken()
    (reply,) = spoken.replies
    reply.call = Call({"x": Received("UINT8", (2,), memoryview(data))}, Asked())
    spoken.batch.cancel(0)
    spoken.told()
    (tensor,) = reply.request([]).inputs()  # execute runs although its client has left
    spoken.returned()
    spoken.told()
    data[:] = b"\0\0"

    assert tensor.as_numpy().tolist() == [1, 2]


def numbers(pieces: list[Any]) -> list[int]:
    return [int(values(piece.body)["y"][0]) for piece in pieces]


def test_tensors_that_are_kept_are_copied_when_their_request_ends() -> None:
    data = bytearray(b"\1\2")
    call = Call({"x": Received("UINT8", (2,), memoryview(data))}, Asked())
    reply = Reply(call, None, 0, is_decoupled=False)
    request = reply.request([])
    (tensor,) = request.inputs()
    reply.send(response(1), True)
    assert numbers([reply.wait()]) == [1]
    data[:] = b"\0\0"
    assert tensor.as_numpy().tolist() == [1, 2]


def test_a_response_that_cannot_be_written_fails_its_request() -> None:
    reply = Reply(Call({}, Asked()), None, 0, is_decoupled=False)

    class Odd:
        def __str__(self) -> str:
            raise ValueError("odd")

    array = np.empty(1, object)
    array[0] = Odd()
    reply.send(pb_utils.InferenceResponse([pb_utils.Tensor("y", array)]), True)
    failure = reply.wait()
    assert isinstance(failure, HandlerFailed) and str(failure) == "a response cannot be sent: odd"

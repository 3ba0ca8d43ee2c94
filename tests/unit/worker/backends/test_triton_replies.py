"""What is said to the requests of a batch, and when it is heard; and the thread that a model runs on."""

import gc
import threading
from typing import Any

import numpy as np
import pytest

from shoal.errors import HandlerFailed
from shoal.upstream import triton_python_backend_utils as pb_utils
from shoal.worker.backends.model_threads import ModelThread
from shoal.worker.backends.tensors import Asked, Call, Received
from shoal.worker.backends.triton_replies import News, Reply
from tests.process.tensor_front import values


def replies(count: int = 1, *, is_decoupled: bool = True) -> list[Reply]:
    news = News()
    return [Reply(Call({}, Asked()), None, place, news, is_decoupled=is_decoupled) for place in range(count)]


def response(value: int) -> Any:
    return pb_utils.InferenceResponse([pb_utils.Tensor("y", np.array([value], np.int32))])


def numbers(pieces: list[Any]) -> list[int]:
    return [int(values(piece.body)["y"][0]) for piece in pieces]


def test_a_stream_gives_what_was_sent_and_ends() -> None:
    (reply,) = replies()
    reply.send(response(1), False)
    reply.send(response(2), True)
    reply.send(response(3), False)
    assert numbers(list(reply.stream())) == [1, 2]


def test_a_stream_without_news_steps_aside_for_one_that_has_some() -> None:
    silent, talking = replies(2)
    first, second = silent.stream(), talking.stream()
    talking.send(response(1), True)
    assert next(first) is None
    assert numbers([next(second)]) == [1]
    assert list(second) == []


def test_what_a_closed_stream_was_sent_does_not_keep_the_others_awake() -> None:
    closed, waiting = replies(2)
    stream = closed.stream()
    closed.send(response(1), False)
    closed.send(response(2), True)
    stream.close()
    assert closed.is_cancelled() and not waiting.is_cancelled()
    assert waiting._news.unread == 0
    closed.send(response(3), False)
    assert waiting._news.unread == 0


def test_a_stream_that_is_closed_before_it_was_looked_at_has_ended_too() -> None:
    (reply,) = replies()
    reply.stream().close()
    assert reply.is_cancelled()


def test_a_failure_is_raised_once() -> None:
    (reply,) = replies()
    reply.fail(HandlerFailed("no"))
    reply.fail(HandlerFailed("again"))
    with pytest.raises(HandlerFailed, match="no"):
        next(reply.stream())


def test_a_request_that_is_forgotten_fails_and_one_that_is_kept_does_not() -> None:
    kept, forgotten = replies(2)
    request = kept.request([])
    sender = forgotten.request([]).get_response_sender()
    gc.collect()
    assert not kept.is_final and not forgotten.is_final
    del sender
    gc.collect()
    assert forgotten.is_final and not kept.is_final
    request.get_response_sender().send(response(1), 1)
    assert numbers(list(kept.stream())) == [1]


def test_tensors_that_are_kept_are_copied_when_their_request_ends() -> None:
    data = bytearray(b"\1\2")
    call = Call({"x": Received("UINT8", (2,), memoryview(data))}, Asked())
    reply = Reply(call, None, 0, News(), is_decoupled=False)
    request = reply.request([])
    (tensor,) = request.inputs()
    reply.send(response(1), True)
    assert numbers([reply.wait()]) == [1]
    data[:] = b"\0\0"
    assert tensor.as_numpy().tolist() == [1, 2]


def test_a_response_that_cannot_be_written_fails_its_request() -> None:
    (reply,) = replies(is_decoupled=False)

    class Odd:
        def __str__(self) -> str:
            raise ValueError("odd")

    array = np.empty(1, object)
    array[0] = Odd()
    reply.send(pb_utils.InferenceResponse([pb_utils.Tensor("y", array)]), True)
    failure = reply.wait()
    assert isinstance(failure, HandlerFailed) and str(failure) == "a response cannot be sent: odd"


def test_everything_runs_on_one_thread_that_nothing_ends() -> None:
    thread = ModelThread()
    first = thread.call(threading.get_ident)
    for error in (ValueError("no"), SystemExit(3), KeyboardInterrupt()):
        with pytest.raises(type(error)):
            thread.call(_raise, error)
        thread.start(_raise, error)
    assert thread.call(threading.get_ident) == first != threading.get_ident()


def _raise(error: BaseException) -> None:
    raise error

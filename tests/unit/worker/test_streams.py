from collections.abc import Callable, Iterator
from typing import Any

import pytest

from shoal.config.model import MicroBatching
from shoal.errors import InvalidInput
from shoal.wire.messages import Ended, Failure, Piece, Pieces
from shoal.worker.batch import Batch
from shoal.worker.handler import Context
from shoal.worker.pipeline import Inline, Threaded
from tests.unit.worker.making import Listener, batch, nothing, program

Said = list[tuple[int, bytes, bool]]


def stream(target: Any, count: int, poll: Callable[[Batch, Listener], None] | None = None) -> Listener:
    """Run one batch on this thread; `poll` is called between the pieces."""
    listener = Listener()
    made = batch(1, [b"%d" % number for number in range(count)], listener)
    between = (lambda: poll(made, listener)) if poll else nothing
    Inline(program(target), None, nothing, between).submit(made)
    assert isinstance(listener.frames[-1][0], Ended)
    return listener


def said(listener: Listener) -> Said:
    """Index, body and is_last of each piece in the order sent; failures are left out."""
    told = []
    for message, data in listener.frames:
        if isinstance(message, Pieces):
            bodies = iter(data)
            told += [
                (piece.index, next(bodies) if piece.size else b"", piece.is_last)
                for piece in message.pieces
                if not piece.failure
            ]
    return told


def failures(listener: Listener) -> dict[int, Failure]:
    return {
        piece.index: piece.failure
        for message, _ in listener.frames
        if isinstance(message, Pieces)
        for piece in message.pieces
        if piece.failure
    }


def test_a_lock_step_generator_sends_each_step_as_it_comes() -> None:
    def predict(items: list[Any]) -> Iterator[list[Any]]:
        yield ["a", "b"]
        yield [None, {"n": 1}]

    listener = stream(predict, 2)
    assert said(listener) == [
        (0, b"a", False),
        (1, b"b", False),
        (1, b'{"n":1}', False),
        (0, b"", True),
        (1, b"", True),
    ]
    assert listener.ends[0].failure is None
    assert len(listener.frames) == 4, "one frame a step, one for the last pieces, one for the end"


def test_generators_of_single_requests_are_pulled_in_turn() -> None:
    def count(name: str, steps: int) -> Iterator[str]:
        for step in range(steps):
            yield f"{name}{step}"

    listener = stream(lambda items: [count("a", 3), "whole", count("c", 1)], 3)
    assert said(listener) == [
        (0, b"a0", False), (1, b"whole", True), (2, b"c0", False),
        (0, b"a1", False), (2, b"", True),
        (0, b"a2", False), (0, b"", True),
    ]  # fmt: skip


def test_an_asynchronous_generator_is_a_generator() -> None:
    async def predict(items: list[Any]) -> Any:
        yield ["a"]
        yield ["b"]

    assert said(stream(predict, 1)) == [(0, b"a", False), (0, b"b", False), (0, b"", True)]


def test_an_error_in_a_lock_step_generator_ends_all_that_are_left() -> None:
    def predict(items: list[Any]) -> Iterator[list[Any]]:
        yield ["a", InvalidInput("not you")]
        raise RuntimeError("torn")

    listener = stream(predict, 2)
    assert said(listener) == [(0, b"a", False)]
    assert failures(listener) == {1: Failure("input", "not you")}
    assert listener.ends[0].failure.message == "predict raised RuntimeError: torn"


def test_an_error_in_one_requests_generator_ends_that_one() -> None:
    def torn() -> Iterator[str]:
        yield "a"
        raise SystemExit("torn")

    def whole() -> Iterator[str]:
        yield "b"
        yield "c"

    listener = stream(lambda items: [torn(), whole()], 2)
    assert failures(listener)[0].message == "<lambda> raised SystemExit: torn"
    assert [piece for piece in said(listener) if piece[0] == 1] == [(1, b"b", False), (1, b"c", False), (1, b"", True)]


def test_a_piece_that_cannot_be_sent_ends_its_request_and_closes_its_generator() -> None:
    closed = []

    def odd() -> Iterator[Any]:
        try:
            while True:
                yield object()
        finally:
            closed.append(True)

    kept = odd()  # held here, so that only close() can end it
    listener = stream(lambda items: [kept], 1)
    assert "a result of type object cannot be sent" in failures(listener)[0].message
    assert closed == [True]


@pytest.mark.parametrize("step", [["a"], "ab", None])
def test_a_step_of_the_wrong_shape_fails_the_batch(step: Any) -> None:
    def predict(items: list[Any]) -> Iterator[Any]:
        yield step

    assert "handler predict gave" in stream(predict, 2).ends[0].failure.message


def test_a_generator_may_end_without_a_piece() -> None:
    def predict(items: list[Any]) -> Iterator[Any]:
        yield from ()

    assert said(stream(predict, 2)) == [(0, b"", True), (1, b"", True)]


def test_a_cancelled_request_gets_no_more_and_its_generator_is_closed() -> None:
    closed = []

    def endless() -> Iterator[str]:
        try:
            while True:
                yield "x"
        finally:
            closed.append(True)

    def cancel(made: Batch, listener: Listener) -> None:
        if len(listener.frames) == 3:
            made.cancelled.add(0)
        if len(listener.frames) > 4:
            assert closed == [True], "at once, not when its neighbours are done"

    kept = endless()
    listener = stream(lambda items: [kept, iter_of("a", "b", "c")], 2, cancel)
    assert closed == [True]
    assert [piece for piece in said(listener) if piece[0] == 0] == [(0, b"x", False)] * 2
    assert said(listener)[-1] == (1, b"", True)


def test_a_request_cancelled_while_its_neighbour_is_served_gets_nothing() -> None:
    listener = stream(lambda items: [iter_of("a", "b"), iter_of("x")], 2, lambda made, _: made.cancelled.add(1))
    assert said(listener) == [(0, b"a", False), (0, b"b", False), (0, b"", True)]


def iter_of(*values: str) -> Iterator[str]:
    yield from values


def test_a_lock_step_generator_is_closed_once_all_its_requests_were_cancelled() -> None:
    closed = []

    def predict(items: list[Any]) -> Iterator[list[str]]:
        try:
            while True:
                yield ["x", "y"]
        finally:
            closed.append(True)

    def cancel(made: Batch, listener: Listener) -> None:
        made.cancelled.add(len(listener.frames) - 1)

    kept = predict([])
    listener = stream(lambda items: kept, 2, cancel)
    assert closed == [True]
    assert said(listener) == [(0, b"x", False), (1, b"y", False), (1, b"y", False)]


def test_a_stream_nobody_reads_any_more_is_closed() -> None:
    closed = []

    def predict(items: list[Any]) -> Iterator[list[str]]:
        try:
            while True:
                yield ["x"]
        finally:
            closed.append(True)

    def leave(made: Batch, listener: Listener) -> None:
        listener.is_gone = True

    stream(predict, 1, leave)
    assert closed == [True]


def test_a_generator_that_fails_while_it_is_closed_hurts_nobody() -> None:
    def stubborn() -> Iterator[str]:
        try:
            while True:
                yield "x"
        finally:
            raise RuntimeError("will not")

    listener = stream(lambda items: [stubborn()], 1, lambda made, _: made.cancelled.add(0))
    assert listener.ends[0].failure is None


def test_the_first_piece_says_what_the_handler_said() -> None:
    def predict(items: list[Any], context: Context) -> Iterator[list[str]]:
        context.set_response_content_type(0, "text/event-stream")
        context.set_response_status(206, "Part", idx=0)
        yield ["a"]

    message = stream(predict, 1).frames[0][0]
    assert message.pieces == [Piece(0, False, 1, "text/event-stream", 206, "Part")]


def test_encode_is_applied_to_each_piece_of_a_native_handler() -> None:
    class Counter:
        def inference(self, data: Any) -> Any:
            for number in range(2):
                yield [number for _ in data]

        def encode(self, output: int) -> str:
            return f"<{output}>"

    listener = Listener()
    pipeline = Threaded(program(Counter()), MicroBatching(), None, nothing)
    pipeline.start()
    pipeline.submit(batch(1, [b"", b""], listener))
    listener.wait()
    assert [piece[:2] for piece in said(listener)][:4] == [(0, b"<0>"), (1, b"<0>"), (0, b"<1>"), (1, b"<1>")]


def test_a_handler_may_send_pieces_before_it_returns() -> None:
    def handle(data: Any, context: Context) -> Any:
        if data:
            context.send(["one", None])
            context.send(["two", "two"])
        return ["last", "last"]

    listener = stream(handle, 2)
    assert said(listener) == [
        (0, b"one", False), (0, b"two", False), (1, b"two", False), (0, b"last", True), (1, b"last", True)
    ]  # fmt: skip


def test_nothing_is_sent_early_to_a_request_that_was_cancelled() -> None:
    listener = Listener()
    made = batch(1, [b"", b""], listener)

    def predict(items: list[Any], context: Context) -> list[str]:
        made.cancelled.add(0)
        context.send(["a", "b"])
        return ["", ""]

    Inline(program(predict), None, nothing, nothing).submit(made)
    assert said(listener)[0] == (1, b"b", False)

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from shoal.config.model import MicroBatching
from shoal.errors import HandlerFailed, InvalidInput
from shoal.wire.messages import Answered, Ended, Failure, Pieces
from shoal.worker.handler import Context, Handler
from shoal.worker.pipeline import Inline, Threaded
from tests.unit.worker.making import (
    STAGES,
    Doubler,
    Listener,
    Result,
    batch,
    failing,
    inline,
    messages,
    nothing,
    program,
    staged,
)


def test_a_plain_function_answers_in_one_frame() -> None:
    results, listener = inline(lambda items: [item.upper() for item in items], b"a", b"b")
    assert results == [b"A", b"B"]
    ((message, _),) = listener.frames
    assert message == Answered(1, [1, 1], ["application/octet-stream"], message.stages)
    assert message.stages[0] == message.stages[2] == 0.0 < message.stages[1]


def test_content_types_are_listed_when_they_differ() -> None:
    _, listener = inline(lambda items: ["text", {"a": 1}], b"", b"")
    assert listener.frames[0][0].content_types == ["text/plain; charset=utf-8", "application/json"]


def test_a_handle_method_is_given_rows_and_the_context() -> None:
    class Service:
        def initialize(self, context: Context) -> None:
            self.name = context.model_name

        def handle(self, data: Any, context: Context) -> Any:
            ids = [context.get_request_id(index) for index, _ in enumerate(data)]
            return [{"body": bytes(row["body"]).decode(), "id": ids.pop(0), "model": self.name} for row in data]

    results, _ = inline(Service(), b"x", b"y")
    assert results == [
        b'{"body":"x","id":"1-0","model":"m"}',
        b'{"body":"y","id":"1-1","model":"m"}',
    ]


def test_a_handle_function_is_called_with_nothing_to_initialise_it() -> None:
    calls: list[Any] = []

    def handle(data: Any, context: Context) -> Any:
        calls.append(data)
        return data and ["done" for _ in data]

    results, _ = inline(handle, b"x")
    assert results == [b"done"]
    assert calls == [None, [{"body": bytearray(b"x")}]]


def test_a_function_may_ask_for_the_context() -> None:
    def predict(items: list[Any], context: Context) -> list[Any]:
        return [context.get_request_id(index) for index, _ in enumerate(items)]

    assert inline(predict, b"x")[0] == [b"1-0"]
    assert program(predict).wants_headers
    assert not program(lambda items: items).wants_headers


def test_a_coroutine_function_is_awaited_and_sees_its_batch() -> None:
    async def predict(items: list[Any], context: Context) -> list[Any]:
        await asyncio.sleep(0)
        return [context.get_request_id(0) for _ in items]

    listener = Listener()
    pipeline = Inline(program(predict), None, nothing, nothing)
    for number in (1, 2):
        pipeline.submit(batch(number, [b"x"], listener))
    assert listener.results(1, 1) + listener.results(2, 1) == [b"1-0", b"2-0"]


def test_nothing_of_a_batch_is_at_hand_after_it() -> None:
    made = program(lambda items: items)
    Inline(made, None, nothing, nothing).submit(batch(1, [b"x"], Listener()))
    assert isinstance(made.context, Context)
    assert len(made.context.requests) == 0


def test_a_handler_of_one_stage_sees_its_batches_whole() -> None:
    assert staged(lambda items: [len(items) for _ in items], b"", b"", size=1)[0] == [b"2", b"2"]


def test_native_stages_run_in_order() -> None:
    results, listener = staged(Doubler(), b"1", b"2")
    assert results == [b"2", b"4"]
    assert all(seconds > 0 for seconds in listener.ends[0].stages)


def test_a_preprocess_of_the_users_own_is_given_rows() -> None:
    class Rows(Handler):
        def preprocess(self, data: list[Any]) -> Any:
            return b"".join(row["body"] for row in data)

        def inference(self, data: Any) -> Any:
            return data.upper()

        def postprocess(self, data: Any) -> list[Any]:
            return [bytes([byte]) for byte in data]

    assert staged(Rows(), b"a", b"b")[0] == [b"A", b"B"]


def test_a_batch_decoded_together_is_given_views_and_may_give_errors_in_place_of_items() -> None:
    seen: list[type] = []

    class Together(Handler):
        def decode_batch(self, items: list[Any]) -> Any:
            seen.extend(type(item) for item in items)
            return [bytes(item) if len(item) < 3 else InvalidInput("too long") for item in items]

        def inference(self, data: Any) -> Any:
            return [item.upper() for item in data]

    results, _ = staged(Together(), b"a", b"long", b"b")

    assert [results[0], results[2]] == [b"A", b"B"]
    assert messages(results)[1] == "too long"
    assert seen == [memoryview] * 3


@pytest.mark.parametrize("run", [inline, staged])
def test_json_that_cannot_be_read_fails_its_item_alone(run: Callable[..., tuple[list[Result], Listener]]) -> None:
    seen: list[Any] = []

    def predict(items: list[Any]) -> list[Any]:
        seen.extend(items)
        return items

    results, listener = run(predict, b"1", b"{", b"3", content_type="application/json")
    assert [results[0], results[2]] == [b"1", b"3"]
    assert messages(results)[1] == "body is not valid JSON: input data was truncated at byte 1"
    assert seen == [1, 3]
    assert isinstance(listener.frames[-1][0], Ended)


def test_a_function_is_not_called_when_no_item_could_be_read() -> None:
    calls: list[Any] = []

    def predict(items: list[Any]) -> list[Any]:
        calls.append(items)
        return items

    results, _ = inline(predict, b"{", b"{", content_type="application/json")
    assert calls == []
    assert all("not valid JSON" in message for message in messages(results))


def test_an_item_that_cannot_be_decoded_fails_alone() -> None:
    results, _ = staged(Doubler(), b"1", b"x", b"3")
    assert [results[0], results[2]] == [b"2", b"6"]
    assert isinstance(results[1], Failure)
    assert results[1].kind == "input"
    assert "invalid literal" in results[1].message


def test_an_item_that_cannot_be_encoded_fails_alone() -> None:
    class Picky(Doubler):
        def encode(self, output: int) -> str:
            if output == 4:
                raise ValueError("not four")
            return str(output)

    results, _ = staged(Picky(), b"1", b"2")
    assert results[0] == b"2"
    assert isinstance(results[1], Failure)
    assert (results[1].kind, results[1].message) == ("handler", "Picky.encode raised ValueError: not four")


def test_inference_is_not_called_when_no_item_is_left() -> None:
    calls: list[Any] = []

    class Deaf(Doubler):
        def inference(self, data: list[int]) -> list[int]:
            calls.append(data)
            return data

    results, _ = staged(Deaf(), b"x", b"y")
    assert calls == []
    assert all("could not be read" in message for message in messages(results))


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize(
    "error", [ValueError("oh"), SystemExit(3), KeyboardInterrupt(), MemoryError(), HandlerFailed("oh", status=422)]
)
def test_a_stage_that_raises_fails_the_batch_and_lives(stage: str, error: BaseException) -> None:
    class Fragile:
        is_broken = True

        def step(self, name: str, data: Any) -> Any:
            if name == stage and self.is_broken:
                raise error
            return data

        def preprocess(self, data: Any) -> Any:
            return self.step("preprocess", [bytes(row["body"]) for row in data])

        def inference(self, data: Any) -> Any:
            return self.step("inference", data)

        def postprocess(self, data: Any) -> Any:
            return self.step("postprocess", data)

    target, listener = Fragile(), Listener()
    pipeline = Threaded(program(target), MicroBatching(), None, nothing)
    pipeline.start()
    pipeline.submit(batch(1, [b"a", b"b"], listener))
    listener.wait()
    target.is_broken = False
    pipeline.submit(batch(2, [b"a"], listener))
    listener.wait()
    failed = listener.results(1, 2)
    assert failed[0] == failed[1]
    assert isinstance(failed[0], Failure)
    assert failed[0].kind == ("memory" if isinstance(error, MemoryError) else "handler")
    assert listener.results(2, 1) == [b"a"]
    assert isinstance(listener.ends[0], Ended)
    assert listener.ends[0].failure == failed[0], "a failure of all is said once"


@pytest.mark.parametrize("results", [[1, 2, 3], [], [1, 2, 3, 4, 5]])
def test_a_wrong_number_of_results_names_both_numbers(results: list[int]) -> None:
    def predict(items: list[Any]) -> list[Any]:
        return results

    given, _ = inline(predict, b"", b"", b"", b"")
    assert messages(given) == [f"handler predict gave {len(results)} results for 4 requests"] * 4


def test_a_wrong_number_of_outputs_names_the_stage_that_gave_them() -> None:
    class Short(Doubler):
        def inference(self, data: list[int]) -> list[int]:
            return data[1:]

    assert messages(staged(Short(), b"1", b"2")[0]) == ["handler Short.inference gave 1 results for 2 requests"] * 2


@pytest.mark.parametrize("result", [{"a": 1}, "ab", None, 3])
def test_what_is_not_a_list_is_said_clearly(result: Any) -> None:
    what = "None" if result is None else f"a value of type {type(result).__name__}"
    expected = f"handler <lambda> gave {what}; it must give a list with one result per request"
    assert messages(inline(lambda items: result, b"", b"")[0]) == [expected] * 2


def test_tuples_and_arrays_are_lists_too() -> None:
    numpy = pytest.importorskip("numpy")
    assert inline(lambda items: ("a", "b"), b"", b"")[0] == [b"a", b"b"]
    assert inline(lambda items: numpy.array([[1, 2], [3, 4]]), b"", b"")[0] == [b"[1,2]", b"[3,4]"]
    assert inline(lambda items: numpy.array([1.5, 2.5]), b"", b"")[0] == [b"1.5", b"2.5"]
    assert "gave a value of type numpy.ndarray" in messages(inline(lambda items: numpy.array(3), b"")[0])[0]


def test_an_exception_in_place_of_a_result_fails_that_item() -> None:
    results, _ = inline(
        lambda items: ["fine", InvalidInput("not this one"), HandlerFailed("no", status=422)], b"", b"", b""
    )
    assert results == [b"fine", Failure("input", "not this one"), Failure("handler", "no", 422)]


def test_an_exception_given_by_a_stage_takes_its_item_out_of_the_next() -> None:
    class Sieve:
        def preprocess(self, data: Any) -> Any:
            return [InvalidInput("empty") if not row["body"] else bytes(row["body"]) for row in data]

        def inference(self, data: Any) -> Any:
            return [RuntimeError("odd") if item == b"odd" else item for item in data]

        def postprocess(self, data: Any) -> Any:
            assert data == [b"b", b"c"]
            return data

    results, _ = staged(Sieve(), b"", b"b", b"odd", b"c")
    assert [results[1], results[3]] == [b"b", b"c"]
    assert messages(results) == ["empty", "", "Sieve.inference raised RuntimeError: odd", ""]


def test_requests_of_a_batch_that_got_no_memory_share_one_failure_and_the_others_are_answered() -> None:
    results, listener = inline(lambda items: ["fine", MemoryError(), MemoryError("more")], b"", b"", b"")
    end = listener.ends[0]

    assert results[0] == b"fine"
    assert isinstance(results[1], Failure)
    assert results[1] is results[2] is end.failure
    assert results[1].kind == "memory"


def test_another_failure_of_one_stays_its_own_beside_those_without_memory() -> None:
    results, listener = inline(lambda items: [MemoryError(), HandlerFailed("too dark", status=422)], b"", b"")

    assert isinstance(results[1], Failure)
    assert (results[1].message, results[1].status) == ("too dark", 422)
    assert results[0] is listener.ends[0].failure


def test_a_result_that_cannot_be_sent_fails_alone() -> None:
    results, _ = inline(lambda items: ["fine", object()], b"", b"")
    assert results[0] == b"fine"
    assert "a result of type object cannot be sent" in messages(results)[1]


def test_an_answer_over_the_limit_fails_alone() -> None:
    results, _ = inline(lambda items: items, b"short", b"very long", limit=5)
    assert results[0] == b"short"
    assert messages(results)[1] == "an answer of 9 bytes is over the limit of 5"


def test_what_the_handler_says_about_an_answer_goes_with_it() -> None:
    def predict(items: list[Any], context: Context) -> list[Any]:
        context.set_response_content_type(0, "image/png")
        context.set_response_status(404, "Gone Fishing", idx=1)
        context.set_response_header(1, "X-Why", "because")
        return items

    _, listener = inline(predict, b"a", b"b")
    (pieces, bodies), (ended, _) = listener.frames
    assert isinstance(pieces, Pieces)
    assert isinstance(ended, Ended)
    first, second = pieces.pieces
    assert (first.content_type, first.status, first.headers) == ("image/png", 200, [])
    assert (second.status, second.reason, second.headers) == (404, "Gone Fishing", [("X-Why", "because")])
    assert first.is_last
    assert second.is_last
    assert bodies == [b"a", b"b"]


def test_a_content_type_alone_needs_no_pieces() -> None:
    def predict(items: list[Any], context: Context) -> list[Any]:
        context.set_response_content_type(1, "image/png")
        return items

    _, listener = inline(predict, b"a", b"b")
    assert listener.frames[0][0].content_types == ["application/octet-stream", "image/png"]


def test_the_context_counts_the_items_that_are_left() -> None:
    class Tagged(Handler):
        def initialize(self, context: Context) -> None:
            self.context = context

        def decode(self, item: Any) -> Any:
            return int(item)

        def inference(self, data: Any) -> Any:
            for index, number in enumerate(data):
                self.context.set_response_header(index, "X-Number", str(number))
            return [self.context.get_request_id(index) for index, _ in enumerate(data)]

    results, listener = staged(Tagged(), b"0", b"x", b"2")
    assert [results[0], results[2]] == [b"1-0", b"1-2"]
    (pieces,) = [message.pieces for message, _ in listener.frames if isinstance(message, Pieces)]
    headers = {piece.index: piece.headers for piece in pieces}
    assert headers == {0: [("X-Number", "0")], 1: [], 2: [("X-Number", "2")]}


def test_an_error_in_initialize_is_raised_to_whoever_loads() -> None:
    class Broken:
        initialize = failing(OSError("no weights"))

        def inference(self, data: Any) -> Any:
            return data

    with pytest.raises(OSError, match="no weights"):
        program(Broken())

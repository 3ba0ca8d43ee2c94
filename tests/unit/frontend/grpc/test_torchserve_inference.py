import json
import math
from collections.abc import Sequence

import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from hypothesis import given
from hypothesis import strategies as st

from shoal.core.request import State
from shoal.errors import HandlerFailed, ServingError, Unauthorised
from shoal.frontend.grpc import torchserve_inference
from shoal.frontend.grpc.calls import MOST_BEHIND, MOST_PARTS, Api
from shoal.frontend.grpc.proto.inference_pb2 import PredictionResponse, PredictionsRequest, TorchServeHealthResponse
from shoal.frontend.grpc.proto.status_pb2 import ErrorInfo
from shoal.frontend.grpc.torchserve_inference import MOST_WAITING, PREFIX, TorchServeInference
from shoal.frontend.rpc import Code
from shoal.payload import Result
from tests.unit.frontend.grpc.calling import Bed, FakeCall, anyone

UNARY, STREAM, DIALOGUE = PREFIX + "Predictions", PREFIX + "StreamPredictions", PREFIX + "StreamPredictions2"


def call(bed: Bed, method: str, *messages: bytes, timeout: float = math.inf, ends: bool = True) -> FakeCall:
    service = TorchServeInference(bed.desk, health=lambda: "Healthy", authorise=anyone)
    return FakeCall(method, timeout=timeout).begin(service.services(), *messages, ends=ends)


def ask(
    model: str = "m", version: str = "", sequence: str | None = None, inputs: dict[str, bytes] | None = None
) -> bytes:
    message = PredictionsRequest(
        model_name=model, model_version=version, input={"data": b"x"} if inputs is None else inputs
    )
    if sequence is not None:
        message.sequence_id = sequence
    written: bytes = message.SerializeToString()
    return written


def predictions(call: FakeCall) -> list[bytes]:
    return [PredictionResponse.FromString(message).prediction for message in call.sent]


def test_a_prediction_is_answered_in_one_message() -> None:
    bed = Bed()
    made = call(bed, UNARY, ask())
    bed.answer(b"yes")

    assert predictions(made) == [b"yes"]
    assert made.status == (Code.OK, "")


def test_inputs_reach_the_handler_as_parts_without_a_content_type_and_no_header_does() -> None:
    bed = Bed()
    call(bed, UNARY, ask(inputs={"data": b"\xff\x00", "more": b"{}"}))
    payload = bed.running()[0].payload

    assert sorted((part.name, part.content_type, part.data) for part in payload.parts) == [
        ("data", "", b"\xff\x00"),
        ("more", "", b"{}"),
    ]
    assert list(payload.headers) == []


def test_a_request_without_inputs_is_one() -> None:
    bed = Bed()
    call(bed, UNARY, ask(inputs={}))

    assert list(bed.running()[0].payload.parts) == []


@pytest.mark.parametrize(("timeout", "deadline"), [(2.5, 7.5), (math.inf, math.inf)])
def test_the_clients_time_limit_becomes_the_deadline(timeout: float, deadline: float) -> None:
    bed = Bed()
    call(bed, UNARY, ask(), timeout=timeout)
    [request] = bed.running()

    assert (request.deadline, request.arrived, request.client) == (deadline, 5.0, 7)
    assert request.id


def test_every_request_has_an_id_of_its_own() -> None:
    bed = Bed()
    call(bed, DIALOGUE, ask(sequence="q"), ask(sequence="q"))
    first = bed.running()[0].id
    bed.answer(b"")

    assert bed.running()[0].id != first


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (ask(model=""), "Parameter model_name is required.\norg.pytorch.serve.http.BadRequestException"),
        (ask(model="no"), "Model not found: no\norg.pytorch.serve.archive.model.ModelNotFoundException"),
        (
            ask(version="9"),
            "Model version: 9 does not exist for model: m\n"
            "org.pytorch.serve.archive.model.ModelVersionNotFoundException",
        ),
        (b"\xff\xff\xff", "the 3 bytes are no org.pytorch.serve.grpc.inference.PredictionsRequest"),
        (b"\x0a\x02\xff\xfe", "the 4 bytes are no org.pytorch.serve.grpc.inference.PredictionsRequest"),
    ],
)
@pytest.mark.parametrize("method", [UNARY, STREAM])
def test_what_cannot_be_asked_is_an_internal_error(method: str, message: bytes, words: str) -> None:
    made = call(Bed(), method, message)

    assert made.status == (Code.INTERNAL, words)
    assert made.sent == []


@pytest.mark.parametrize("method", [UNARY, STREAM])
def test_no_worker_and_no_room_are_internal_errors(method: str) -> None:
    bed = Bed(limit=1)
    call(bed, method, ask())
    bed.running()
    call(bed, method, ask())
    full = call(bed, method, ask())

    assert full.code is Code.INTERNAL
    assert full.words.endswith("\norg.pytorch.serve.http.ServiceUnavailableException")
    bed.bench.scheduler.batcher.fleet.size = bed.pool.size = 0
    none = call(bed, method, ask())
    assert none.code is Code.INTERNAL
    assert "has no workers" in none.words


@pytest.mark.parametrize(("status", "code"), [(503, Code.UNAVAILABLE), (409, Code.ABORTED), (507, Code.INTERNAL)])
def test_an_error_of_the_handler_has_the_code_of_its_status(status: int, code: Code) -> None:
    bed = Bed()
    made = call(bed, UNARY, ask())
    bed.answer(HandlerFailed("not this one", status=status))

    assert made.status == (code, "not this one\norg.pytorch.serve.http.InternalServerException")


def test_an_error_is_told_with_the_names_the_client_used() -> None:
    bed = Bed()
    made = call(bed, UNARY, ask(version="1.0"))
    bed.answer(HandlerFailed("WHO"))

    assert made.words.startswith("m/1.0\n")


def test_the_status_a_handler_gives_one_row_does_not_matter() -> None:
    bed = Bed()
    made = call(bed, UNARY, ask())
    bed.answer(Result(b"teapot", status=418))

    assert (predictions(made), made.code) == ([b"teapot"], Code.OK)


def test_one_answer_is_the_first_piece_and_the_rest_is_not_computed() -> None:
    bed = Bed()
    made = call(bed, UNARY, ask())
    [request] = bed.running()
    batch = bed.answer(b"first", ends=False)

    assert (predictions(made), made.code) == ([b"first"], Code.OK)
    assert request.state is State.WITHDRAWN
    assert bed.instance.cancelled == [(batch, 0)]


def test_pieces_are_sent_as_they_come() -> None:
    bed = Bed()
    made = call(bed, STREAM, ask())
    bed.answer(b"1", b"2", ends=False)
    assert (predictions(made), made.status) == ([b"1", b"2"], None)
    bed.answer(b"3")

    assert (predictions(made), made.code) == ([b"1", b"2", b"3"], Code.OK)


@pytest.mark.parametrize("method", [STREAM, DIALOGUE])
def test_the_empty_piece_that_ends_a_stream_is_no_message(method: str) -> None:
    bed = Bed()
    made = call(bed, method, ask(sequence="q"))
    bed.answer(b"1", b"", b"2", b"")

    assert (predictions(made), made.code) == ([b"1", b"", b"2"], Code.OK)


@pytest.mark.parametrize("method", [UNARY, STREAM, DIALOGUE])
def test_an_answer_that_is_empty_is_a_message(method: str) -> None:
    bed = Bed()
    made = call(bed, method, ask(sequence="q"))
    bed.answer(b"")

    assert (predictions(made), made.code) == ([b""], Code.OK)


def test_a_stream_that_breaks_ends_with_its_error() -> None:
    bed = Bed()
    made = call(bed, STREAM, ask())
    bed.answer(b"1", HandlerFailed("no more", status=503))

    assert (predictions(made), made.code) == ([b"1"], Code.UNAVAILABLE)


@pytest.mark.parametrize("method", [UNARY, STREAM, DIALOGUE])
def test_a_client_that_leaves_takes_its_waiting_request_along(method: str) -> None:
    bed = Bed()
    made = call(bed, method, ask(sequence="q"))
    made.on_gone()

    assert bed.running() == []
    assert bed.bench.stats.withdrawn == 1
    assert made.sent == []


@pytest.mark.parametrize("method", [UNARY, STREAM, DIALOGUE])
def test_a_client_that_leaves_ends_its_running_request(method: str) -> None:
    bed = Bed()
    made = call(bed, method, ask(sequence="q"))
    [request] = bed.running()
    made.on_gone()

    assert request.state is State.WITHDRAWN
    assert len(bed.instance.cancelled) == 1


@pytest.mark.parametrize("method", [UNARY, STREAM])
def test_a_method_of_one_message_takes_no_second(method: str) -> None:
    bed = Bed()
    made = call(bed, method, ask(), ask())

    assert made.status == (Code.INTERNAL, f"{method} takes one message, and another came")
    assert bed.running() == []


@pytest.mark.parametrize("method", [UNARY, STREAM, PREFIX + "Ping"])
def test_a_method_of_one_message_needs_it(method: str) -> None:
    assert call(Bed(), method).status == (Code.INTERNAL, f"{method} takes one message, and none came")


def test_a_client_that_does_not_read_may_fall_behind_only_so_far() -> None:
    bed = Bed()
    made = call(bed, STREAM, ask())
    [request] = bed.running()
    made.is_read = False
    bed.answer(bytes(MOST_BEHIND // 2), ends=False)
    made.is_read = True
    bed.answer(bytes(MOST_BEHIND // 2), ends=False)  # it read in between
    made.is_read = False
    bed.answer(bytes(MOST_BEHIND // 2), ends=False)
    assert made.status is None
    bed.answer(bytes(MOST_BEHIND // 2 + 1), ends=False)

    assert made.code is Code.RESOURCE_EXHAUSTED
    assert request.state is State.WITHDRAWN
    assert len(made.sent) == 3


def test_a_large_single_answer_is_sent_however_slow_its_client_reads() -> None:
    bed = Bed()
    made = call(bed, UNARY, ask())
    made.is_read = False
    bed.answer(bytes(MOST_BEHIND + 1))

    assert made.code is Code.OK


def test_the_number_of_inputs_is_limited() -> None:
    bed = Bed()
    made = call(bed, UNARY, ask(inputs={str(number): b"" for number in range(MOST_PARTS + 1)}))

    assert made.code is Code.RESOURCE_EXHAUSTED
    assert f"at most {MOST_PARTS} inputs, got {MOST_PARTS + 1}" in made.words


@pytest.mark.parametrize("word", ["Healthy", "Unhealthy"])
def test_ping_never_fails(word: str) -> None:
    service = TorchServeInference(Bed().desk, health=lambda: word, authorise=anyone)
    made = FakeCall(PREFIX + "Ping").begin(service.services(), b"")

    health = TorchServeHealthResponse.FromString(made.sent[0]).health
    assert health == f'{{\n  "status": "{word}"\n}}'
    assert json.loads(health) == {"status": word}
    assert made.code is Code.OK


@pytest.mark.parametrize("method", [UNARY, STREAM, DIALOGUE, PREFIX + "Ping"])
def test_nothing_is_done_for_who_has_no_key(method: str) -> None:
    bed = Bed()
    seen: list[tuple[Sequence[tuple[bytes, bytes]], Api]] = []

    def authorise(metadata: Sequence[tuple[bytes, bytes]], api: Api) -> None:
        seen.append((metadata, api))
        raise Unauthorised("no key, no fish")

    service = TorchServeInference(bed.desk, health=lambda: "Healthy", authorise=authorise)
    key = (b"authorization", b"Bearer x")
    made = FakeCall(method, metadata=[key]).begin(service.services(), ask(sequence="q"))

    assert made.status == (Code.PERMISSION_DENIED, "no key, no fish")
    assert seen == [([key], "inference")]
    assert made.sent == []
    assert bed.running() == []


def answers(made: FakeCall) -> list[tuple[bytes, str, int, str]]:
    found = [PredictionResponse.FromString(message) for message in made.sent]
    return [(answer.prediction, answer.sequence_id, answer.status.code, answer.status.message) for answer in found]


def test_requests_of_one_stream_run_one_after_the_other_and_are_answered_in_order() -> None:
    bed = Bed()
    made = call(bed, DIALOGUE, *[ask(sequence=f"q{number}") for number in range(3)])
    for number in range(3):
        assert len(bed.running()) == 1
        assert made.status is None
        bed.answer(b"%d" % number)

    assert answers(made) == [(b"0", "q0", 0, ""), (b"1", "q1", 0, ""), (b"2", "q2", 0, "")]
    assert made.status == (Code.OK, "")


def test_a_handler_sees_whose_request_it_is_and_not_that_the_sequence_has_ended() -> None:
    bed = Bed()
    call(bed, DIALOGUE, ask(sequence="q1"), ends=False)

    assert list(bed.running()[0].payload.headers) == [(b"ts_request_sequence_id", b"q1")]


def test_a_stream_stays_open_until_its_client_ends_it() -> None:
    bed = Bed()
    made = call(bed, DIALOGUE, ask(sequence="q"), ends=False)
    bed.answer(b"1")
    assert made.status is None
    made.on_message(ask(sequence="q"))
    bed.answer(b"2")
    made.on_end()

    assert [answer[0] for answer in answers(made)] == [b"1", b"2"]
    assert made.code is Code.OK


def test_a_stream_without_a_message_just_ends() -> None:
    made = call(Bed(), DIALOGUE)

    assert (made.sent, made.code) == ([], Code.OK)


@pytest.mark.parametrize(
    ("message", "answer", "kind"),
    [
        (ask(), (b"", "", 13, "Parameter sequenceId is required."), "org.pytorch.serve.http.BadRequestException"),
        (ask(sequence=""), (b"", "", 13, "Parameter sequenceId is required."),
         "org.pytorch.serve.http.BadRequestException"),
        (ask(model="", sequence="q"), (b"", "q", 13, "Parameter model_name is required."),
         "org.pytorch.serve.http.BadRequestException"),
        (ask(model="no", sequence="q"), (b"", "q", 13, "Model not found: no"),
         "org.pytorch.serve.archive.model.ModelNotFoundException"),
        (b"\xff", (b"", "", 13, "the 1 bytes are no org.pytorch.serve.grpc.inference.PredictionsRequest"), ""),
    ],
)  # fmt: skip
def test_an_error_is_an_answer_in_its_turn_and_the_stream_goes_on(
    message: bytes, answer: tuple[bytes, str, int, str], kind: str
) -> None:
    bed = Bed()
    made = call(bed, DIALOGUE, ask(sequence="q"), message, ask(sequence="q"))
    bed.answer(b"1")
    bed.answer(HandlerFailed("not now", status=503))

    assert answers(made) == [(b"1", "q", 0, ""), answer, (b"", "q", 14, "not now")]
    assert made.status == (Code.OK, "")
    [detail] = PredictionResponse.FromString(made.sent[1]).status.details
    packed = AnyMessage.FromString(detail.SerializeToString())
    assert packed.type_url == "type.googleapis.com/google.rpc.ErrorInfo"
    assert ErrorInfo.FromString(packed.value).reason == kind


def test_pieces_of_a_streaming_handler_all_carry_their_sequence() -> None:
    bed = Bed()
    made = call(bed, DIALOGUE, ask(sequence="q"))
    bed.answer(b"1", b"2")

    assert answers(made) == [(b"1", "q", 0, ""), (b"2", "q", 0, "")]
    assert made.code is Code.OK


def test_a_client_may_be_ahead_of_the_model_only_so_many_messages() -> None:
    bed = Bed()
    made = call(bed, DIALOGUE, *[ask(sequence="q")] * (MOST_WAITING + 1), ends=False)
    [request] = bed.running()
    assert made.status is None
    made.on_message(ask(sequence="q"))

    assert made.code is Code.RESOURCE_EXHAUSTED
    assert "ahead" in made.words
    assert request.state is State.WITHDRAWN


def test_a_client_may_be_ahead_of_the_model_only_so_many_bytes() -> None:
    bed = Bed()
    large = ask(sequence="q", inputs={"data": bytes(MOST_BEHIND)})
    made = call(bed, DIALOGUE, large, large, ends=False)
    assert made.status is None  # one runs, one waits
    made.on_message(ask(sequence="q"))

    assert made.code is Code.RESOURCE_EXHAUSTED


def test_what_was_answered_no_longer_counts_as_ahead() -> None:
    bed = Bed()
    large = ask(sequence="q", inputs={"data": bytes(MOST_BEHIND // 4)})
    made = call(bed, DIALOGUE, large, large, large, ends=False)
    for _ in range(4):  # one runs, two wait
        bed.answer(b"")
        made.on_message(large)

    assert made.status is None


def test_a_stream_that_is_not_read_may_fall_behind_only_so_far() -> None:
    bed = Bed()
    made = call(bed, DIALOGUE, *[ask(sequence="q")] * 3, ends=False)
    made.is_read = False
    bed.answer(bytes(MOST_BEHIND // 2))
    assert made.status is None
    bed.answer(bytes(MOST_BEHIND // 2 + 1))

    assert made.code is Code.RESOURCE_EXHAUSTED
    assert bed.running() == []


def test_all_methods_are_there() -> None:
    service = TorchServeInference(Bed().desk, health=lambda: "Healthy", authorise=anyone)

    assert torchserve_inference.PREFIX == "/org.pytorch.serve.grpc.inference.InferenceAPIsService/"
    assert {method.rpartition("/")[2] for method in service.services()} == {
        "Ping", "Predictions", "StreamPredictions", "StreamPredictions2",
    }  # fmt: skip


@given(st.lists(st.binary(max_size=64), max_size=4), st.sampled_from([UNARY, STREAM, DIALOGUE, PREFIX + "Ping"]))
def test_whatever_bytes_come_the_call_ends_or_a_request_runs(messages: list[bytes], method: str) -> None:
    bed = Bed()
    made = call(bed, method, *messages)

    assert made.status is not None
    assert bed.running() == []


@given(st.lists(st.sampled_from(["m", "no", ""]), max_size=6), st.lists(st.booleans(), min_size=6, max_size=6))
def test_every_message_of_a_stream_gets_one_answer_in_its_place(models: list[str], fine: list[bool]) -> None:
    bed = Bed()
    made = call(bed, DIALOGUE, *[ask(model=model, sequence=str(n)) for n, model in enumerate(models)])
    outcomes: list[bytes | ServingError] = [b"yes" if is_fine else HandlerFailed("no") for is_fine in fine]
    expected = []
    for number, model in enumerate(models):
        if model == "m":
            bed.answer(outcomes[number])
        expected.append((str(number), model == "m" and fine[number]))

    assert [(answer[1], answer[0] == b"yes") for answer in answers(made)] == expected
    assert made.code is Code.OK

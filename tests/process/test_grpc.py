"""The gRPC services with real clients, real workers and each transport there is."""

import asyncio
import json
import math
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shoal.errors import Unauthorised
from shoal.frontend.grpc.calls import Api
from shoal.frontend.grpc.open_inference import PREFIX as OPEN
from shoal.frontend.grpc.proto import open_inference_pb2
from shoal.frontend.grpc.proto.inference_pb2 import PredictionsRequest, TorchServeHealthResponse
from shoal.frontend.grpc.proto.management_pb2 import (
    DescribeModelRequest,
    ListModelsRequest,
    RegisterModelRequest,
    ScaleWorkerRequest,
    SetDefaultRequest,
    UnregisterModelRequest,
)
from shoal.frontend.grpc.proto.status_pb2 import ErrorInfo
from shoal.frontend.grpc.torchserve_inference import PREFIX as INFERENCE
from shoal.frontend.grpc.torchserve_management import PREFIX as MANAGEMENT
from tests.process.grpc_front import (
    MAX_MESSAGE,
    TRANSPORTS,
    Front,
    fronting,
    listener,
    predictions,
    raw,
    stream_predictions,
    stream_predictions2,
)
from tests.serving import eventually

METHODS = [INFERENCE + name for name in ("Ping", "Predictions", "StreamPredictions", "StreamPredictions2")]
METHODS += [OPEN + name for name in ("ServerLive", "ServerReady", "ModelReady", "ModelMetadata", "ModelInfer")]
ACTIONS = ["DescribeModel", "ListModels", "ScaleWorker", "SetDefault", "UnregisterModel"]


@pytest.fixture(scope="module", params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def front(transport: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    with fronting(tmp_path_factory.mktemp("front"), transport, compat="torchserve", workers=2) as front:
        yield front


def do(**item: Any) -> bytes:
    return json.dumps(item).encode()


def request_of(data: bytes, sequence: str | None = None, model: str = "deeds") -> PredictionsRequest:
    return PredictionsRequest(model_name=model, input={"data": data}, sequence_id=sequence)


def failure(call: Any) -> tuple[str, str]:
    with pytest.raises(grpc.RpcError) as failed:
        call()
    return failed.value.code().name, failed.value.details()


def test_a_prediction(front: Front) -> None:
    assert front.predict(b"hello") == b"hello"
    assert front.predict(b"hello", model_version="1.0") == b"hello"


def test_values_reach_the_handler_as_bytearrays(front: Front) -> None:
    with front.channel() as channel:
        request = PredictionsRequest(model_name="deeds", input={"data": do(do="look"), "text": b"{}"})
        answer = predictions(channel)(request)

    assert json.loads(answer.prediction)["types"] == {"data": "bytearray", "text": "bytearray"}


def test_ping(front: Front) -> None:
    with front.channel() as channel:
        answer = raw(channel, INFERENCE + "Ping")(b"")

    assert TorchServeHealthResponse.FromString(answer).health == '{\n  "status": "Healthy"\n}'


@pytest.mark.parametrize(
    ("fields", "code", "details"),
    [
        ({"model": ""}, "INTERNAL", "Parameter model_name is required.\norg.pytorch.serve.http.BadRequestException"),
        (
            {"model": "no"},
            "INTERNAL",
            "Model not found: no\norg.pytorch.serve.archive.model.ModelNotFoundException",
        ),
        (
            {"model_version": "9"},
            "INTERNAL",
            "Model version: 9 does not exist for model: deeds\n"
            "org.pytorch.serve.archive.model.ModelVersionNotFoundException",
        ),
        ({"data": do(do="raise")}, "UNAVAILABLE", None),
        *(
            ({"data": do(do="fail", status=status, message="mine")}, code,
             "mine\norg.pytorch.serve.http.InternalServerException")
            for status, code in [
                (400, "INVALID_ARGUMENT"), (401, "UNAUTHENTICATED"), (403, "PERMISSION_DENIED"), (404, "NOT_FOUND"),
                (409, "ABORTED"), (429, "RESOURCE_EXHAUSTED"), (416, "OUT_OF_RANGE"), (499, "CANCELLED"),
                (418, "FAILED_PRECONDITION"), (501, "UNIMPLEMENTED"), (503, "UNAVAILABLE"), (507, "INTERNAL"),
            ]
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("make", [predictions, stream_predictions])
def test_errors_have_torchserves_codes_and_words(
    front: Front, make: Any, fields: dict[str, Any], code: str, details: str | None
) -> None:
    fields = {"model": "deeds", "data": b"x", "model_version": "", **fields}
    request = PredictionsRequest(
        model_name=fields["model"], model_version=fields["model_version"], input={"data": fields["data"]}
    )
    with front.channel() as channel:
        answers = make(channel)
        found = failure(lambda: list(answers(request)) if make is stream_predictions else answers(request))

    assert found[0] == code
    assert details is None or found[1] == details
    assert found[1].rpartition("\n")[2].startswith("org.pytorch.serve.")


def test_pieces_come_as_the_model_makes_them(front: Front, tmp_path: Path) -> None:
    mark = tmp_path / "go on"
    with front.channel() as channel:
        answers = stream_predictions(channel)(request_of(do(do="wait", path=str(mark))), timeout=60)

        assert next(answers).prediction == b"before"
        mark.touch()
        assert [answer.prediction for answer in answers] == [b"after"]
        assert answers.code() is grpc.StatusCode.OK


def test_a_plain_answer_is_a_stream_of_one(front: Front) -> None:
    with front.channel() as channel:
        assert [answer.prediction for answer in stream_predictions(channel)(request_of(b"one"))] == [b"one"]


def test_a_long_stream_arrives_whole_and_in_order(front: Front) -> None:
    with front.channel() as channel:
        answers = stream_predictions(channel)(request_of(do(do="count", to=5000)), timeout=60)

        assert [answer.prediction for answer in answers] == [b"%d" % number for number in range(5000)]


def test_one_answer_of_a_stream_is_its_first_piece_and_the_model_is_told_to_stop(front: Front, tmp_path: Path) -> None:
    mark = tmp_path / "closed"

    assert front.predict(do(do="endless", path=str(mark), size=10)) == b"x" * 10
    eventually(mark.exists, "the handler's generator is closed")


def test_a_cancelled_stream_stops_its_model(front: Front, tmp_path: Path) -> None:
    mark = tmp_path / "closed"
    with front.channel() as channel:
        answers = stream_predictions(channel)(request_of(do(do="endless", path=str(mark), size=10)))
        next(answers)
        answers.cancel()

        eventually(mark.exists, "the handler's generator is closed")


def test_a_client_that_goes_away_stops_its_model(front: Front, tmp_path: Path) -> None:
    mark = tmp_path / "closed"
    with front.channel() as channel:
        next(stream_predictions(channel)(request_of(do(do="endless", path=str(mark), size=10))))

    eventually(mark.exists, "the handler's generator is closed")


def test_a_client_that_does_not_read_is_given_up(front: Front, tmp_path: Path) -> None:
    mark = tmp_path / "closed"
    with front.channel() as channel:
        answers = stream_predictions(channel)(request_of(do(do="endless", path=str(mark), size=100_000)))
        next(answers)
        eventually(mark.exists, "the handler's generator is closed", within=60)
        code, details = failure(lambda: list(answers))

    assert code == "RESOURCE_EXHAUSTED"
    assert "behind" in details


def test_after_its_time_limit_a_call_is_over_and_what_waited_is_not_run(transport: str, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    with fronting(tmp_path, transport, batching={"policy": "single"}) as front, front.channel() as channel:
        busy = predictions(channel).future(request_of(do(do="sleep", seconds=2)))
        eventually(lambda: front.app.repository.find("deeds").scheduler.running > 0, "the worker is busy")
        late = failure(lambda: predictions(channel)(request_of(do(do="touch", path=str(mark))), timeout=0.3))

        assert late[0] == "DEADLINE_EXCEEDED"
        assert busy.result().prediction == b"slept"
        assert front.predict(b"next") == b"next"
        assert not mark.exists()


def test_a_cancelled_call_that_waited_is_not_run(transport: str, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    with fronting(tmp_path, transport, batching={"policy": "single"}) as front, front.channel() as channel:
        model = front.app.repository.find("deeds")
        busy = predictions(channel).future(request_of(do(do="sleep", seconds=2)))
        eventually(lambda: model.scheduler.running > 0, "the worker is busy")
        waiting = predictions(channel).future(request_of(do(do="touch", path=str(mark))))
        eventually(lambda: len(model.scheduler.batcher.queue) == 1, "it waits")
        waiting.cancel()

        eventually(lambda: len(model.scheduler.batcher.queue) == 0, "it was withdrawn")
        assert busy.result().prediction == b"slept"
        assert front.predict(b"next") == b"next"
        assert not mark.exists()


def test_large_messages_pass_up_to_the_limit(front: Front) -> None:
    large = bytes(range(256)) * (MAX_MESSAGE // 256 - 1)

    assert front.predict(large) == large
    assert failure(lambda: front.predict(bytes(MAX_MESSAGE)))[0] == "RESOURCE_EXHAUSTED"
    assert front.predict(b"still here") == b"still here"


@pytest.mark.parametrize("method", [INFERENCE + "No", "/no.Service/No", MANAGEMENT + "ListModels"])
def test_an_unknown_method_is_unimplemented(front: Front, method: str) -> None:
    with front.channel() as channel:
        assert failure(lambda: raw(channel, method)(b""))[0] == "UNIMPLEMENTED"


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("garbage", [b"\xff\xff\xff", b"\x0a\xff", b"\x0a\x02\xff\xfe"])
def test_garbage_harms_nobody(front: Front, method: str, garbage: bytes) -> None:
    with front.channel() as channel:
        answers = channel.stream_stream(method)
        if method.endswith("StreamPredictions2"):
            assert len(list(answers(iter([garbage])))) == 1
        elif method.endswith(("Ping", "ServerLive", "ServerReady")) and garbage == b"\x0a\x02\xff\xfe":
            list(answers(iter([garbage])))  # a message of no fields has others' for unknown ones
        else:
            assert failure(lambda: list(answers(iter([garbage]))))[0] == "INTERNAL"
    assert front.predict(b"still here") == b"still here"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(messages=st.lists(st.binary(max_size=200), max_size=3), method=st.sampled_from(METHODS))
def test_whatever_is_sent_to_inference_gets_an_end(front: Front, messages: list[bytes], method: str) -> None:
    with front.channel() as channel:
        answers = channel.stream_stream(method)(iter(messages), timeout=20)
        try:
            list(answers)
        except grpc.RpcError:
            assert answers.code() is not grpc.StatusCode.DEADLINE_EXCEEDED
        assert predictions(channel)(request_of(b"x")).prediction == b"x"


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(message=st.binary(max_size=200), method=st.sampled_from(ACTIONS))
def test_whatever_is_sent_to_management_gets_an_end(front: Front, message: bytes, method: str) -> None:
    with front.channel(front.management) as channel:
        try:
            raw(channel, MANAGEMENT + method)(message, timeout=20)
        except grpc.RpcError as error:
            assert error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED
    assert front.predict(b"x") == b"x"


def test_a_dialogue_answers_each_message_in_its_turn(front: Front) -> None:
    said: SimpleQueue[PredictionsRequest | None] = SimpleQueue()
    with front.channel() as channel:
        answers = stream_predictions2(channel)(iter(said.get, None), timeout=60)
        said.put(request_of(do(do="look"), "s1"))
        first = next(answers)
        assert json.loads(first.prediction) == {"types": {"data": "bytearray"}, "sequence": "s1", "end": None}
        assert first.sequence_id == "s1"
        said.put(request_of(b"lost"))
        said.put(request_of(b"lost", "s1", model="no"))
        said.put(request_of(do(do="fail", status=503, message="mine"), "s1"))
        said.put(request_of(b"found", "s2"))
        said.put(None)
        rest = list(answers)

        assert answers.code() is grpc.StatusCode.OK
    assert [(answer.status.code, answer.status.message) for answer in rest] == [
        (13, "Parameter sequenceId is required."),
        (13, "Model not found: no"),
        (14, "mine"),
        (0, ""),
    ]
    assert [answer.HasField("status") for answer in rest] == [True, True, True, False]
    assert (rest[3].prediction, rest[3].sequence_id) == (b"found", "s2")
    assert ErrorInfo.FromString(rest[1].status.details[0].value).reason == (
        "org.pytorch.serve.archive.model.ModelNotFoundException"
    )


def test_many_messages_of_one_dialogue_keep_their_order(front: Front) -> None:
    with front.channel() as channel:
        answers = stream_predictions2(channel)((request_of(b"%d" % n, f"s{n % 3}") for n in range(300)), timeout=60)

        assert [answer.prediction for answer in answers] == [b"%d" % n for n in range(300)]


def test_an_asynchronous_client_with_many_calls_at_once(front: Front) -> None:
    async def play() -> list[bytes]:
        async with grpc.aio.insecure_channel(front.inference) as channel:
            stub = predictions(channel)
            answers = await asyncio.gather(*(stub(request_of(b"%d" % number)) for number in range(500)))
            return [answer.prediction for answer in answers]

    assert asyncio.run(play()) == [b"%d" % number for number in range(500)]


def test_models_are_managed_from_register_to_unregister(front: Front) -> None:
    name = "second"
    register = RegisterModelRequest(url="deeds.py", model_name=name, initial_workers=1, synchronous=True)

    assert front.manage("RegisterModel", register) == (f'Model "{name}" Version: 1.0 registered with 1 initial workers')
    assert front.predict(b"hello", name) == b"hello"
    assert failure(lambda: front.manage("RegisterModel", register)) == (
        "ALREADY_EXISTS",
        f"Model version 1.0 is already registered for model {name}\norg.pytorch.serve.http.ConflictStatusException",
    )
    listed = json.loads(front.manage("ListModels", ListModelsRequest()))
    assert [row["modelName"] for row in listed["models"]] == ["deeds", name]
    page = json.loads(front.manage("ListModels", ListModelsRequest(limit=1, next_page_token=1)))
    assert [row["modelName"] for row in page["models"]] == [name]
    [described] = json.loads(front.manage("DescribeModel", DescribeModelRequest(model_name=name)))
    assert (described["modelName"], described["modelVersion"], len(described["workers"])) == (name, "1.0", 1)
    scale = ScaleWorkerRequest(model_name=name, min_worker=2, synchronous=True)
    assert front.manage("ScaleWorker", scale) == f"Workers scaled to 2 for model: {name}"
    assert front.manage("ScaleWorker", ScaleWorkerRequest(model_name=name, min_worker=1, max_worker=1)) == (
        "Processing worker updates..."
    )
    assert front.manage("SetDefault", SetDefaultRequest(model_name=name, model_version="1.0")) == (
        f'Default version successfully updated for model "{name}" to "1.0"'
    )
    assert front.manage("UnregisterModel", UnregisterModelRequest(model_name=name)) == f'Model "{name}" unregistered'
    assert failure(lambda: front.predict(b"hello", name))[0] == "INTERNAL"


def test_a_model_registered_without_workers_refuses_predictions(front: Front) -> None:
    register = RegisterModelRequest(url="deeds.py", model_name="idle", synchronous=True)
    front.manage("RegisterModel", register)
    none = front.app.apis.actions.scale("idle", "", {"min_worker": "0", "synchronous": "true"})
    asyncio.run_coroutine_threadsafe(none, front.loop).result(30)
    try:
        code, details = failure(lambda: front.predict(b"hello", "idle"))

        assert code == "INTERNAL"
        assert 'Model "idle" has no worker to serve inference request.' in details
    finally:
        front.manage("UnregisterModel", UnregisterModelRequest(model_name="idle"))


@pytest.mark.parametrize(
    ("method", "request_", "code"),
    [
        ("RegisterModel", RegisterModelRequest(), "INVALID_ARGUMENT"),
        ("RegisterModel", RegisterModelRequest(url="no.mar"), "NOT_FOUND"),
        ("DescribeModel", DescribeModelRequest(model_name="no"), "NOT_FOUND"),
        ("DescribeModel", DescribeModelRequest(model_name="deeds", model_version="9"), "NOT_FOUND"),
        ("ScaleWorker", ScaleWorkerRequest(model_name="no"), "NOT_FOUND"),
        ("ScaleWorker", ScaleWorkerRequest(model_name="deeds", min_worker=3, max_worker=1), "INVALID_ARGUMENT"),
        ("SetDefault", SetDefaultRequest(model_name="no", model_version="1"), "NOT_FOUND"),
        ("SetDefault", SetDefaultRequest(model_name="deeds", model_version="9"), "NOT_FOUND"),
        ("SetDefault", SetDefaultRequest(model_name="deeds"), "NOT_FOUND"),
        ("UnregisterModel", UnregisterModelRequest(model_name="no"), "NOT_FOUND"),
        ("UnregisterModel", UnregisterModelRequest(model_name="deeds", model_version="9"), "NOT_FOUND"),
    ],
)
def test_management_errors_have_their_codes(front: Front, method: str, request_: Any, code: str) -> None:
    found = failure(lambda: front.manage(method, request_))

    assert found[0] == code
    assert found[1].rpartition("\n")[2].startswith("org.pytorch.serve.")


def test_a_model_that_cannot_be_loaded_is_an_internal_error(front: Front) -> None:
    store = Path(front.app.config.model_store)
    (store / "broken.py").write_text("def handle(data, context):\n    raise RuntimeError('no mood')\n")
    register = RegisterModelRequest(url="broken.py", initial_workers=1, synchronous=True)
    code, details = failure(lambda: front.manage("RegisterModel", register))

    assert code == "INTERNAL"
    assert details.startswith("Failed to start workers for model broken version: 1.0")


def test_keys_are_asked_for_and_models_left_alone_where_that_is_switched_off(transport: str, tmp_path: Path) -> None:
    def authorise(metadata: Sequence[tuple[bytes, bytes]], api: Api) -> None:
        if (b"authorization", b"Bearer key of " + api.encode()) not in metadata:
            raise Unauthorised("Token Authorization failed.")

    def key(api: str) -> list[tuple[str, str]]:
        return [("authorization", f"Bearer key of {api}")]

    refused = ("PERMISSION_DENIED", "Token Authorization failed.")
    with fronting(tmp_path, transport, authorise=authorise, model_api=False) as front:
        with front.channel() as channel:
            ask, ping = predictions(channel), raw(channel, INFERENCE + "Ping")
            assert failure(lambda: ask(request_of(b"x"))) == refused
            assert failure(lambda: ask(request_of(b"x"), metadata=key("management"))) == refused
            assert failure(lambda: ping(b"")) == refused
            assert ask(request_of(b"x"), metadata=key("inference")).prediction == b"x"
            stub = stream_predictions2(channel)
            assert failure(lambda: list(stub(iter([request_of(b"x", "s")])))) == refused
        with front.channel(front.management) as channel:
            listing, registering = raw(channel, MANAGEMENT + "ListModels"), raw(channel, MANAGEMENT + "RegisterModel")
            assert failure(lambda: listing(b"")) == refused
            assert listing(b"", metadata=key("management"))
            assert failure(lambda: registering(b"")) == refused
            assert failure(lambda: registering(b"", metadata=key("management"))) == (
                "PERMISSION_DENIED",
                "Model API disabled\norg.pytorch.serve.archive.model.ModelException",
            )


def test_open_inference(front: Front) -> None:
    request = open_inference_pb2.ModelInferRequest(model_name="deeds", id="7")
    tensor = request.inputs.add(name="a", datatype="INT64", shape=[2])
    tensor.contents.int64_contents.extend([1, 2**40])
    with front.channel() as channel:
        answer = raw(channel, OPEN + "ModelInfer")(request.SerializeToString())
        response = open_inference_pb2.ModelInferResponse.FromString(answer)
        assert (response.id, response.model_name) == ("7", "deeds")
        assert list(response.outputs[0].contents.int64_contents) == [1, 2**40]
        ready = raw(channel, OPEN + "ModelReady")
        named = open_inference_pb2.ModelReadyRequest(name="deeds").SerializeToString()
        assert open_inference_pb2.ModelReadyResponse.FromString(ready(named)).ready
        assert failure(lambda: raw(channel, OPEN + "ServerMetadata")(b""))[0] == "UNIMPLEMENTED"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("tls")
    cert, key = str(folder / "cert.pem"), str(folder / "key.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
         "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", key, "-out", cert],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    return cert, key


def test_tls(transport: str, tmp_path: Path, certificate: tuple[str, str]) -> None:
    trusted = grpc.ssl_channel_credentials(Path(certificate[0]).read_bytes())
    with fronting(tmp_path, transport, certificate=certificate) as front:
        with front.channel(credentials=trusted) as channel:
            assert predictions(channel)(request_of(b"secret"), timeout=30).prediction == b"secret"
        with front.channel(credentials=grpc.ssl_channel_credentials()) as channel:
            assert failure(lambda: predictions(channel)(request_of(b"secret"), timeout=30))[0] == "UNAVAILABLE"


def test_what_was_taken_is_finished_before_the_server_stops(transport: str, tmp_path: Path) -> None:
    with fronting(tmp_path, transport) as front, front.channel() as channel:
        slow = predictions(channel).future(request_of(do(do="sleep", seconds=1)))
        eventually(lambda: front.app.repository.find("deeds").scheduler.running > 0, "it runs")
        front.stop()

        assert slow.result().prediction == b"slept"
        assert failure(lambda: predictions(channel)(request_of(b"x"), timeout=5))[0] == "UNAVAILABLE"


def test_an_address_in_use_is_said(transport: str) -> None:
    async def play() -> None:
        first = listener(transport, {})
        await first.start()
        second = listener(transport, {}, port=int(first.address.rpartition(":")[2]))
        with pytest.raises(OSError, match=r"127\.0\.0\.1"):
            await second.start()
        await first.drain(1.0)

    asyncio.run(play())


def test_a_service_that_raises_fails_its_call_alone(transport: str, caplog: pytest.LogCaptureFixture) -> None:
    def broken(call: Any) -> None:
        raise ZeroDivisionError("a bug")

    def fine(call: Any) -> None:
        call.on_message = call.send
        call.on_end = lambda: call.finish(trailers=[(b"bytes", b"few")])
        call.on_gone = lambda: None

    async def play() -> tuple[str, bytes, str]:
        served = listener(transport, {"/x/Broken": broken, "/x/Fine": fine})
        await served.start()
        async with grpc.aio.insecure_channel(served.address) as channel:
            failed = channel.unary_unary("/x/Broken")(b"")
            code = (await failed.code()).name
            answered = channel.unary_unary("/x/Fine")(b"same")
            body = await answered
            trailers = await answered.trailing_metadata()
        await served.drain(1.0)
        return code, body, str(dict(trailers).get("bytes"))

    assert asyncio.run(play()) == ("UNKNOWN", b"same", "few")
    assert "a bug" in caplog.text


def test_a_call_knows_what_its_client_said(transport: str) -> None:
    seen: list[Any] = []

    def look(call: Any) -> None:
        seen.append(call)
        call.on_message = lambda message: None
        call.on_end = lambda: (call.send(b""), call.finish())
        call.on_gone = lambda: None

    async def play() -> None:
        served = listener(transport, {"/x/Look": look})
        await served.start()
        async with grpc.aio.insecure_channel(served.address) as channel:
            stub = channel.unary_unary("/x/Look")
            await stub(b"", metadata=[("name", "value"), ("raw-bin", b"\xff\x00")])
            await stub(b"", timeout=30)
        await served.drain(1.0)

    asyncio.run(play())
    free, limited = seen
    assert free.method == "/x/Look"
    assert {(b"name", b"value"), (b"raw-bin", b"\xff\x00")} <= set(free.metadata)
    assert free.timeout == math.inf
    assert 0 < limited.timeout < 60  # clients round it up
    assert free.client == limited.client
    assert "127.0.0.1" in free.peer

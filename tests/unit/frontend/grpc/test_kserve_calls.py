"""ModelInfer and ModelStreamInfer: tensors, parameters, order, finals and errors, without a transport."""

import os
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core.request import InSequence
from shoal.errors import HandlerFailed, WorkerDied
from shoal.frontend.fragments import Fragments
from shoal.frontend.grpc import kserve_calls
from shoal.frontend.grpc.calls import MOST_BEHIND
from shoal.frontend.grpc.kserve import PREFIX
from shoal.frontend.grpc.proto import grpc_service_pb2 as pb
from shoal.frontend.rpc import Code
from shoal.payload import Result
from shoal.tensor import pack_strings
from tests.unit.frontend.grpc.calling import FakeCall
from tests.unit.frontend.kserve.bed import Bed, spec, tensors

FOUR = struct.pack("<4f", 1, 2, 3, 4)
OUT = tensors(("OUT", "FP32", [1, 4], FOUR))
END = Result(b"")
Request = pb.ModelInferRequest


def ready(*inputs: Any, **fields: Any) -> Bed:
    bed = Bed()
    bed.add("m", *inputs, **fields)
    return bed


def request(model: str = "m", raw: Any = (FOUR,), shape: Any = (1, 4), datatype: str = "FP32", **fields: Any) -> Any:
    return Request(
        model_name=model,
        inputs=[Request.InferInputTensor(name="IN", datatype=datatype, shape=shape)],
        raw_input_contents=raw,
        **fields,
    )


def infer(bed: Bed, message: Any) -> FakeCall:
    return FakeCall(PREFIX + "ModelInfer").begin(bed.services, message.SerializeToString())


def answer(call: FakeCall) -> Any:
    assert call.code == Code.OK, call.status
    return pb.ModelInferResponse.FromString(call.sent[0])


@pytest.mark.parametrize("method", ["ModelInfer", "ModelStreamInfer"])
def test_a_request_in_pieces_is_asked_as_one_in_one(method: str) -> None:
    bed = ready()
    text = request(id="7").SerializeToString()
    call = FakeCall(PREFIX + method).begin(bed.services, ends=False)
    assert call.on_pieces is not None
    call.on_pieces(Fragments([text[:9], memoryview(text)[9:]]))

    (running,) = bed.running()
    assert (running.id, running.payload.parts[0].data) == (b"7", FOUR)


def test_a_second_message_in_pieces_ends_a_call_that_takes_one() -> None:
    bed = ready()
    text = request().SerializeToString()
    call = FakeCall(PREFIX + "ModelInfer").begin(bed.services, text, ends=False)
    assert call.on_pieces is not None
    call.on_pieces(Fragments([text]))

    assert call.code == Code.INTERNAL and "takes one message, and another came" in call.words


def test_raw_contents_travel_both_ways() -> None:
    bed = ready()
    call = infer(bed, request(id="7"))
    (running,) = bed.running()
    assert (running.id, running.payload.parts[0].content_type, running.payload.parts[0].data) == (
        b"7",
        "tensor/FP32;1,4",
        FOUR,
    )
    assert call.code is None
    bed.reply(
        tensors(("OUT", "FP32", [1, 4], FOUR[::-1]), parameters={"a": 1, "b": True, "c": 1.5, "d": "x", "e": 2**63})
    )

    response = answer(call)
    assert (response.model_name, response.model_version, response.id) == ("m", "1", "7")
    assert (response.outputs[0].name, response.outputs[0].datatype, list(response.outputs[0].shape)) == (
        "OUT",
        "FP32",
        [1, 4],
    )
    assert list(response.raw_output_contents) == [FOUR[::-1]]
    kinds = {name: value.WhichOneof("parameter_choice") for name, value in response.parameters.items()}
    assert kinds == {
        "a": "int64_param",
        "b": "bool_param",
        "c": "double_param",
        "d": "string_param",
        "e": "uint64_param",
    }


@pytest.mark.parametrize(
    ("datatype", "field", "values", "data"),
    [
        ("BOOL", "bool_contents", [True, False], b"\1\0"),
        ("INT8", "int_contents", [-1, 300], b"\xff\x2c"),
        ("UINT16", "uint_contents", [1, 70000], struct.pack("<2H", 1, 70000 % 65536)),
        ("INT32", "int_contents", [-1, 2], struct.pack("<2i", -1, 2)),
        ("INT64", "int64_contents", [-1, 2], struct.pack("<2q", -1, 2)),
        ("UINT64", "uint64_contents", [1, 2**64 - 1], struct.pack("<2Q", 1, 2**64 - 1)),
        ("FP32", "fp32_contents", [1.5, 2], struct.pack("<2f", 1.5, 2)),
        ("FP64", "fp64_contents", [1.5, 2], struct.pack("<2d", 1.5, 2)),
        ("BYTES", "bytes_contents", [b"a", b"\xff"], pack_strings([b"a", b"\xff"])),
    ],
)
def test_typed_contents_become_bytes(datatype: str, field: str, values: list[Any], data: bytes) -> None:
    bed = ready(spec("IN", datatype, [2]))
    message = request(raw=(), shape=(1, 2), datatype=datatype)
    getattr(message.inputs[0].contents, field).extend(values)
    infer(bed, message)
    assert bed.running()[0].payload.parts[0].data == data


def test_parameters_are_read_by_their_kinds() -> None:
    bed = ready()
    message = request()
    message.parameters["sequence_id"].string_param = "s"
    message.parameters["sequence_start"].bool_param = True
    message.parameters["priority"].uint64_param = 3
    message.parameters["timeout"].int64_param = 500_000
    message.parameters["mine"].double_param = 0.5
    infer(bed, message)
    (running,) = bed.running()
    assert (running.sequence, running.priority, running.timeout) == (InSequence("s", True, False), 3, 0.5)
    assert b"mine" in running.payload.headers[0][1]


def changed(**kinds: Any) -> Any:
    message = request()
    for name, (kind, value) in kinds.items():
        setattr(message.parameters[name], kind, value)
    return message


def output(name: str = "OUT", **parameters: tuple[str, Any]) -> Any:
    message = request()
    wish = message.outputs.add(name=name)
    for key, (kind, value) in parameters.items():
        setattr(wish.parameters[key], kind, value)
    return message


def typed(*fields: str, raw: Any = (), datatype: str = "FP32") -> Any:
    message = request(raw=raw, datatype=datatype)
    for field in fields:
        getattr(message.inputs[0].contents, field).extend([1, 2, 3, 4])
    return message


BAD: list[tuple[Any, Code, str]] = [
    (request("x"), Code.NOT_FOUND, "Request for unknown model: 'x' is not found"),
    (request(model_version="7"), Code.NOT_FOUND, "version 7 is not found"),
    (request(model_version="x"), Code.INVALID_ARGUMENT, "failed to get model version"),
    (request(raw=()), Code.INVALID_ARGUMENT, "unable to find data for input tensor 'IN' for model 'm' in request."),
    (request(raw=(FOUR[:12],)), Code.INVALID_ARGUMENT, "[request id: <id_unknown>] input byte size mismatch"),
    (request(shape=(-1, 4)), Code.INVALID_ARGUMENT, "All input dimensions should be specified"),
    (request(datatype="XX"), Code.INVALID_ARGUMENT, "data-type is '<invalid>'"),
    (
        typed("fp32_contents", raw=(FOUR,)),
        Code.INVALID_ARGUMENT,
        "contents field must not be specified when using raw_input_contents",
    ),
    (
        typed("int_contents"),
        Code.INVALID_ARGUMENT,
        "explicit tensor data for input tensor 'IN' for model 'm' of type 'INT32', expected datatype 'FP32' in fp32_",
    ),
    (typed("fp32_contents", "int_contents"), Code.INVALID_ARGUMENT, "unexpected explicit tensor data"),
    (typed("fp32_contents", datatype="FP16"), Code.INVALID_ARGUMENT, "raw_input_contents only"),
    (changed(priority=("int64_param", -1)), Code.INVALID_ARGUMENT, "invalid value for 'priority'"),
    (changed(priority=("string_param", "a")), Code.INVALID_ARGUMENT, "invalid value type for 'priority' parameter"),
    (changed(timeout=("uint64_param", 1)), Code.INVALID_ARGUMENT, "invalid value type for 'timeout' parameter"),
    (
        changed(sequence_id=("bool_param", True)),
        Code.INVALID_ARGUMENT,
        "invalid value type for 'sequence_id' parameter",
    ),
    (
        changed(sequence_start=("int64_param", 1)),
        Code.INVALID_ARGUMENT,
        "invalid value type for 'sequence_start' parameter",
    ),
    (changed(sequence_id=("string_param", "x" * 129)), Code.UNIMPLEMENTED, "128 characters"),
    (changed(triton_x=("int64_param", 1)), Code.INVALID_ARGUMENT, "reserved for Triton usage"),
    (output("NO"), Code.INVALID_ARGUMENT, "unexpected inference output 'NO' for model 'm'"),
    (output(classification=("int64_param", 0)), Code.INVALID_ARGUMENT, "invalid value for 'classification'"),
    (output(classification=("string_param", "1")), Code.INVALID_ARGUMENT, "invalid value type for 'classification'"),
    (
        output(shared_memory_region=("string_param", "r")),
        Code.INVALID_ARGUMENT,
        "'shared_memory_byte_size' must be specified",
    ),
]


@pytest.mark.parametrize(("message", "code", "words"), BAD)
def test_what_is_wrong_is_refused(message: Any, code: Code, words: str) -> None:
    call = infer(ready(), message)
    assert call.code == code and words in call.words


def test_a_parameter_of_no_kind_and_an_output_twice_are_refused() -> None:
    message = request()
    message.parameters["x"].SetInParent()
    assert infer(ready(), message).code == Code.INVALID_ARGUMENT
    message = output()
    message.outputs.add(name="OUT")
    assert "requested twice" in infer(ready(), message).words


def test_a_message_that_is_none_is_refused() -> None:
    assert FakeCall(PREFIX + "ModelInfer").begin(ready().services, b"\xff").code == Code.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (HandlerFailed("no", status=400), Code.INVALID_ARGUMENT),
        (HandlerFailed("no", status=404), Code.NOT_FOUND),
        (HandlerFailed("no", status=409), Code.ALREADY_EXISTS),
        (HandlerFailed("no", status=499), Code.CANCELLED),
        (HandlerFailed("no", status=501), Code.UNIMPLEMENTED),
        (HandlerFailed("no", status=503), Code.UNAVAILABLE),
        (HandlerFailed("no"), Code.INTERNAL),
        (WorkerDied("no"), Code.INTERNAL),
        (tensors(error="no", code="UNSUPPORTED"), Code.UNIMPLEMENTED),
    ],
)
def test_a_models_error_keeps_its_code(error: Any, code: Code) -> None:
    bed = ready()
    call = infer(bed, request())
    bed.reply(error)
    assert call.status == (code, "no")


def test_a_model_of_many_answers_is_not_for_single_calls() -> None:
    call = infer(ready(is_decoupled=True), request())
    assert call.status == (
        Code.UNIMPLEMENTED,
        "ModelInfer RPC doesn't support models with decoupled transaction policy",
    )


def test_a_client_that_leaves_takes_its_request_with_it() -> None:
    bed = ready()
    call = infer(bed, request())
    call.on_gone()
    assert not bed.running() and bed.benches["m", "1"].stats.withdrawn == 1


def test_a_calls_deadline_is_the_requests() -> None:
    bed = ready()
    FakeCall(PREFIX + "ModelInfer", timeout=2.0).begin(bed.services, request().SerializeToString())
    assert bed.running()[0].deadline == 7.0


def test_outputs_in_shared_memory_still_have_an_entry(tmp_path: Path) -> None:
    (tmp_path / "obj").write_bytes(FOUR + bytes(16))
    bed = Bed(tmp_path)
    bed.add("m", spec("IN"), spec("IN2", "UINT8", [1]))
    bed.regions.register("r", "/obj", 0, 32)
    message = Request(model_name="m", raw_input_contents=[b"x"])
    first = message.inputs.add(name="IN", datatype="FP32", shape=[1, 4])
    first.parameters["shared_memory_region"].string_param = "r"
    first.parameters["shared_memory_byte_size"].int64_param = 16
    message.inputs.add(name="IN2", datatype="UINT8", shape=[1, 1])
    wish = message.outputs.add(name="OUT")
    wish.parameters["shared_memory_region"].string_param = "r"
    wish.parameters["shared_memory_byte_size"].int64_param = 16
    wish.parameters["shared_memory_offset"].int64_param = 16
    message.outputs.add(name="OUT2")
    call = infer(bed, message)
    assert bytes(bed.lent[0].view) == FOUR
    held = len(os.listdir("/proc/self/fd"))
    bed.regions.unregister("r")
    bed.reply(tensors(("OUT", "FP32", [1, 4], FOUR), ("OUT2", "UINT8", [1, 1], b"y")))
    assert len(os.listdir("/proc/self/fd")) == held - 1, "the region was kept until the output was in it, and no longer"

    assert list(answer(call).raw_output_contents) == [b"", b"y"]
    assert (tmp_path / "obj").read_bytes()[16:] == FOUR and bed.lent[0].released


def test_classes_are_bytes_too() -> None:
    bed = ready()
    call = infer(bed, output(classification=("int64_param", 1)))
    bed.reply(OUT)
    response = answer(call)
    assert response.outputs[0].datatype == "BYTES" and list(response.raw_output_contents) == [
        pack_strings([b"4.000000:3"])
    ]


def test_each_input_has_its_own_raw_contents() -> None:
    bed = ready(spec("IN"), spec("IN2", "UINT8", [2]))
    message = request(raw=(FOUR, b"xy"))
    message.inputs.add(name="IN2", datatype="UINT8", shape=[1, 2])
    infer(bed, message)
    assert [part.data for part in bed.running()[0].payload.parts] == [FOUR, b"xy"]


def test_surplus_raw_contents_are_ignored() -> None:
    bed = ready()
    infer(bed, request(raw=(FOUR, b"x")))
    assert len(bed.running()) == 1


# Streams


class Streaming:
    """A stream and what it sent."""

    def __init__(self, bed: Bed, metadata: Any = ()) -> None:
        self.bed = bed
        self.call = FakeCall(PREFIX + "ModelStreamInfer", metadata=metadata)
        self.call.begin(bed.services, ends=False)

    def send(self, *requests: Any) -> None:
        for message in requests:
            self.call.on_message(message.SerializeToString())

    @property
    def sent(self) -> list[Any]:
        return [pb.ModelStreamInferResponse.FromString(message) for message in self.call.sent]

    @property
    def ids(self) -> list[str]:
        return [response.infer_response.id for response in self.sent]


def final(response: Any) -> bool | None:
    parameters = response.infer_response.parameters
    return bool(parameters["triton_final_response"].bool_param) if "triton_final_response" in parameters else None


def test_answers_come_in_the_order_of_their_requests_across_models() -> None:
    bed = ready()
    bed.add("slow")
    stream = Streaming(bed)
    stream.send(request("slow", id="a"), request(id="b"), request("x", id="c"), request(id="d"))
    bed.reply(OUT)
    bed.reply(OUT)
    assert stream.ids == []
    bed.reply(OUT, name="slow")
    assert stream.ids == ["a", "b", "c", "d"]
    assert [final(response) for response in stream.sent] == [True, True, None, True]
    assert stream.sent[2].error_message == "Request for unknown model: 'x' is not found"
    assert not stream.sent[2].infer_response.model_name


def test_a_stream_stays_open_until_its_client_ends_it_and_everything_is_answered() -> None:
    bed = ready()
    stream = Streaming(bed)
    stream.send(request(id="a"))
    bed.reply(HandlerFailed("no", status=400))
    assert stream.call.code is None
    (failed,) = stream.sent
    assert (failed.error_message, failed.infer_response.id, failed.infer_response.model_name, final(failed)) == (
        "no",
        "a",
        "m",
        True,
    )
    stream.send(request(id="b"))
    stream.call.on_end()
    assert stream.call.code is None
    bed.reply(OUT)
    assert stream.call.code == Code.OK and stream.ids == ["a", "b"]


def test_an_empty_stream_ends_well() -> None:
    stream = Streaming(ready())
    stream.call.on_end()
    assert stream.call.code == Code.OK


def number(value: int) -> Result:
    return tensors(("OUT", "INT32", [1, 1], struct.pack("<i", value)))


def counted(id: str = "d", wants_final: bool = False) -> Any:
    message = request(raw=(struct.pack("<i", 2),), shape=(1, 1), datatype="INT32", id=id)
    if wants_final:
        message.parameters["triton_enable_empty_final_response"].bool_param = True
    return message


def decoupled() -> Bed:
    return ready(spec("IN", "INT32", [1]), is_decoupled=True)


@pytest.mark.parametrize("wants_final", [False, True])
def test_many_answers_come_as_they_are_made(wants_final: bool) -> None:
    bed = decoupled()
    stream = Streaming(bed)
    stream.send(counted(wants_final=wants_final))
    bed.reply(number(0), ends=False)
    assert stream.ids == ["d"]
    bed.reply(number(1), END)
    assert [final(response) for response in stream.sent] == [False, False, *([True] if wants_final else [])]
    if wants_final:
        last = stream.sent[-1].infer_response
        assert (last.model_name, last.id, last.model_version, list(last.outputs)) == ("m", "d", "", [])


def test_a_last_answer_with_tensors_is_the_final_one() -> None:
    bed = decoupled()
    stream = Streaming(bed)
    stream.send(counted(wants_final=True))
    bed.reply(number(0), number(1))
    assert [final(response) for response in stream.sent] == [False, True]


def test_no_answer_at_all_is_silence_or_a_final() -> None:
    bed = decoupled()
    stream = Streaming(bed)
    stream.send(counted("quiet"), counted("told", wants_final=True))
    bed.reply(END)
    bed.reply(END)
    stream.call.on_end()
    assert stream.ids == ["told"] and final(stream.sent[0]) is True and stream.call.code == Code.OK


def test_an_error_among_many_answers_is_one_of_them() -> None:
    bed = decoupled()
    stream = Streaming(bed)
    stream.send(counted(wants_final=True))
    bed.reply(number(0), tensors(error="late"), END)
    assert [(response.error_message, final(response)) for response in stream.sent] == [
        ("", False),
        ("late", False),
        ("", True),
    ]


def test_many_answers_wait_for_nobody() -> None:
    bed = ready()
    bed.add("many", spec("IN", "INT32", [1]), is_decoupled=True)
    stream = Streaming(bed)
    message = counted("m")
    message.model_name = "many"
    stream.send(request(id="a"), message)
    bed.reply(number(0), END, name="many")
    assert stream.ids == ["m"]
    bed.reply(OUT)
    assert stream.ids == ["m", "a"]


def test_a_strict_stream_ends_with_the_first_error_of_a_model() -> None:
    bed = ready()
    stream = Streaming(bed, metadata=[(b"triton_grpc_error", b"True")])
    stream.send(request("x", id="a"), request(id="b"), request(id="c"))
    assert stream.call.code is None, "what never ran is told in the stream"
    bed.reply(HandlerFailed("no", status=404))
    assert stream.call.status == (Code.NOT_FOUND, "no")
    assert bed.benches["m", "1"].stats.withdrawn == 1, "nobody waits for the other"


def test_a_cancelled_stream_takes_all_its_requests_with_it() -> None:
    bed = ready()
    stream = Streaming(bed)
    stream.send(request(id="a"), request(id="b"))
    bed.running()
    stream.call.on_gone()
    assert bed.benches["m", "1"].stats.withdrawn == 2


def test_a_client_that_does_not_read_is_cut_off() -> None:
    bed = decoupled()
    stream = Streaming(bed)
    stream.send(counted())
    stream.call.is_read = False
    piece = tensors(("OUT", "UINT8", [MOST_BEHIND // 2 + 1], bytes(MOST_BEHIND // 2 + 1)))
    bed.reply(piece, ends=False)
    assert stream.call.code is None
    bed.reply(piece, ends=False)
    assert stream.call.code == Code.RESOURCE_EXHAUSTED and bed.benches["m", "1"].stats.withdrawn == 1


def test_answers_that_wait_for_an_earlier_one_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kserve_calls, "MOST_HELD", 50)
    bed = ready()
    bed.add("slow")
    stream = Streaming(bed)
    stream.send(request("slow"), request(), request())
    bed.reply(OUT)
    assert stream.call.code is None
    stream.send(request())
    assert stream.call.code == Code.RESOURCE_EXHAUSTED
    assert bed.benches["slow", "1"].stats.withdrawn == 1


def test_open_requests_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kserve_calls, "MOST_OPEN", 2)
    stream = Streaming(ready())
    stream.send(request(), request())
    assert stream.call.code is None
    stream.send(request())
    assert stream.call.code == Code.RESOURCE_EXHAUSTED


@given(st.lists(st.sampled_from(["ok", "fail", "unknown"]), max_size=12), st.randoms())
def test_every_request_of_a_stream_is_answered_once_and_in_order(kinds: list[str], random: Any) -> None:
    bed = Bed()
    names = ["a", "b", "c"]
    for name in names:
        bed.add(name)
    stream = Streaming(bed)
    asked: list[tuple[str, str]] = []
    for number_, kind in enumerate(kinds):
        name = "x" if kind == "unknown" else random.choice(names)
        asked.append((name, kind))
        stream.send(request(name, id=str(number_)))
    stream.call.on_end()
    left = {name: [kind for owner, kind in asked if owner == name] for name in names}
    while any(left.values()):
        name = random.choice([name for name in names if left[name]])
        bed.reply(OUT if left[name].pop(0) == "ok" else HandlerFailed("no"), name=name)
    assert stream.ids == [str(number_) for number_ in range(len(kinds))]
    assert [bool(response.error_message) for response in stream.sent] == [kind != "ok" for kind in kinds]
    assert stream.call.code == Code.OK

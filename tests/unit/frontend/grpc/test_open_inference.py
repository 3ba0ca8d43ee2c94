import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.config.model import ModelConfig
from shoal.errors import HandlerFailed, InvalidInput
from shoal.frontend.grpc.open_inference import CONTENTS, PREFIX, OpenInference, from_json, to_json
from shoal.frontend.grpc.proto import open_inference_pb2 as messages
from shoal.frontend.rpc import Code
from tests.unit.frontend.grpc.calling import Bed, FakeCall, anyone, describe

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "BOOL": st.booleans(),
    "INT8": st.integers(-(2**7), 2**7 - 1),
    "INT16": st.integers(-(2**15), 2**15 - 1),
    "INT32": st.integers(-(2**31), 2**31 - 1),
    "INT64": st.integers(-(2**63), 2**63 - 1),
    "UINT8": st.integers(0, 2**8 - 1),
    "UINT16": st.integers(0, 2**16 - 1),
    "UINT32": st.integers(0, 2**32 - 1),
    "UINT64": st.integers(0, 2**64 - 1),
    "FP32": st.floats(width=32, allow_nan=False),
    "FP64": st.floats(allow_nan=False),
}


def call(bed: Bed, method: str, message: Any = b"", *, is_ready: bool = True) -> FakeCall:
    service = OpenInference(bed.desk, describe_error=describe, authorise=anyone, is_ready=lambda model: is_ready)
    raw = message if isinstance(message, bytes) else message.SerializeToString()
    return FakeCall(PREFIX + method).begin(service.services(), raw)


def infer(**fields: Any) -> Any:
    request = messages.ModelInferRequest(**{"model_name": "m", **fields})
    tensor = request.inputs.add(name="a", datatype="FP32", shape=[2, 2])
    tensor.contents.fp32_contents.extend([1, 2, 3, 4.5])
    return request


def test_live_and_ready_are_said_without_condition() -> None:
    assert call(Bed(), "ServerLive").sent == [messages.ServerLiveResponse(live=True).SerializeToString()]
    assert call(Bed(), "ServerReady").sent == [messages.ServerReadyResponse(ready=True).SerializeToString()]


@pytest.mark.parametrize("is_ready", [True, False])
def test_a_model_says_whether_it_is_ready(is_ready: bool) -> None:
    made = call(Bed(), "ModelReady", messages.ModelReadyRequest(name="m"), is_ready=is_ready)

    assert messages.ModelReadyResponse.FromString(made.sent[0]).ready is is_ready
    assert made.code is Code.OK


def test_metadata_is_the_name_and_the_versions() -> None:
    bed = Bed()
    bed.repository.add(ModelConfig(name="m", path="m.py", version="2.0"))
    made = call(bed, "ModelMetadata", messages.ModelMetadataRequest(name="m"))
    metadata = messages.ModelMetadataResponse.FromString(made.sent[0])

    assert (metadata.name, list(metadata.versions)) == ("m", ["1.0", "2.0"])
    made = call(bed, "ModelMetadata", messages.ModelMetadataRequest(name="m", version="2.0"))
    assert list(messages.ModelMetadataResponse.FromString(made.sent[0]).versions) == ["2.0"]


@pytest.mark.parametrize("method", ["ModelReady", "ModelMetadata"])
def test_a_model_that_is_not_there_is_not_found(method: str) -> None:
    made = call(Bed(), method, messages.ModelReadyRequest(name="no"))

    assert made.status == (
        Code.NOT_FOUND,
        "Model not found: no\norg.pytorch.serve.archive.model.ModelNotFoundException",
    )
    assert call(Bed(), method, messages.ModelReadyRequest(name="m", version="9")).code is Code.NOT_FOUND


@pytest.mark.parametrize("method", ["ModelReady", "ModelMetadata", "ModelInfer"])
def test_a_name_is_needed(method: str) -> None:
    made = call(Bed(), method)

    assert made.code is Code.INTERNAL
    assert made.words.startswith("Parameter ")


def test_the_metadata_of_the_server_is_not_among_the_methods() -> None:
    service = OpenInference(Bed().desk, describe_error=describe, authorise=anyone, is_ready=lambda _: True)

    assert PREFIX == "/org.pytorch.serve.grpc.openinference.GRPCInferenceService/"
    assert {method.removeprefix(PREFIX) for method in service.services()} == {
        "ServerLive", "ServerReady", "ModelReady", "ModelMetadata", "ModelInfer",
    }  # fmt: skip


def test_tensors_become_a_json_body() -> None:
    bed = Bed()
    request = infer(id="7", model_version="1.0")
    tensor = request.inputs.add(name="b", datatype="BYTES", shape=[2])
    tensor.contents.bytes_contents.extend([b"ab", b"\xff"])
    tensor.parameters["p"].string_param = "v"
    request.parameters["k"].int64_param = 3
    request.parameters["t"].bool_param = True
    request.outputs.add(name="z").parameters["n"].int64_param = 1
    call(bed, "ModelInfer", request)
    [part] = bed.running()[0].payload.parts

    assert (part.name, part.content_type) == ("body", "application/json")
    assert isinstance(part.data, bytes)
    assert json.loads(part.data) == {
        "id": "7",
        "model_name": "m",
        "model_version": "1.0",
        "parameters": {"k": 3, "t": True},
        "inputs": [
            {"name": "a", "datatype": "FP32", "shape": [2, 2], "data": [1.0, 2.0, 3.0, 4.5]},
            {"name": "b", "datatype": "BYTES", "shape": [2], "data": ["YWI=", "/w=="], "parameters": {"p": "v"}},
        ],
        "outputs": [{"name": "z", "parameters": {"n": 1}}],
    }


def test_what_was_not_said_is_not_in_the_body() -> None:
    assert list(to_json(infer())) == ["model_name", "inputs"]


def test_the_handlers_json_becomes_tensors() -> None:
    bed = Bed()
    made = call(bed, "ModelInfer", infer())
    answer = {
        "id": "7",
        "model_name": "m",
        "model_version": "1.0",
        "outputs": [
            {"name": "o", "datatype": "FP32", "shape": [2], "data": [1.5, 2]},
            {"name": "b", "datatype": "BYTES", "shape": [2], "data": ["aGk=", "plain"]},
            {"name": "i", "datatype": "INT8", "shape": [1], "data": [-3]},
        ],
    }
    bed.answer(json.dumps(answer).encode())
    response = messages.ModelInferResponse.FromString(made.sent[0])

    assert (response.id, response.model_name, response.model_version) == ("7", "m", "1.0")
    assert [(output.name, output.datatype, list(output.shape)) for output in response.outputs] == [
        ("o", "FP32", [2]),
        ("b", "BYTES", [2]),
        ("i", "INT8", [1]),
    ]
    assert list(response.outputs[0].contents.fp32_contents) == [1.5, 2]
    assert list(response.outputs[1].contents.bytes_contents) == [b'"aGk="', b'"plain"']
    assert list(response.outputs[2].contents.int_contents) == [-3]
    assert made.code is Code.OK


@pytest.mark.parametrize(
    "body",
    [
        b"plain",
        b"[]",
        b"{}",
        b'{"outputs": 3}',
        b'{"outputs": [{"name": "o"}]}',
        b'{"outputs": [{"name": "o", "datatype": "FP99", "shape": [1], "data": [1]}]}',
        b'{"outputs": [{"name": "o", "datatype": "INT8", "shape": [1], "data": ["x"]}]}',
        b'{"outputs": [{"name": "o", "datatype": "INT32", "shape": [1], "data": [4294967296]}]}',
        b'{"outputs": [{"name": 3, "datatype": "INT32", "shape": [1], "data": [1]}]}',
        b"[" * 100_000,
    ],
)
def test_an_answer_that_is_no_v2_response_is_the_handlers_failure(body: bytes) -> None:
    bed = Bed()
    made = call(bed, "ModelInfer", infer())
    bed.answer(body)

    assert made.code is Code.INTERNAL
    assert made.words.startswith("the handler's answer is no v2 inference response in JSON: ")
    assert made.sent == []


def test_raw_contents_and_unknown_datatypes_are_refused_with_what_would_be_right() -> None:
    made = call(Bed(), "ModelInfer", infer(raw_input_contents=[b"abcd"]))

    assert made.code is Code.INVALID_ARGUMENT
    assert "contents of each input" in made.words
    request = messages.ModelInferRequest(model_name="m")
    request.inputs.add(name="a", datatype="FP16", shape=[1])
    with pytest.raises(InvalidInput, match="'FP16'; known here are BOOL, INT8"):
        to_json(request)


def test_a_model_that_is_not_there_is_an_internal_error_of_a_prediction() -> None:
    assert call(Bed(), "ModelInfer", infer(model_name="no")).code is Code.INTERNAL


@pytest.mark.parametrize(
    ("datatypes", "field"),
    [
        ("BOOL", "bool_contents"),
        ("INT8 INT16 INT32", "int_contents"),
        ("INT64", "int64_contents"),
        ("UINT8 UINT16 UINT32", "uint_contents"),
        ("UINT64", "uint64_contents"),
        ("FP32", "fp32_contents"),
        ("FP64", "fp64_contents"),
    ],
)
def test_values_are_taken_from_the_field_of_their_datatype(datatypes: str, field: str) -> None:
    for datatype in datatypes.split():
        request = messages.ModelInferRequest(model_name="m")
        tensor = request.inputs.add(name="a", datatype=datatype, shape=[1])
        getattr(tensor.contents, field).append(1)

        assert to_json(request)["inputs"][0]["data"] == [1]


@given(st.data(), st.sampled_from(sorted(VALUES)))
def test_what_a_handler_gives_back_unchanged_comes_back_unchanged(data: st.DataObject, datatype: str) -> None:
    values = data.draw(st.lists(VALUES[datatype], max_size=8))
    request = messages.ModelInferRequest(model_name="m", id="1")
    tensor = request.inputs.add(name="a", datatype=datatype, shape=[len(values)])
    getattr(tensor.contents, CONTENTS[datatype]).extend(values)
    body = to_json(request)
    body["outputs"] = body.pop("inputs")
    [output] = from_json(json.dumps(body).encode()).outputs

    assert output.contents.SerializeToString() == tensor.contents.SerializeToString()
    assert (output.name, output.datatype, list(output.shape)) == ("a", datatype, [len(values)])


@given(st.binary(max_size=64))
def test_whatever_a_handler_answers_it_is_a_response_or_its_failure(body: bytes) -> None:
    try:
        from_json(body)
    except HandlerFailed:
        return
    assert "outputs" in json.loads(body)


@given(
    st.binary(max_size=64),
    st.sampled_from(["ServerLive", "ServerReady", "ModelReady", "ModelMetadata", "ModelInfer"]),
)
def test_whatever_bytes_come_the_call_ends(message: bytes, method: str) -> None:
    assert call(Bed(), method, message).status is not None

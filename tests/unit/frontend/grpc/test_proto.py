"""The messages on the wire: numbers and types of fields, and that they live beside other definitions of the same."""

from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pool import Default

from shoal.frontend.grpc.proto import generate, inference_pb2, management_pb2, open_inference_pb2, status_pb2

FIELDS: dict[Any, dict[str, int]] = {
    inference_pb2.PredictionsRequest: {"model_name": 1, "model_version": 2, "input": 3, "sequence_id": 4},
    inference_pb2.PredictionResponse: {"prediction": 1, "sequence_id": 2, "status": 3},
    inference_pb2.TorchServeHealthResponse: {"health": 1},
    status_pb2.Status: {"code": 1, "message": 2, "details": 3},
    status_pb2.ErrorInfo: {"reason": 1, "domain": 2, "metadata": 3},
    management_pb2.ManagementResponse: {"msg": 1},
    management_pb2.DescribeModelRequest: {"model_name": 1, "model_version": 2, "customized": 3},
    management_pb2.ListModelsRequest: {"limit": 1, "next_page_token": 2},
    management_pb2.RegisterModelRequest: {
        "batch_size": 1, "handler": 2, "initial_workers": 3, "max_batch_delay": 4, "model_name": 5,
        "response_timeout": 6, "runtime": 7, "synchronous": 8, "url": 9, "s3_sse_kms": 10, "startup_timeout": 11,
    },
    management_pb2.ScaleWorkerRequest: {
        "model_name": 1, "model_version": 2, "max_worker": 3, "min_worker": 4, "number_gpu": 5, "synchronous": 6,
        "timeout": 7,
    },
    management_pb2.SetDefaultRequest: {"model_name": 1, "model_version": 2},
    management_pb2.UnregisterModelRequest: {"model_name": 1, "model_version": 2},
    open_inference_pb2.ServerLiveResponse: {"live": 1},
    open_inference_pb2.ServerReadyResponse: {"ready": 1},
    open_inference_pb2.ModelReadyRequest: {"name": 1, "version": 2},
    open_inference_pb2.ModelReadyResponse: {"ready": 1},
    open_inference_pb2.ServerMetadataResponse: {"name": 1, "version": 2, "extensions": 3},
    open_inference_pb2.ModelMetadataRequest: {"name": 1, "version": 2},
    open_inference_pb2.ModelMetadataResponse: {"name": 1, "versions": 2, "platform": 3, "inputs": 4, "outputs": 5},
    open_inference_pb2.ModelMetadataResponse.TensorMetadata: {"name": 1, "datatype": 2, "shape": 3},
    open_inference_pb2.ModelInferRequest: {
        "model_name": 1, "model_version": 2, "id": 3, "parameters": 4, "inputs": 5, "outputs": 6,
        "raw_input_contents": 7,
    },
    open_inference_pb2.ModelInferRequest.InferInputTensor: {
        "name": 1, "datatype": 2, "shape": 3, "parameters": 4, "contents": 5,
    },
    open_inference_pb2.ModelInferRequest.InferRequestedOutputTensor: {"name": 1, "parameters": 2},
    open_inference_pb2.ModelInferResponse: {
        "model_name": 1, "model_version": 2, "id": 3, "parameters": 4, "outputs": 5, "raw_output_contents": 6,
    },
    open_inference_pb2.ModelInferResponse.InferOutputTensor: {
        "name": 1, "datatype": 2, "shape": 3, "parameters": 4, "contents": 5,
    },
    open_inference_pb2.InferParameter: {"bool_param": 1, "int64_param": 2, "string_param": 3},
    open_inference_pb2.InferTensorContents: {
        "bool_contents": 1, "int_contents": 2, "int64_contents": 3, "uint_contents": 4, "uint64_contents": 5,
        "fp32_contents": 6, "fp64_contents": 7, "bytes_contents": 8,
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", FIELDS, ids=lambda kind: kind.DESCRIPTOR.full_name)
def test_fields_have_the_numbers_that_clients_send(kind: Any) -> None:
    assert {field.name: field.number for field in kind.DESCRIPTOR.fields} == FIELDS[kind]


@pytest.mark.parametrize(
    ("message", "wire"),
    [
        (
            inference_pb2.PredictionsRequest(model_name="m", input={"k": b"v"}, sequence_id="s"),
            b"\x0a\x01m\x1a\x06\x0a\x01k\x12\x01v\x22\x01s",
        ),
        (
            inference_pb2.PredictionResponse(prediction=b"p", sequence_id="", status=status_pb2.Status(code=13)),
            b"\x0a\x01p\x12\x00\x1a\x02\x08\x0d",
        ),
        (
            management_pb2.RegisterModelRequest(batch_size=-1, synchronous=True, url="u", startup_timeout=2),
            b"\x08" + b"\xff" * 9 + b"\x01\x40\x01\x4a\x01u\x58\x02",
        ),
        (
            open_inference_pb2.InferTensorContents(int_contents=[-1], uint_contents=[1], fp32_contents=[1.0]),
            b"\x12\x0a" + b"\xff" * 9 + b"\x01\x22\x01\x01\x32\x04\x00\x00\x80\x3f",
        ),
    ],
    ids=["request", "response", "registration", "contents"],
)
def test_messages_are_these_bytes(message: Any, wire: bytes) -> None:
    assert message.SerializeToString() == wire
    assert type(message).FromString(wire) == message


def test_packages_are_those_that_clients_call() -> None:
    packages = {
        module: kind.DESCRIPTOR.file.package
        for module, kind in (
            ("inference", inference_pb2.PredictionsRequest),
            ("management", management_pb2.ListModelsRequest),
            ("open", open_inference_pb2.ModelInferRequest),
            ("status", status_pb2.Status),
        )
    }

    assert packages == {
        "inference": "org.pytorch.serve.grpc.inference",
        "management": "org.pytorch.serve.grpc.management",
        "open": "org.pytorch.serve.grpc.openinference",
        "status": "google.rpc",
    }


@pytest.mark.parametrize("kind", FIELDS, ids=lambda kind: kind.DESCRIPTOR.full_name)
def test_a_program_may_have_another_definition_of_the_same_messages(kind: Any) -> None:
    assert kind.DESCRIPTOR.file.pool is not Default()


def test_the_modules_are_what_the_proto_files_say() -> None:
    folder = Path(generate.__file__).parent
    written = {path.name: path.read_text() for path in folder.glob("*_pb2.py*")}

    assert generate.generate().keys() == written.keys()
    for name, text in generate.generate().items():
        if name.endswith(".py"):  # how stubs are worded changes with grpcio-tools
            assert written[name] == text, f"{name} is not up to date: run python -m shoal.frontend.grpc.proto.generate"

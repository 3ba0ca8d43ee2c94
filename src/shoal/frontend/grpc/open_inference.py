"""The Open Inference Protocol under TorchServe's name: tensors become the JSON that handlers and envelopes know."""

import json
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from shoal.core.model import Model
from shoal.errors import HandlerFailed, InvalidInput, ServingError
from shoal.frontend.grpc.calls import Asked, Authorise, Desk, Prediction, encode, guarded, one_message, parse
from shoal.frontend.grpc.codes import DescribeError, Missing, Refusal, end, of_management
from shoal.frontend.grpc.proto import open_inference_pb2 as messages
from shoal.frontend.rpc import Call, Code, Service
from shoal.payload import Part, Result

PREFIX = "/org.pytorch.serve.grpc.openinference.GRPCInferenceService/"
CONTENTS: Mapping[str, str] = {  # datatype -> the field of InferTensorContents that holds it
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}


class OpenInference:
    """The service; ServerMetadata is not among its methods, as upstream. `is_ready` says it of one model."""

    def __init__(
        self, desk: Desk, *, describe_error: DescribeError, authorise: Authorise, is_ready: Callable[[Model], bool]
    ) -> None:
        self._desk = desk
        self._describe_error = describe_error
        self._authorise = authorise
        self._is_ready = is_ready

    def services(self) -> dict[str, Service]:
        """Give each method by its path."""
        live = messages.ServerLiveResponse(live=True)
        ready = messages.ServerReadyResponse(ready=True)
        methods: dict[str, Service] = {
            "ServerLive": self._method(messages.ServerLiveRequest, lambda _: live),
            "ServerReady": self._method(messages.ServerReadyRequest, lambda _: ready),
            "ModelReady": self._method(messages.ModelReadyRequest, self._model_ready),
            "ModelMetadata": self._method(messages.ModelMetadataRequest, self._model_metadata),
            "ModelInfer": lambda call: _infer(call, self._desk),
        }
        return {PREFIX + name: guarded(service, self._authorise, "inference") for name, service in methods.items()}

    def _method(self, kind: Any, answer: Callable[[Any], Any]) -> Service:
        def serve(call: Call) -> None:
            def hear(message: bytes) -> None:
                try:
                    response = answer(parse(kind, message))
                except Missing as error:
                    end(call, Refusal(Code.INTERNAL, str(error)))
                except ServingError as error:  # their texts name the model
                    end(call, of_management(error, self._describe_error))
                else:
                    call.send(encode(response))
                    call.finish()

            one_message(call, hear)

        return serve

    def _model_ready(self, asked: messages.ModelReadyRequest) -> Any:
        if not asked.name:
            raise Missing("name")
        return messages.ModelReadyResponse(ready=self._is_ready(self._desk.repository.find(asked.name, asked.version)))

    def _model_metadata(self, asked: messages.ModelMetadataRequest) -> Any:
        if not asked.name:
            raise Missing("model_name")
        if asked.version:
            found = [self._desk.repository.find(asked.name, asked.version)]
        else:
            found = self._desk.repository.versions(asked.name)
        return messages.ModelMetadataResponse(name=asked.name, versions=[model.version for model in found])


def _infer(call: Call, desk: Desk) -> None:
    Prediction(call, desk, _read, _write, stream=False)


def _read(message: bytes) -> Asked:
    request = parse(messages.ModelInferRequest, message)
    body = json.dumps(to_json(request), separators=(",", ":")).encode()
    return Asked(request.model_name, request.model_version, [Part("body", "application/json", body)])


def _write(result: Result) -> bytes:
    return encode(from_json(bytes(result.body)))


def to_json(request: messages.ModelInferRequest) -> dict[str, Any]:
    """Give the body of the same request over HTTP; BYTES are in base64. Raises InvalidInput."""
    if request.raw_input_contents:
        raise InvalidInput("raw_input_contents is not supported here; put the values into the contents of each input")
    fields = {"id": request.id, "model_name": request.model_name, "model_version": request.model_version}
    body: dict[str, Any] = {field: value for field, value in fields.items() if value}
    if request.parameters:
        body["parameters"] = _parameters(request.parameters)
    body["inputs"] = [_tensor(tensor) for tensor in request.inputs]
    if request.outputs:
        body["outputs"] = [
            {"name": output.name} | ({"parameters": _parameters(output.parameters)} if output.parameters else {})
            for output in request.outputs
        ]
    return body


def from_json(body: bytes) -> messages.ModelInferResponse:
    """Read the body a handler or its envelope gave; an element of BYTES is its JSON text, as upstream sends it."""
    try:
        answer = json.loads(body)
        response = messages.ModelInferResponse(
            id=_text(answer.get("id")),
            model_name=_text(answer.get("model_name")),
            model_version=_text(answer.get("model_version")),
        )
        for output in answer["outputs"]:
            tensor = response.outputs.add(name=output["name"], datatype=output["datatype"], shape=output["shape"])
            values = output["data"]
            if tensor.datatype == "BYTES":
                values = [json.dumps(value).encode() for value in values]
            getattr(tensor.contents, CONTENTS[tensor.datatype]).extend(values)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise HandlerFailed(f"the handler's answer is no v2 inference response in JSON: {reason}") from None
    return response


def _tensor(tensor: "messages.ModelInferRequest.InferInputTensor") -> dict[str, Any]:
    field = CONTENTS.get(tensor.datatype)
    if field is None:
        raise InvalidInput(f"input {tensor.name!r} is {tensor.datatype!r}; known here are {', '.join(CONTENTS)}")
    values: Iterable[Any] = getattr(tensor.contents, field)
    if tensor.datatype == "BYTES":
        values = (b64encode(value).decode() for value in values)
    body = {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape), "data": list(values)}
    return body | ({"parameters": _parameters(tensor.parameters)} if tensor.parameters else {})


def _parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    chosen = {name: value.WhichOneof("parameter_choice") for name, value in parameters.items()}
    return {name: getattr(parameters[name], field) if field else None for name, field in chosen.items()}


def _text(value: Any) -> str:
    return "" if value is None else str(value)

"""Messages of GRPCInferenceService and what they mean: tensors, parameters, answers."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from shoal.errors import InvalidInput
from shoal.frontend.grpc.proto import grpc_service_pb2 as messages
from shoal.frontend.grpc.raw import put
from shoal.frontend.kserve import answers
from shoal.frontend.kserve.asked import Asked, Tensor, Wish
from shoal.frontend.kserve.controls import NO_CONTROLS, Controls
from shoal.frontend.kserve.heads import membership
from shoal.frontend.kserve.memory import Regions
from shoal.frontend.kserve.plan import Plan
from shoal.frontend.kserve.requests import read_place
from shoal.frontend.kserve.values import to_bytes
from shoal.payload import Block, Buffer, Result
from shoal.tensor import pack_strings

CONTENTS: Mapping[str, str] = {  # datatype -> the field of InferTensorContents that holds it
    "BOOL": "bool_contents",
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
    "INT64": "int64_contents",
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
WIDEST: Final = {field: datatype for datatype, field in CONTENTS.items()}  # what each field holds, said by its widest
OutputHead = tuple[str, str, tuple[int, ...]]  # name, datatype and shape
FINAL: Final = "triton_final_response"
WANTS_FINAL: Final = "triton_enable_empty_final_response"
KINDS: Mapping[str, tuple[str, ...]] = {  # of the parameters that the server itself acts on
    "sequence_id": ("int64_param", "string_param"),
    "sequence_start": ("bool_param",),
    "sequence_end": ("bool_param",),
    "priority": ("int64_param", "uint64_param"),
    "timeout": ("int64_param",),
    WANTS_FINAL: ("bool_param",),
    "binary_data_output": ("bool_param",),
}


def read_asked(request: messages.ModelInferRequest, plan: Plan, regions: Regions, raw: Sequence[Buffer] = ()) -> Asked:
    """Read what is asked for, its tensors in the message or beside it; what is raised leaves nothing lent."""
    controls = read_controls(request.parameters)
    wishes: dict[str, Wish] = {}
    tensors: list[Tensor] = []
    asked = Asked(request.id, tensors, wishes, controls)
    try:
        for output in request.outputs:
            if output.name in wishes:
                raise InvalidInput(f"output '{output.name}' is requested twice")
            wishes[output.name] = _wish(output, regions)
        plan.check_wishes(wishes, binary=True)
        _read_tensors(request, plan, regions, tensors, raw or request.raw_input_contents)
    except BaseException:
        asked.release()
        raise
    if not wishes:
        asked.wishes = None
    return asked


def read_controls(parameters: Mapping[str, Any]) -> Controls:
    """Take the parameters apart: what the server itself acts on, and what the model is told."""
    if not parameters:
        return NO_CONTROLS
    own: dict[str, Any] = {}
    found: dict[str, Any] = {}
    for name, parameter in parameters.items():
        kind = parameter.WhichOneof("parameter_choice")
        expected = KINDS.get(name)
        if expected is not None:
            if kind not in expected:
                raise InvalidInput(f"invalid value type for '{name}' parameter, expected {' or '.join(expected)}.")
            found[name] = getattr(parameter, kind)
        elif name.startswith("triton_"):
            raise InvalidInput(
                "parameter keys starting with 'triton_' are reserved for Triton usage. Only the following keys "
                f"starting with 'triton_' are allowed: {WANTS_FINAL}"
            )
        elif kind is None:
            raise InvalidInput(
                f"invalid value type for '{name}' parameter, expected int64_param, bool_param, or string_param."
            )
        else:
            own[name] = getattr(parameter, kind)
    for name in ("priority", "timeout"):
        if found.get(name, 0) < 0:
            raise InvalidInput(f"invalid value for '{name}', expected value >= 0.")
    id = found.get("sequence_id", 0)
    return Controls(
        own,
        membership(id % 2**64 if isinstance(id, int) else id, _is(found, "sequence_start"), _is(found, "sequence_end")),
        found.get("priority", 0),
        found.get("timeout", 0),
        True,
        _is(found, WANTS_FINAL),
    )


def write_answer(plan: Plan, asked: Asked, result: Result) -> messages.ModelInferResponse:
    """Make the message of one answer; every output has an entry of bytes, an empty one where they lie elsewhere."""
    answer, buffers = answers.read(result)
    response = messages.ModelInferResponse(model_name=plan.model.name, model_version=plan.model.version, id=asked.id)
    set_parameters(response, answer.parameters)
    for head, data, _ in answers.outputs_of(plan, asked, answer, buffers):
        response.outputs.add(name=head.name, datatype=head.datatype, shape=head.shape)
        response.raw_output_contents.append(bytes(data))
    return response


def write_pieces(plan: Plan, asked: Asked, result: Result) -> tuple[bytes, list[Buffer]]:
    """Give the same message in pieces, to be joined; what it says beside its tensors it has mostly said before."""
    answer, buffers = answers.read(result)
    heads: list[OutputHead] = []
    tensors: list[Buffer] = []
    for head, data, _ in answers.outputs_of(plan, asked, answer, buffers):
        heads.append((head.name, head.datatype, tuple(head.shape)))
        tensors.append(data)
    opening = _opening(plan.model.name, plan.model.version, tuple(heads))
    if asked.id or answer.parameters:
        more = messages.ModelInferResponse(id=asked.id)
        set_parameters(more, answer.parameters)
        opening += more.SerializeToString()
    return opening, put(tensors)


@lru_cache(maxsize=1024)
def _opening(name: str, version: str, heads: tuple[OutputHead, ...]) -> bytes:
    response = messages.ModelInferResponse(model_name=name, model_version=version)
    for output, datatype, shape in heads:
        response.outputs.add(name=output, datatype=datatype, shape=shape)
    written: bytes = response.SerializeToString()
    return written


def set_parameters(response: messages.ModelInferResponse, parameters: Mapping[str, Any]) -> None:
    """Write what a model says beside its tensors."""
    for name, value in parameters.items():
        parameter = response.parameters[name]
        if isinstance(value, bool):
            parameter.bool_param = value
        elif isinstance(value, int):
            if value >= 2**63:
                parameter.uint64_param = value
            else:
                parameter.int64_param = value
        elif isinstance(value, float):
            parameter.double_param = value
        else:
            parameter.string_param = str(value)


def _read_tensors(
    request: messages.ModelInferRequest, plan: Plan, regions: Regions, tensors: list[Tensor], raw: Sequence[Buffer]
) -> None:
    model, taken = plan.model.name, 0
    for tensor in request.inputs:
        name = tensor.name
        data: Buffer | Block
        if "shared_memory_region" in tensor.parameters:
            data = regions.read(*read_place(_place(tensor.parameters), name))
        elif raw:
            if tensor.HasField("contents"):
                raise InvalidInput(
                    f"contents field must not be specified when using raw_input_contents for '{name}' for model "
                    f"'{model}'"
                )
            if taken >= len(raw):
                raise InvalidInput(f"unable to find data for input tensor '{name}' for model '{model}' in request.")
            data = regions.keep(raw[taken])
            taken += 1
        else:
            data = _typed(tensor, model)
        tensors.append(Tensor(name, tensor.datatype, list(tensor.shape), data))


def _typed(tensor: "messages.ModelInferRequest.InferInputTensor", model: str) -> bytes:
    """Give the bytes of values that were sent as numbers; the list must be the datatype's own, and the only one."""
    if not tensor.HasField("contents"):
        raise InvalidInput(f"unable to find data for input tensor '{tensor.name}' for model '{model}' in request.")
    datatype = tensor.datatype
    field = CONTENTS.get(datatype)
    given = [found.name for found, _ in tensor.contents.ListFields()]
    if field is None or any(name != field for name in given):
        raise InvalidInput(
            f"unexpected explicit tensor data for input tensor '{tensor.name}' for model '{model}' of type "
            f"'{WIDEST.get(next(iter(given), ''), '<invalid>')}', expected datatype '{datatype}'"
            + (f" in {field}" if field else ", which is sent in raw_input_contents only")
        )
    values = getattr(tensor.contents, field)
    return pack_strings(values) if datatype == "BYTES" else to_bytes(datatype, list(values))


def _wish(output: "messages.ModelInferRequest.InferRequestedOutputTensor", regions: Regions) -> Wish:
    name, parameters = output.name, output.parameters
    if not parameters:
        return Wish(name, is_binary=True)
    classes = 0
    if "classification" in parameters:
        if parameters["classification"].WhichOneof("parameter_choice") != "int64_param":
            raise InvalidInput("invalid value type for 'classification' parameter, expected int64_param")
        classes = parameters["classification"].int64_param
        if classes < 1:
            raise InvalidInput(f"invalid value for 'classification' parameter, expected >= 1, got {classes}")
    window = None
    if "shared_memory_region" in parameters:
        if classes:
            raise InvalidInput(f"shared memory can't be used with classification of output '{name}'")
        window = regions.window(*read_place(_place(parameters), name))
    return Wish(name, is_binary=True, classes=classes, window=window)


def _place(parameters: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for name in ("shared_memory_region", "shared_memory_byte_size", "shared_memory_offset"):
        if name in parameters:
            kind = parameters[name].WhichOneof("parameter_choice")
            found[name] = getattr(parameters[name], kind) if kind else None
    return found


def _is(found: Mapping[str, Any], name: str) -> bool:
    return bool(found.get(name, False))

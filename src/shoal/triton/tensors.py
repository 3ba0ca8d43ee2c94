"""What is wrong with a completed configuration: its tensors, instances, warm-up requests and the files it names."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from shoal.errors import ConfigError
from shoal.triton.form import value_name

SERVED = ("onnxruntime", "pytorch", "python", "identity")
SIZES = "must be integer >= 1, or -1 to indicate a variable-size dimension"
ONE_SOURCE = ("BATCH_ELEMENT_COUNT", "BATCH_ACCUMULATED_ELEMENT_COUNT", "BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO")


def check_complete(message: Any, folder: Path, gpus: Sequence[int]) -> None:
    """Raise ConfigError with the first thing that is wrong; instances must have been resolved."""
    for problem in problems(message, folder, gpus):
        raise ConfigError(problem)


def problems(message: Any, folder: Path, gpus: Sequence[int]) -> Iterator[str]:
    """Tell what is wrong, one line each."""
    is_ensemble = message.WhichOneof("scheduling_choice") == "ensemble_scheduling"
    if not is_ensemble:
        yield from _backend(message)
        yield from _groups(message, gpus)
    for side in ("input", "output"):
        for tensor in getattr(message, side):
            yield from _tensor(tensor, side, message)
    yield from _batch_tensors(message)
    yield from _states(message, folder)
    for tensor in message.output:
        if tensor.label_filename:
            yield from _file(folder, tensor.label_filename, "label_filename")
    yield from _warmup(message, folder)
    file = message.default_model_filename
    if "/" in file or file in (".", ".."):
        yield f"default_model_filename must be a name inside the version's folder, got '{file}' for {message.name}"


def _backend(message: Any) -> Iterator[str]:
    if message.backend not in SERVED:
        yield f"unable to find backend '{message.backend}' for model '{message.name}'; served are: {', '.join(SERVED)}"
    if message.runtime and message.runtime != f"libtriton_{message.backend}.so":
        yield f"unable to use runtime '{message.runtime}' for model '{message.name}': backends are part of the server"


def _groups(message: Any, gpus: Sequence[int]) -> Iterator[str]:
    for group in message.instance_group:
        kind = value_name(group, "kind")
        of = f"instance group {group.name} of model {message.name}"
        if kind != "KIND_GPU" and group.gpus:
            yield f"{of} has kind {kind} but specifies one or more GPUs"
        if kind == "KIND_GPU" and not group.gpus:
            yield f"{of} has kind KIND_GPU but no GPUs are available"
        for gpu in group.gpus:
            if gpu not in gpus:
                present = ", ".join(map(str, gpus)) or "none"
                yield f"{of} specifies invalid or unsupported gpu id {gpu}. GPUs that are present: {present}"
        if group.profile:
            yield f"{of} and platform {message.platform} specifies profile field which is only for TensorRT models"
        if group.secondary_devices:
            yield f"{of} specifies secondary_devices, of which there are none here"
    if message.instance_group and all(group.passive for group in message.instance_group):
        yield f"every instance group of model {message.name} is passive; at least one must take requests"


def _tensor(tensor: Any, side: str, message: Any) -> Iterator[str]:
    name, of = message.name, f"model {side} '{tensor.name}'"
    if not tensor.name:
        yield f"model {side} must specify 'name' for {name}"
    if value_name(tensor, "data_type") in ("TYPE_INVALID", str(tensor.data_type)):
        yield f"{of} must specify 'data_type' for {name}"
    is_reshaped = tensor.HasField("reshape")
    if not tensor.dims:
        yield f"{of} must specify 'dims' for {name}"
    if any(size < 1 and size != -1 for size in tensor.dims):
        yield f"{of} dimension {SIZES} for {name}"
    if is_reshaped:
        yield from _reshape(tensor, of, message)
    if side == "input" and value_name(tensor, "format") != "FORMAT_NONE" and len(tensor.dims) != 3:
        yield f"model input NHWC/NCHW require 3 dims for {name}"
    if tensor.is_shape_tensor:
        yield f"shape tensors are only supported for TensorRT platform for {name}"
    if tensor.is_non_linear_format_io:
        yield f"Non-linear IO format is only supported for the TensorRT platform for {name}"


def _reshape(tensor: Any, of: str, message: Any) -> Iterator[str]:
    shape = list(tensor.reshape.shape)
    if any(size < 1 and size != -1 for size in shape):
        yield f"{of} reshape dimensions {SIZES} for {message.name}"
        return
    if not shape and message.max_batch_size == 0:
        scalar = "cannot have empty reshape for non-batching model as scalar tensors are not supported"
        yield f"{of} {scalar} for {message.name}"
    if _between(tensor.dims) != _between(shape):
        yield f"{of} has different size for dims and reshape for {message.name}"


def _between(dims: Sequence[int]) -> list[int]:
    """Count the elements between the dimensions of any size, which must agree one by one."""
    counts = [1]
    for size in dims:
        if size == -1:
            counts.append(1)
        else:
            counts[-1] *= size
    return counts


def _batch_tensors(message: Any) -> Iterator[str]:
    name = message.name
    inputs, outputs = ({tensor.name for tensor in side} for side in (message.input, message.output))
    for tensor in message.batch_input:
        kind = value_name(tensor, "kind")
        if value_name(tensor, "data_type") not in ("TYPE_INT32", "TYPE_FP32"):
            yield f"batch input data type must be TYPE_INT32 or TYPE_FP32 for {name}"
        if kind in ONE_SOURCE and len(tensor.source_input) != 1:
            yield f"batch input kind '{kind}' expects 1 source input, got {len(tensor.source_input)} for {name}"
    for tensor in message.batch_output:
        for target in tensor.target_name:
            if target not in outputs:
                yield f"unknown target output name '{target}' for {name}"
    for tensor in [*message.batch_input, *message.batch_output]:
        for source in tensor.source_input:
            if source not in inputs:
                yield f"unknown source input name '{source}' for {name}"


def _states(message: Any, folder: Path) -> Iterator[str]:
    seen: set[str] = set()
    for state in message.sequence_batching.state:
        of = f"state input '{state.input_name}'"
        if not state.input_name or not state.output_name:
            yield f"sequence batching state must specify 'input_name' and 'output_name' for {message.name}"
        if {state.input_name, state.output_name} & seen:
            yield f"sequence batching specifies the tensors of {of} more than once for {message.name}"
        seen |= {state.input_name, state.output_name}
        if value_name(state, "data_type") in ("TYPE_INVALID", str(state.data_type)):
            yield f"{of} must specify 'data_type' for {message.name}"
        if not state.dims or any(size < 1 and size != -1 for size in state.dims):
            yield f"{of} must specify 'dims', each of which {SIZES} for {message.name}"
        if len(state.initial_state) > 1:
            found = f"Found '{len(state.initial_state)}' elements."
            yield f"initial_state field for {of} must contain exactly one or zero element. {found}"
        for initial in state.initial_state:
            yield from _initial(initial, state, of, folder)


def _initial(initial: Any, state: Any, of: str, folder: Path) -> Iterator[str]:
    if not initial.name:
        yield f"Field 'name' must be set when using initial_state for {of}."
    if initial.data_type != state.data_type:
        field = f"The data type used for 'initial_state' field of state '{state.input_name}'"
        yield f"{field} does not match the state data type."
    if any(size == -1 for size in initial.dims):
        yield f"'initial_state' field for state input name '{state.input_name}' contains variable dimensions."
    if len(initial.dims) != len(state.dims):
        field = "Number of dimensions in 'initial_state' doesn't match the size of 'state' dimensions"
        yield f"{field} for {of}. {len(initial.dims)} != {len(state.dims)}"
    for got, wanted in zip(initial.dims, state.dims, strict=False):
        if wanted not in (-1, got):
            mismatch = f"doesn't match 'state' dim description. {got} != {wanted}"
            yield f"'initial_state' dim for input name '{state.input_name}' {mismatch}"
    match initial.WhichOneof("state_data"):
        case "data_file":
            yield from _file(folder / "initial_state", initial.data_file, "initial_state")
        case None:
            yield f"initial_state setting expects {of} to have state_data set: zero_data or data_file"


def _warmup(message: Any, folder: Path) -> Iterator[str]:
    types = {tensor.name: tensor for tensor in message.input}
    for sample in message.model_warmup:
        of, most = f"warmup sample '{sample.name}'", max(1, message.max_batch_size)
        if sample.batch_size > most:
            yield f"failed to run {of}: batch size {sample.batch_size}, max allowed is {most}"
        for name, given in sample.inputs.items():
            if given.WhichOneof("input_data_type") is None:
                yield f"warmup setting expects input '{name}' to have input_data_type set"
            if any(size < 0 for size in given.dims):
                yield f"warmup setting expects all variable-size dimensions are specified for input '{name}'"
            if name in types and types[name].data_type != given.data_type:
                got, wanted = value_name(given, "data_type"), value_name(types[name], "data_type")
                yield f"{of} gives input '{name}' as {got}, but model '{message.name}' expects {wanted}"
            if given.WhichOneof("input_data_type") == "input_data_file":
                yield from _file(folder / "warmup", given.input_data_file, "input_data_file")
        if types:
            yield from _inputs(sample, types, message.name)


def _inputs(sample: Any, types: dict[str, Any], name: str) -> Iterator[str]:
    needed = {tensor for tensor, given in types.items() if not given.optional}
    if missing := sorted(needed - set(sample.inputs)):
        yield f"warmup sample '{sample.name}' of model '{name}' does not give input(s) {missing}"


def _file(folder: Path, name: str, field: str) -> Iterator[str]:
    """See that a named file is there, inside its folder."""
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        yield f"{field} '{name}' leads out of {folder}"
    elif not path.is_file():
        yield f"failed to open text file for read {path}: No such file or directory"

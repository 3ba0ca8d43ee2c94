"""ONNX models: one session in a process, shared by the threads of all its instances."""

import ctypes
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from shoal.config import devices
from shoal.config.model import ModelConfig, TensorSpec
from shoal.errors import HandlerFailed, InvalidInput, LoadFailed
from shoal.wire.memory import ArenaReader
from shoal.wire.messages import Item
from shoal.worker.backends import tensors, triton
from shoal.worker.backends.merging import Layout, Merged, make_program
from shoal.worker.backends.tensors import Call
from shoal.worker.program import Program

DATATYPES = {
    "tensor(bool)": "BOOL",
    **{f"tensor(uint{width})": f"UINT{width}" for width in (8, 16, 32, 64)},
    **{f"tensor(int{width})": f"INT{width}" for width in (8, 16, 32, 64)},
    "tensor(float16)": "FP16",
    "tensor(bfloat16)": "BF16",
    "tensor(float)": "FP32",
    "tensor(double)": "FP64",
    "tensor(string)": "BYTES",
}
BFLOAT16 = 16  # the number ONNX has for it
ACCELERATORS = {"tensorrt": "TensorrtExecutionProvider", "openvino": "OpenVINOExecutionProvider"}
LEVELS = {
    -1: ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    1: ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    2: ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
}
SHRINKAGE = "memory.enable_memory_arena_shrinkage"
_SAID = re.compile(r"\[ONNXRuntimeError\] : (\d+) : \w+ : (.*)", re.DOTALL)
_SHORT = ("Failed to allocate memory", "out of memory", "bad_alloc")


def load(config: ModelConfig) -> Program:
    """Make the program of an ONNX model."""
    file = triton.model_file(config, "model.onnx")
    session = open_session(file / "model.onnx" if file.is_dir() else file, config)
    layout = Layout(config)
    model = Model(config, session, layout)
    return make_program("onnxruntime", layout, model.infer, model.read)


def open_session(file: Path, config: ModelConfig) -> Any:
    """Open an ONNX file as its configuration asks."""
    options, settings = session_options(config), config.settings
    for library in (settings.get("model_operations") or {}).get("op_library_filename", []):
        options.register_custom_ops_library(str(library))
    try:
        return ort.InferenceSession(str(file), options, providers=providers(config))
    except Exception as error:  # onnxruntime's own kinds share no better base
        raise LoadFailed(f"{file.name} of model {config.name!r} cannot be loaded: {_text(error)}") from error


def session_options(config: ModelConfig) -> Any:
    """Read the options of a session from `parameters` and `optimization`."""
    settings, options = config.settings, ort.SessionOptions()
    options.log_severity_level = 3
    share = max(1, devices.count_cpus() // max(1, config.workers))  # instances share the session's own threads
    options.intra_op_num_threads = triton.number(settings, "intra_op_thread_count", 0) or share
    options.inter_op_num_threads = triton.number(settings, "inter_op_thread_count", 0)
    if triton.number(settings, "execution_mode", 0) == 1:
        options.execution_mode = ort.ExecutionMode.ORT_PARALLEL
    options.enable_cpu_mem_arena = triton.switch(settings, "enable_mem_arena", True)
    options.enable_mem_pattern = triton.switch(settings, "enable_mem_pattern", True)
    if config.workers * config.instances > 1:  # a thread that spins takes the core of a neighbour
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    level = int(((settings.get("optimization") or {}).get("graph") or {}).get("level", 0))
    options.graph_optimization_level = LEVELS.get(level, ort.GraphOptimizationLevel.ORT_ENABLE_ALL)
    return options


def run_options(config: ModelConfig) -> Any:
    """Read the options of a run from `parameters`."""
    options = ort.RunOptions()
    options.log_severity_level = 4  # what fails is told to the client and logged by the worker
    if shrinkage := triton.parameter(config.settings, SHRINKAGE):
        options.add_run_config_entry(SHRINKAGE, shrinkage)
    return options


def providers(config: ModelConfig) -> list[Any]:
    """Say what runs the model: the device's own provider, behind accelerators that are asked for, before the CPU."""
    found: list[Any] = []
    kind, _, index = config.device.partition(":")
    wanted = (config.settings.get("optimization") or {}).get("execution_accelerators") or {}
    listed = wanted.get("cpu_execution_accelerator" if kind == "cpu" else "gpu_execution_accelerator", [])
    for accelerator in listed:
        name = ACCELERATORS.get(accelerator.get("name", ""))
        if name is None:
            known = ", ".join(ACCELERATORS)
            raise LoadFailed(f"execution accelerator {accelerator.get('name')!r} is not known; there are {known}")
        values = dict(accelerator.get("parameters") or {})
        found.append((name, {**values, "device_id": index or "0"} if kind != "cpu" else values))
    if kind != "cpu":
        found.append(("CUDAExecutionProvider", {"device_id": index or "0"}))
    available = ort.get_available_providers()
    if missing := [name for name, _ in found if name not in available]:
        raise LoadFailed(
            f"model {config.name!r} is to run on {config.device} with {missing[0]}, and the onnxruntime installed "
            f"here has {', '.join(available)}"
        )
    return [*found, "CPUExecutionProvider"]


class Model:
    """Feeds the session."""

    def __init__(self, config: ModelConfig, session: Any, layout: Layout) -> None:
        self._session = session
        self._layout = layout
        self._options = run_options(config)
        inputs = {value.name: value for value in session.get_inputs()}
        outputs = {value.name: value for value in session.get_outputs()}
        self._strings = {name for name, value in inputs.items() if DATATYPES.get(value.type) == "BYTES"}
        specs = [(spec, inputs, "input") for spec in (*layout.inputs.values(), *layout.added.values())]
        specs += [(spec, outputs, "output") for spec in (*layout.outputs.values(), *layout.states.values())]
        for spec, values, what in specs:
            _compare(config.name, spec, values, what)
            if not spec.is_ragged and spec.name not in layout.scattered:
                _compare_shapes(config.name, spec, values[spec.name].shape, layout.is_batched)
        needed = set(inputs) - set(layout.inputs) - set(layout.added) - _brought(config)
        if needed:
            raise LoadFailed(
                f"model {config.name!r} takes {', '.join(sorted(needed))} too, and its configuration has no such input"
            )
        self._halves = {name for name, value in {**inputs, **outputs}.items() if value.type == "tensor(bfloat16)"}
        if self._halves and self._strings:
            raise LoadFailed(
                f"model {config.name!r} has strings and BF16, and onnxruntime cannot be fed both from here"
            )

    def read(self, items: Sequence[Item], data: memoryview, arena: ArenaReader | None) -> list[Any]:
        """Give a Call with arrays for each item; an InvalidInput for one that cannot be read."""
        calls = tensors.read_arrays(items, data, arena)
        for index, call in enumerate(calls):
            if isinstance(call, Call):
                try:
                    for name in self._strings & call.arrays.keys():
                        call.arrays[name] = _texts(name, call.arrays[name])
                except InvalidInput as error:
                    calls[index] = error
        return calls

    def infer(self, merged: Merged) -> dict[str, Any]:
        """Run the model; only outputs that somebody asked for are taken from it."""
        names = self._layout.wanted(merged)
        for name in self._strings & self._layout.added.keys():
            merged.arrays[name] = _texts(name, merged.arrays[name])
        try:
            if self._halves:
                values = self._run_typed(names, merged.arrays)
            else:
                values = self._session.run(names, merged.arrays, self._options)
        except Exception as error:  # onnxruntime's own kinds share no better base
            raise _failed(error) from error
        return dict(zip(names, values, strict=True))

    def _run_typed(self, names: list[str], feed: dict[str, Any]) -> list[Any]:
        """Run with values that carry their type, for numbers that numpy has no type for."""
        fed = {}
        for name, array in feed.items():
            if name in self._halves:
                fed[name] = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(np.ascontiguousarray(array), BFLOAT16)
            else:
                fed[name] = ort.OrtValue.ortvalue_from_numpy(array)
        return [_array(value) for value in self._session.run_with_ort_values(names, fed, self._options)]


def _array(value: Any) -> Any:
    if value.data_type() != "tensor(bfloat16)":
        return value.numpy()
    count = int(np.prod(value.shape(), dtype=np.int64))
    bits = ctypes.string_at(value.data_ptr(), 2 * count)
    return np.frombuffer(bits, np.uint16).reshape(value.shape())


def _texts(name: str, array: Any) -> Any:
    """Decode BYTES: onnxruntime knows text alone."""
    try:
        texts = [element.decode() if isinstance(element, bytes) else element for element in array.ravel()]
        return np.array(texts, np.object_).reshape(array.shape)
    except UnicodeDecodeError as error:
        raise InvalidInput(f"input '{name}' must be UTF-8, as the model takes text: {error}") from None


def _compare(model: str, spec: TensorSpec, values: dict[str, Any], what: str) -> None:
    if spec.name not in values:
        raise LoadFailed(
            f"unexpected inference {what} '{spec.name}' in the configuration of model {model!r}; the model has "
            f"{', '.join(sorted(values)) or 'none'}"
        )
    found = DATATYPES.get(values[spec.name].type, values[spec.name].type)
    if found != spec.datatype:
        raise LoadFailed(
            f"unable to load model {model!r}, configuration expects datatype {spec.datatype} for {what} "
            f"'{spec.name}', model provides {found}"
        )


def _compare_shapes(model: str, spec: TensorSpec, shape: Sequence[Any], is_batched: bool) -> None:
    has = [dim if isinstance(dim, int) else -1 for dim in shape]
    takes = [*([-1] if is_batched else []), *(spec.dims if spec.reshape is None else spec.reshape)]
    if has and (len(has) != len(takes) or any(dim not in (-1, size) for dim, size in zip(has, takes, strict=True))):
        counted = ", the batch among them" if is_batched else ""
        raise LoadFailed(
            f"model '{model}', tensor '{spec.name}': the model expects {len(has)} dimensions (shape {has}) but the "
            f"model configuration specifies {len(takes)} dimensions (shape {takes}){counted}"
        )


def _brought(config: ModelConfig) -> set[str]:
    return {name for each in config.settings.get("batch_input", []) for name in each["target_name"]}


def _failed(error: Exception) -> BaseException:
    text = _text(error)
    if any(word in text for word in _SHORT):
        return MemoryError(text)
    return HandlerFailed(f"onnx runtime error {text}", status=tensors.INTERNAL)


def _text(error: Exception) -> str:
    found = _SAID.fullmatch(str(error))
    return f"{found[1]}: {found[2].strip()}" if found else str(error)

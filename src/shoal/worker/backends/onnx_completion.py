"""What an ONNX file tells of itself: its inputs and outputs, and whether it can be batched."""

from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Any

import onnxruntime as ort

from shoal.errors import LoadFailed
from shoal.worker.backends.completion import SCHEDULERS
from shoal.worker.backends.onnx import DATATYPES


def complete(config: dict[str, Any], version_folder: Path, default_max_batch_size: int) -> None:
    """Add inputs, outputs and batching, unless both inputs and outputs are there."""
    if config.get("input") and config.get("output"):
        return
    session = _open(config, version_folder)
    inputs, outputs = session.get_inputs(), session.get_outputs()
    size = int(config.get("max_batch_size", 0))
    can_batch = all(value.shape and not isinstance(value.shape[0], int) for value in (*inputs, *outputs))
    if can_batch and not size:
        size = default_max_batch_size
    elif size and not can_batch:
        raise LoadFailed(
            f"autofill failed for model '{config['name']}': model does not support batching while non-zero "
            f"max_batch_size {size} is specified"
        )
    config["max_batch_size"] = size
    if size > 1 and not any(scheduler in config for scheduler in SCHEDULERS):
        config["dynamic_batching"] = {}
    own = _of_sequences(config)
    config["input"] = _entries(config, "input", [each for each in inputs if each.name not in own], is_batched=size > 0)
    config["output"] = _entries(
        config, "output", [each for each in outputs if each.name not in own], is_batched=size > 0
    )


def _of_sequences(config: dict[str, Any]) -> set[str]:
    """Name the tensors that no client sends or sees: controls of sequences, and their states."""
    sequences = config.get("sequence_batching") or {}
    states = sequences.get("state", [])
    return {
        *(tensor.get("name", "") for tensor in sequences.get("control_input", [])),
        *(state.get(side, "") for state in states for side in ("input_name", "output_name")),
    }


def _open(config: dict[str, Any], version_folder: Path) -> Any:
    name = config.get("default_model_filename") or "model.onnx"
    if PurePath(name).is_absolute() or ".." in PurePath(name).parts:
        raise LoadFailed(f"default_model_filename must name a file inside the version folder, got {name!r}")
    file = version_folder / name
    if file.is_dir():
        file = file / "model.onnx"
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        return ort.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's own kinds share no better base
        raise LoadFailed(f"{file.name} of model {config['name']!r} cannot be read: {error}") from error


def _entries(config: dict[str, Any], what: str, values: Sequence[Any], *, is_batched: bool) -> list[dict[str, Any]]:
    """Give the entries of the configuration, where it has them, else what the file says."""
    if config.get(what):
        given: list[dict[str, Any]] = config[what]
        return given
    return [_entry(config["name"], value, is_batched) for value in values]


def _entry(model: str, value: Any, is_batched: bool) -> dict[str, Any]:
    datatype = DATATYPES.get(value.type)
    if datatype is None:
        raise LoadFailed(f"tensor '{value.name}' of model {model!r} is {value.type}, which cannot travel")
    dims = [dim if isinstance(dim, int) else -1 for dim in value.shape][1 if is_batched else 0 :]
    entry: dict[str, Any] = {
        "name": value.name,
        "data_type": f"TYPE_{'STRING' if datatype == 'BYTES' else datatype}",
        "dims": dims or [1],
    }
    if not dims:
        entry["reshape"] = {"shape": []}
    return entry

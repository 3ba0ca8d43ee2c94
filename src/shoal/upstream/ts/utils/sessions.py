"""ONNX files: opening a session of onnxruntime, and calling it with tensors as if it were a torch model."""

from collections.abc import Mapping
from typing import Any

import torch

TYPES = {
    "tensor(float)": torch.float32,
    "tensor(double)": torch.float64,
    "tensor(float16)": torch.float16,
    "tensor(int64)": torch.int64,
    "tensor(int32)": torch.int32,
    "tensor(int16)": torch.int16,
    "tensor(int8)": torch.int8,
    "tensor(uint8)": torch.uint8,
    "tensor(bool)": torch.bool,
}


def setup_ort_session(model_pt_path: str, map_location: str | None) -> Any:
    """A session on the file, on the GPU if the model is to run there and this onnxruntime can."""
    try:
        import onnxruntime
    except ImportError as error:
        raise ImportError(f"{model_pt_path} needs onnxruntime, which is not installed here") from error
    providers = ["CPUExecutionProvider"]
    if map_location == "cuda" and "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        providers.insert(0, "CUDAExecutionProvider")
    return onnxruntime.InferenceSession(str(model_pt_path), providers=providers)


def is_session(model: Any) -> bool:
    """Whether this is a session and no torch module."""
    return hasattr(model, "get_inputs") and hasattr(model, "run") and not callable(model)


def run_session(session: Any, data: Any) -> Any:
    """The output of a session as a tensor, or a list of them when it has several.

    Inputs go by name when `data` is a mapping, else in the order in which the file declares them; each is cast to
    the type that the file asks for.
    """
    declared = session.get_inputs()
    feed = {each.name: _array(value, each.type) for each, value in _paired(declared, data)}
    outputs = [torch.as_tensor(output) for output in session.run(None, feed)]
    return outputs[0] if len(outputs) == 1 else outputs


def _paired(declared: list[Any], data: Any) -> list[tuple[Any, Any]]:
    names = [each.name for each in declared]
    if isinstance(data, Mapping):
        missing = [name for name in names if name not in data]
        if missing:
            raise ValueError(f"the model also wants {', '.join(missing)}; its inputs are {', '.join(names)}")
        return [(each, data[each.name]) for each in declared]
    values = data if isinstance(data, tuple) else (data,)
    if len(values) != len(names):
        raise ValueError(f"the model has {len(names)} inputs ({', '.join(names)}), preprocess gave {len(values)}")
    return list(zip(declared, values, strict=True))


def _array(value: Any, declared: str) -> Any:
    tensor = torch.as_tensor(value).detach().cpu()
    return tensor.to(TYPES.get(declared, tensor.dtype)).numpy()

"""Opens an ONNX file for a worker that shares its machine with others."""

from typing import Any

import onnxruntime


def open_session(path: str, device: str) -> Any:
    """A session on `device`; one thread that sleeps when idle, as instances share the cores (one instance a core)."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(path, options, providers=_providers(device))


def _providers(device: str) -> list[Any]:
    kind, _, index = device.partition(":")
    if kind == "cuda" and "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        return [("CUDAExecutionProvider", {"device_id": int(index or 0)}), "CPUExecutionProvider"]
    return ["CPUExecutionProvider"]

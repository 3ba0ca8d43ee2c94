"""Small functions: tensors and configurations by name, types from one world to the other, BYTES as they travel."""

from typing import Any

import numpy as np

from shoal.upstream.triton_python_backend_utils.inference import InferenceRequest
from shoal.upstream.triton_python_backend_utils.response import InferenceResponse
from shoal.upstream.triton_python_backend_utils.tensor import NUMBERS, Tensor
from shoal.worker.backends import tensors

# BOOL is Python's own bool here, as models compare it.
TRITON_STRING_TO_NUMPY: dict[str, Any] = {
    f"TYPE_{'STRING' if name == 'BYTES' else name}": bool if name == "BOOL" else dtype.type
    for name, dtype in tensors.DTYPES.items()
    if name != "BF16"
}
_BY_NUMBER = {number: TRITON_STRING_TO_NUMPY.get(f"TYPE_{'STRING' if name == 'BYTES' else name}")
              for name, number in NUMBERS.items()}  # fmt: skip
_model_dir = ""


def get_input_tensor_by_name(inference_request: InferenceRequest, name: str) -> Tensor | None:
    """Give an input of a request; None where it has none of this name."""
    for tensor in inference_request.inputs():
        if tensor.name() == name:
            return tensor
    return None


def get_output_tensor_by_name(inference_response: InferenceResponse, name: str) -> Tensor | None:
    """Give an output of a response; None where it has none of this name."""
    return next((tensor for tensor in inference_response.output_tensors() if tensor.name() == name), None)


def get_input_config_by_name(model_config: dict[str, Any], name: str) -> dict[str, Any] | None:
    """Give what a configuration says of an input; None where it has none of this name."""
    return _config_by_name(model_config, "input", name)


def get_output_config_by_name(model_config: dict[str, Any], name: str) -> dict[str, Any] | None:
    """Give what a configuration says of an output; None where it has none of this name."""
    return _config_by_name(model_config, "output", name)


def _config_by_name(model_config: dict[str, Any], what: str, name: str) -> dict[str, Any] | None:
    return next((entry for entry in model_config.get(what, []) if entry.get("name") == name), None)


def using_decoupled_model_transaction_policy(model_config: dict[str, Any]) -> bool:
    """Whether a configuration lets a request have any number of responses."""
    return bool((model_config.get("model_transaction_policy") or {}).get("decoupled", False))


def triton_string_to_numpy(triton_type_string: str) -> Any:
    """Give the numpy type of a configuration's data type, such as TYPE_FP32."""
    return TRITON_STRING_TO_NUMPY[triton_type_string]


def triton_to_numpy_type(data_type: int) -> Any:
    """Give the numpy type of a data type's number."""
    return _BY_NUMBER.get(int(data_type))


def numpy_to_triton_type(data_type: Any) -> int | None:
    """Give the number of a numpy type; None for one that has no counterpart."""
    dtype = np.dtype(data_type)
    if dtype.kind == "S":
        return NUMBERS["BYTES"]
    name = tensors.DATATYPES.get(dtype)
    return None if name is None else NUMBERS[name]


def serialize_byte_tensor(input_tensor: Any) -> Any:
    """Put the elements of an array of strings one after the other, each with its length before it."""
    if input_tensor.size == 0:
        return np.empty([0], np.object_)
    if input_tensor.dtype != np.object_ and input_tensor.dtype.kind != "S":
        return None
    joined = tensors.write_bytes(input_tensor)
    whole = np.empty([], np.object_)
    whole[()] = joined
    return whole


def deserialize_bytes_tensor(encoded_tensor: Any) -> Any:
    """Give the elements again, as a flat array of bytes."""
    found = tensors.split_bytes(encoded_tensor, "the tensor")
    array = np.empty(len(found), np.object_)
    array[:] = found
    return array


def get_model_dir() -> str:
    """Give the version folder of the model."""
    return _model_dir


def set_model_dir(folder: str) -> None:
    """Say what get_model_dir gives."""
    global _model_dir
    _model_dir = folder

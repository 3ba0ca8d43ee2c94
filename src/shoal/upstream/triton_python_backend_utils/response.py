"""InferenceResponse: what answers a request, a client's or a model's."""

import json
from collections.abc import Sequence
from typing import Any

from shoal.upstream.triton_python_backend_utils.errors import TritonError, TritonModelException
from shoal.upstream.triton_python_backend_utils.tensor import Tensor


class InferenceResponse:
    """Output tensors, or an error in their place."""

    def __init__(
        self,
        output_tensors: Sequence[Tensor] | None = None,
        error: TritonError | None = None,
        parameters: dict[str, Any] | None = None,
    ) -> None:
        tensors = list(output_tensors or ())
        for tensor in tensors:
            if not isinstance(tensor, Tensor):
                raise TypeError("InferenceResponse takes a list of Tensor objects as output_tensors")
        if error is not None and not isinstance(error, TritonError):
            raise TypeError(f"the error of an InferenceResponse is a TritonError, got {type(error).__name__}")
        self._tensors = tensors
        self._error = error
        self._parameters = checked_parameters(parameters)

    def output_tensors(self) -> list[Tensor]:
        """Give the outputs."""
        return self._tensors

    def has_error(self) -> bool:
        """Whether it is an error."""
        return self._error is not None

    def error(self) -> TritonError | None:
        """Give the error; None where there is none."""
        return self._error

    def parameters(self) -> str:
        """Give its parameters as JSON."""
        return json.dumps(self._parameters)

    def parameter_values(self) -> dict[str, Any]:
        """Give its parameters as they are."""
        return self._parameters


def checked_parameters(parameters: dict[str, Any] | None) -> dict[str, Any]:
    """Give parameters again where they are what can travel."""
    if parameters is None:
        return {}
    if not isinstance(parameters, dict):
        raise TritonModelException(f"Expect parameters to have type dict, found type {type(parameters)}")
    found = dict(parameters)
    for key, value in found.items():
        if not isinstance(key, str):
            raise TritonModelException(f"Expect parameters keys to have type str, found type {type(key)}")
        if not isinstance(value, bool | int | float | str):
            raise TritonModelException(
                f"Expect parameters values to have type bool/int/float/str, found type {type(value)}"
            )
    return found

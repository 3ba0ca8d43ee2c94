# mypy: ignore-errors
"""Gives every input back under the name of the output: x_FP32 as y_FP32; BF16 by way of DLPack."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([again(tensor) for tensor in request.inputs()]) for request in requests]


def again(tensor):
    name = tensor.name().replace("x_", "y_")
    if name == "y_BF16":
        import torch

        return pb_utils.Tensor.from_dlpack(name, torch.from_dlpack(tensor))
    array = tensor.as_numpy()
    if array.dtype != object:
        array += array.dtype.type(0)  # it may be written to
    return pb_utils.Tensor(name, array)

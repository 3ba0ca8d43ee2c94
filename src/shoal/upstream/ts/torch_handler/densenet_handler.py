"""DenseNetHandler: tensors in and out, each as the bytes of `torch.save`."""

import io
from typing import Any

import torch

from shoal.upstream.ts.torch_handler.base_handler import BaseHandler
from shoal.upstream.ts.utils.util import PredictionException


class DenseNetHandler(BaseHandler):
    """Answers one tensor a row, with a first dimension of 1."""

    def preprocess(self, data: Any) -> Any:
        """The tensors of all rows, stacked. What a client sends is never unpickled as code."""
        return torch.stack([_tensor(row, number) for number, row in enumerate(data)])

    def postprocess(self, data: Any) -> list[Any]:
        """The output, row by row."""
        return list(data.split(1))


def _tensor(row: Any, number: int) -> torch.Tensor:
    value = row.get("data") or row.get("body")
    try:
        tensor = torch.load(io.BytesIO(value), weights_only=True)
    except Exception as error:  # torch raises what it stumbles over
        raise PredictionException(f"row {number} of the batch is no tensor as torch.save writes it", 503) from error
    if not isinstance(tensor, torch.Tensor):
        raise PredictionException(f"row {number} of the batch is a {type(tensor).__name__}, not a tensor", 503)
    return tensor

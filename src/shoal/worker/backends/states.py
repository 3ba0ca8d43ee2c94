"""Implicit state: the tensors that a sequence's next request is fed because its last one gave them."""

from collections.abc import Sequence
from math import prod
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from shoal import tensor
from shoal.config.model import ModelConfig, TensorSpec
from shoal.errors import InvalidInput, LoadFailed
from shoal.worker.backends.received import Received
from shoal.worker.backends.tensors import DTYPES, array_of

FOLDER = "initial_state"  # in the model's folder


class State:
    """One tensor of a model's state: under which names it goes in and comes out, and what a sequence begins with."""

    def __init__(self, settings: dict[str, Any], config: ModelConfig, is_batched: bool) -> None:
        datatype = settings["data_type"].removeprefix("TYPE_").replace("STRING", "BYTES")
        if datatype not in DTYPES:
            raise LoadFailed(
                f"state '{settings['input_name']}' of model {config.name!r} has no data_type that is known"
            )
        dims = [int(dim) for dim in settings.get("dims", [])]
        self.fed = TensorSpec(name=settings["input_name"], datatype=datatype, dims=dims)
        self.given = TensorSpec(name=settings["output_name"], datatype=datatype, dims=dims)
        array = self._beginning(settings, config)
        self.initial = array.reshape((1, *array.shape)) if is_batched else array
        self.initial.flags.writeable = False

    def _beginning(self, settings: dict[str, Any], config: ModelConfig) -> Any:
        """Read what a sequence begins with; zeros where nobody says, and one where a size may be any."""
        for initial in settings.get("initial_state") or []:
            dims = [int(dim) for dim in initial.get("dims", [])]
            if initial.get("data_file"):
                return self._read(str(initial["data_file"]), dims, config)
            return zeros(self.fed.datatype, dims)
        return zeros(self.fed.datatype, [1 if dim == -1 else dim for dim in self.fed.dims])

    def _read(self, file: str, dims: list[int], config: ModelConfig) -> Any:
        where = f"initial_state of '{self.fed.name}' of model {config.name!r}"
        if PurePath(file).is_absolute() or ".." in PurePath(file).parts:
            raise LoadFailed(f"{where} must lie in {FOLDER}/, got {file!r}")
        try:
            data = (Path(config.path).absolute().parent / FOLDER / file).read_bytes()
        except OSError as error:
            raise LoadFailed(f"{where} cannot be read: {error}") from error
        expected = prod(dims) * tensor.WIDTHS[self.fed.datatype]
        if expected and len(data) != expected:
            raise LoadFailed(f"{where}: {file} must have {expected} bytes for {dims}, got {len(data)}")
        try:
            return array_of(self.fed.name, Received(self.fed.datatype, tuple(dims), memoryview(data))).copy()
        except InvalidInput as error:
            raise LoadFailed(f"{where}: {error}") from error


def zeros(datatype: str, shape: Sequence[int]) -> Any:
    """Give a tensor of nothing: zeros, or strings of no length."""
    return np.full(shape, b"", object) if datatype == "BYTES" else np.zeros(shape, DTYPES[datatype])


def blank(like: Any) -> Any:
    """Give a tensor of nothing, as large as another."""
    if like.dtype != np.object_:
        return np.zeros_like(like)
    return np.full(like.shape, "" if like.size and isinstance(like.flat[0], str) else b"", object)


def fits(expected: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether a shape has these sizes; -1 is any."""
    return len(expected) == len(shape) and all(dim in (-1, size) for dim, size in zip(expected, shape, strict=True))

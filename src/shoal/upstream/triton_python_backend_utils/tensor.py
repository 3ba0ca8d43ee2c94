"""Tensor: a named array of a request or a response.

What a model takes out of a request is its own: the bytes of a request lie in memory that others use after it.
"""

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from shoal.upstream.triton_python_backend_utils.errors import TritonModelException
from shoal.worker.backends import tensors
from shoal.worker.backends.received import Received

# The numbers that configurations and models know the types by.
NUMBERS = {
    name: number
    for number, name in enumerate(
        ("BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64",
         "BYTES", "BF16"), 1)
}  # fmt: skip
CPU = 1  # dlpack's number for memory of the machine


class Tensor:
    """A name and an array."""

    __slots__ = ("__weakref__", "_array", "_datatype", "_foreign", "_name", "_received", "_shape")

    def __init__(self, name: str, numpy_array: Any) -> None:
        if not isinstance(name, str) or not isinstance(numpy_array, np.ndarray):
            raise TypeError(
                f"Tensor(name, numpy_array) takes a str and a numpy.ndarray, got {type(name).__name__} and "
                f"{type(numpy_array).__name__}"
            )
        if not name:
            raise TritonModelException("Tensor name cannot be an empty string.")
        self._name = name
        self._received: Received | None = None
        self._foreign: Any = None  # what dlpack brought, where numpy cannot hold it
        self._datatype = _datatype(numpy_array)
        self._array: Any = numpy_array if numpy_array.dtype == np.object_ else np.ascontiguousarray(numpy_array)
        if numpy_array.ndim == 0:  # which ascontiguousarray would make a list of one
            self._array = numpy_array
        self._shape = list(numpy_array.shape)

    @classmethod
    def of_request(cls, name: str, received: Received) -> "Tensor":
        """Make the tensor of an input."""
        tensor = cls.__new__(cls)
        tensor._name = name
        tensor._datatype = received.datatype
        tensor._shape = list(received.shape)
        tensor._received = received
        tensor._array = tensor._foreign = None
        return tensor

    def own(self) -> None:
        """Copy what lies in memory of the request, which is about to end."""
        received = self._received
        if received is None:
            return
        if self._array is None:
            array = tensors.array_of(self._name, received)
            self._array = array if received.datatype == "BYTES" else array.copy()
        self._received = None

    def on_gpu(self, number: int) -> "Tensor":
        """Give the same on a GPU."""
        torch = _torch(self._name)
        try:
            return _of_torch(self._name, torch.from_dlpack(self).to(f"cuda:{number}"))
        except (RuntimeError, AssertionError) as error:  # torch says that it was built without GPUs by an assertion
            raise TritonModelException(f"tensor '{self._name}' cannot be put on GPU {number}: {error}") from error

    def name(self) -> str:
        """Give its name."""
        return self._name

    def shape(self) -> list[int]:
        """Give its shape, the batch included."""
        return self._shape

    def triton_dtype(self) -> int:
        """Give the number of its type."""
        return NUMBERS[self._datatype]

    def is_cpu(self) -> bool:
        """Whether it lies in memory of the machine."""
        return self._foreign is None or bool(self._foreign.device.type == "cpu")

    def as_numpy(self) -> Any:
        """Give it as an array, which the model may keep and write to; BYTES as an object array of bytes."""
        if not self.is_cpu():
            raise TritonModelException("Tensor is stored in GPU and cannot be converted to NumPy.")
        if self._datatype == "BF16":
            raise TritonModelException(
                f"tensor '{self._name}' is BF16, which numpy has no type for; take it by to_dlpack()"
            )
        self.own()
        return self._array

    def bits(self) -> tuple[str, Sequence[int], bytes | memoryview]:
        """Give datatype, shape and bytes as they travel."""
        if self._foreign is not None:
            here = self._foreign.detach().cpu().contiguous()
            return self._datatype, self._shape, tensors.bytes_of(_bits(here))
        if self._array is None and self._received is not None:
            return self._datatype, self._shape, self._received.data
        return self._datatype, self._shape, tensors.bytes_of(self._array)

    def to_dlpack(self) -> Any:
        """Give a capsule that other frameworks read."""
        return self.__dlpack__()

    def __dlpack__(self, **options: Any) -> Any:
        self.own()
        if self._foreign is not None:
            return self._foreign.__dlpack__(**options)
        if self._datatype == "BF16":
            return _torch(self._name).from_numpy(self._array.view(np.int16)).view(_torch("").bfloat16).__dlpack__()
        if self._datatype == "BYTES":
            raise TritonModelException("DLPack does not have support for string tensors.")
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        if self._foreign is not None:
            device: tuple[int, int] = self._foreign.__dlpack_device__()
            return device
        return CPU, 0

    @staticmethod
    def from_dlpack(name: str, tensor: Any) -> "Tensor":
        """Make a tensor of what another framework gives: an object that speaks DLPack, or its capsule."""
        if type(tensor).__name__ != "PyCapsule" and not hasattr(tensor, "__dlpack__"):
            raise TritonModelException(
                "Provided tensor is not supported. Tensor must be a DLPack capsule or have `__dlpack__` and "
                "`__dlpack_device__` attributes"
            )
        torch = sys.modules.get("torch")
        if torch is not None and not isinstance(tensor, np.ndarray):
            foreign = tensor if isinstance(tensor, torch.Tensor) else torch.utils.dlpack.from_dlpack(tensor)
            return _of_torch(name, foreign)
        if not hasattr(tensor, "__dlpack__"):
            tensor = _Capsule(tensor)
        try:
            return Tensor(name, np.from_dlpack(tensor))
        except (TypeError, BufferError, RuntimeError) as error:
            raise TritonModelException(f"tensor '{name}' cannot be taken from DLPack: {error}") from error


class _Capsule:
    """A bare capsule in the form that numpy takes."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **options: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU, 0


def _of_torch(name: str, foreign: Any) -> Tensor:
    kind = str(foreign.dtype).removeprefix("torch.")
    if foreign.device.type == "cpu" and kind != "bfloat16":
        return Tensor(name, foreign.detach().contiguous().numpy())
    made = Tensor.__new__(Tensor)
    made._name, made._foreign, made._array, made._received = name, foreign, None, None
    made._shape = list(foreign.shape)
    made._datatype = "BF16" if kind == "bfloat16" else _datatype(np.empty(0, kind))
    return made


def _bits(here: Any) -> Any:
    """The numbers of a torch tensor, or their bits where numpy has no such numbers."""
    torch = _torch("")
    return here.view(torch.int16).numpy() if here.dtype == torch.bfloat16 else here.numpy()


def _torch(name: str) -> Any:
    try:
        import torch
    except ImportError:
        raise TritonModelException(f"tensor '{name}' needs torch, which is not installed") from None
    return torch


def _datatype(array: Any) -> str:
    found = "BYTES" if array.dtype.kind == "S" else tensors.DATATYPES.get(array.dtype)
    if found is None and array.dtype.name == "bfloat16":
        found = "BF16"
    if found is None:
        raise TritonModelException(f"NumPy dtype is not supported: {array.dtype}")
    return found

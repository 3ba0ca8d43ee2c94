"""Reads tensors out of a torch checkpoint without torch and without trusting it.

Owns torch's stream format of before 1.6, the one the EfficientNet weights come in: four pickles (magic number, version,
machine, tensors), a fifth with the order of the storages, then each storage's length and raw bytes. A pickle is a
program; this reader lets it name four things, all of them ours, and refuses the rest.
"""

import math
import pickle
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from shoal.errors import LoadFailed

MAGIC = 0x1950A86A20F9469CFC6C
VERSION = 1001

Array = npt.NDArray[Any]


def read_checkpoint(path: Path) -> dict[str, Array]:
    """The tensors of a checkpoint by name, as contiguous arrays; LoadFailed if it is anything but plain tensors."""
    size = path.stat().st_size
    try:
        with path.open("rb") as stream:
            if _unpickle(stream) != MAGIC or _unpickle(stream) != VERSION:
                raise LoadFailed(f"{path.name} is not a torch checkpoint of the stream format")
            _unpickle(stream)  # the machine that wrote it; storages are little-endian wherever torch runs
            tensors = _unpickle(stream)
            storages = _read_storages(stream, size, _declared(tensors))
    except (pickle.UnpicklingError, EOFError, TypeError, ValueError, KeyError, AttributeError, IndexError) as error:
        raise LoadFailed(f"{path.name} is damaged, or is not a checkpoint of plain tensors: {error}") from error
    return {name: tensor.read(storages) for name, tensor in tensors.items()}


@dataclass(frozen=True)
class _Storage:
    """Where a tensor's numbers will be found, once they have been read."""

    key: str
    dtype: str
    length: int


@dataclass(frozen=True)
class _Tensor:
    """A view of a storage: what torch's `_rebuild_tensor_v2` is called with."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    requires_grad: bool
    hooks: object

    def read(self, storages: Mapping[str, Array]) -> Array:
        """The numbers, copied; a view that would reach outside its storage is refused."""
        values = storages[self.storage.key]
        last = self.offset + sum((size - 1) * step for size, step in zip(self.shape, self.strides, strict=True))
        if min((self.offset, *self.shape, *self.strides)) < 0 or (0 not in self.shape and last >= len(values)):
            raise LoadFailed("a tensor of the checkpoint reaches outside its storage")
        strides = [step * values.itemsize for step in self.strides]
        view = np.lib.stride_tricks.as_strided(values[self.offset :], self.shape, strides, writeable=False)
        return np.ascontiguousarray(view)


_ALLOWED: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): _Tensor,
    ("torch", "FloatStorage"): "<f4",
    ("torch", "LongStorage"): "<i8",
}


class _Unpickler(pickle.Unpickler):
    """An unpickler that knows tensors and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}") from None

    def persistent_load(self, pid: Any) -> _Storage:
        kind, dtype, key, _location, length, view = pid
        if kind != "storage" or view is not None or dtype not in ("<f4", "<i8"):
            raise pickle.UnpicklingError("it holds a storage of an unknown kind")
        return _Storage(str(key), dtype, int(length))


def _unpickle(stream: BinaryIO) -> Any:
    return _Unpickler(stream).load()


def _declared(tensors: Any) -> dict[str, _Storage]:
    """The storages the tensors speak of, by key."""
    if not isinstance(tensors, OrderedDict):
        raise pickle.UnpicklingError("it does not hold a table of tensors")
    declared: dict[str, _Storage] = {}
    for name, tensor in tensors.items():
        if not isinstance(name, str) or not isinstance(tensor, _Tensor):
            raise pickle.UnpicklingError(f"{name!r} is not a tensor")
        declared[tensor.storage.key] = tensor.storage
    return declared


def _read_storages(stream: BinaryIO, file_size: int, declared: Mapping[str, _Storage]) -> dict[str, Array]:
    storages: dict[str, Array] = {}
    for key in _unpickle(stream):
        storage = declared[key]
        length = int.from_bytes(_read(stream, 8, file_size), "little")
        if length != storage.length:
            raise ValueError(f"storage {key} holds {length} numbers, not {storage.length}")
        itemsize = np.dtype(storage.dtype).itemsize
        storages[key] = np.frombuffer(_read(stream, math.prod((length, itemsize)), file_size), storage.dtype)
    return storages


def _read(stream: BinaryIO, count: int, limit: int) -> bytes:
    data = stream.read(count) if 0 <= count <= limit else b""
    if len(data) != count:
        raise EOFError("the file ends too early")
    return data

"""Tensors between the wire and a model: parts become arrays without a copy, arrays become answers with one."""

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from shoal import tensor
from shoal.answer import Answer, Head
from shoal.errors import HandlerFailed, InvalidInput, ProtocolError
from shoal.payload import Buffer
from shoal.wire.memory import ArenaReader
from shoal.wire.messages import Item
from shoal.worker.backends.received import Asked, Received, Seat, asked_of
from shoal.worker.batch import Slice
from shoal.worker.handler import Bound
from shoal.worker.items import Written
from shoal.worker.outlet import outlet

DTYPES: dict[str, Any] = {
    "BOOL": np.dtype(np.bool_),
    "UINT8": np.dtype(np.uint8),
    "UINT16": np.dtype(np.uint16),
    "UINT32": np.dtype(np.uint32),
    "UINT64": np.dtype(np.uint64),
    "INT8": np.dtype(np.int8),
    "INT16": np.dtype(np.int16),
    "INT32": np.dtype(np.int32),
    "INT64": np.dtype(np.int64),
    "FP16": np.dtype(np.float16),
    "BF16": np.dtype(np.uint16),  # its bits: numpy has no such number
    "FP32": np.dtype(np.float32),
    "FP64": np.dtype(np.float64),
    "BYTES": np.dtype(np.object_),
}
DATATYPES = {dtype: name for name, dtype in DTYPES.items() if name != "BF16"}
INTERNAL = 500
_LENGTH = struct.Struct("<I")


Keep = Callable[[str, str, Sequence[int], Buffer], bool]  # name, datatype, shape, bytes: is it nothing but a state


class Call:
    """One request: its inputs, and as arrays where a backend wants them so."""

    __slots__ = ("arrays", "asked", "inputs", "is_null", "keep", "problem", "seat")

    def __init__(self, inputs: dict[str, Received], asked: Asked) -> None:
        self.inputs = inputs
        self.asked = asked
        self.arrays: dict[str, Any] = {}
        self.seat: Seat | None = None  # of its sequence
        self.is_null = False  # a row that is no request's
        self.keep: Keep | None = None  # who takes its sequence's state out of what a model gives for it
        self.problem: InvalidInput | None = None  # why it could not be read, where somebody has to know of it

    @classmethod
    def unreadable(cls, problem: InvalidInput, asked: Asked) -> "Call":
        """Make what is left of a request that could not be read."""
        call = cls({}, asked)
        call.problem = problem
        return call

    def wants(self, output: str) -> bool:
        """Whether it asked for this output."""
        return not self.asked.outputs or output in self.asked.outputs


def read(items: Sequence[Item], data: memoryview, arena: ArenaReader | None) -> list[Any]:
    """Give a Call for each item; an InvalidInput for one whose bytes do not fit its shape."""
    calls: list[Any] = []
    at = 0
    for item in items:
        inputs: dict[str, Received] = {}
        problem: InvalidInput | None = None
        for part in item.parts:
            if part.offset < 0:
                view = data[at : at + part.size]
                at += part.size
            elif arena is None:
                raise ProtocolError("a part lies in shared memory, and this worker was given none")
            else:
                view = arena.read(part.offset, part.size)
            datatype, shape, size = _kind(part.content_type)
            if size >= 0 and size != part.size:
                problem = InvalidInput(
                    f"input byte size mismatch for input '{part.name}': expected {size} bytes for {datatype} "
                    f"{list(shape)}, got {part.size}"
                )
            inputs[part.name] = Received(datatype, shape, view)
        calls.append(problem or Call(inputs, asked_of(item)))
    return calls


def read_arrays(items: Sequence[Item], data: memoryview, arena: ArenaReader | None) -> list[Any]:
    """The same, with arrays that look at the bytes where they lie."""
    calls = read(items, data, arena)
    for index, call in enumerate(calls):
        if isinstance(call, Call):
            try:
                call.arrays = {name: array_of(name, received) for name, received in call.inputs.items()}
            except InvalidInput as error:
                calls[index] = error
    return calls


@lru_cache(maxsize=4096)
def _kind(content_type: str) -> tuple[str, tuple[int, ...], int]:
    """Give the datatype and shape of a part, and how many bytes it has; -1 where these do not tell."""
    datatype, shape = tensor.read_part_type(content_type)
    return datatype, shape, prod(shape) * tensor.WIDTHS[datatype] if datatype != "BYTES" else -1


def array_of(name: str, received: Received) -> Any:
    """Give an input as an array: a look at its bytes, or an object array of bytes for BYTES."""
    if received.datatype == "BYTES":
        return read_bytes(received.data, received.shape, name)
    return np.frombuffer(received.data, DTYPES[received.datatype]).reshape(received.shape)


def read_bytes(data: Buffer, shape: Sequence[int], name: str) -> Any:
    """Give the elements of a BYTES tensor; InvalidInput where they are not as many as the shape says."""
    count, found = prod(shape), split_bytes(data, name)
    if len(found) != count:
        raise InvalidInput(f"expected {count} string elements for inference input '{name}', got {len(found)}")
    array = np.empty(count, np.object_)
    array[:] = found
    return array.reshape(shape)


def split_bytes(data: Buffer, name: str) -> list[bytes]:
    """Cut elements at their lengths; InvalidInput where one is longer than what is there."""
    view, at, end, found = memoryview(data), 0, len(data), []
    while at < end:
        if at + 4 > end:
            raise InvalidInput(f"the last length in '{name}' has {end - at} bytes, expected 4")
        (size,) = _LENGTH.unpack_from(view, at)
        at += 4
        if at + size > end:
            raise InvalidInput(f"an element of '{name}' is said to have {size} bytes, and {end - at} are left")
        found.append(bytes(view[at : at + size]))
        at += size
    return found


def write_bytes(array: Any) -> bytes:
    """Put the elements of an array one after the other, each with its length before it; text is UTF-8."""
    pieces = []
    for value in array.ravel().tolist():
        element = value if isinstance(value, bytes) else str(value).encode()
        pieces.append(_LENGTH.pack(len(element)))
        pieces.append(element)
    return b"".join(pieces)


def bytes_of(array: Any) -> bytes | memoryview:
    """Give an array's bytes as they travel; a look at them where they lie in order already."""
    kind = array.dtype.kind
    if kind in "OS":
        return write_bytes(array)
    if not array.size:
        return b""
    ordered: Any = array if array.flags.c_contiguous else np.ascontiguousarray(array)
    if kind in "biuf":
        return memoryview(ordered).cast("B")
    flat: memoryview = ordered.reshape(-1).view(np.uint8).data  # numbers of another library, which have no letter
    return flat


Output = tuple[str, str, Sequence[int], bytes | memoryview]  # name, datatype, shape, bytes


def answer(outputs: Sequence[Output], parameters: dict[str, Any] | None = None) -> Written:
    """Make the answer that carries these tensors."""
    heads = [Head(name, datatype, list(shape), len(data)) for name, datatype, shape, data in outputs]
    return answered(Answer(heads, parameters or {}), [data for _, _, _, data in outputs])


def answered(head: Answer, data: Sequence[bytes | memoryview]) -> Written:
    """Put an answer together, in shared memory where it is large."""
    return Written(outlet.join(tensor.pieces(head, data)), tensor.ANSWER)


def datatype_of(name: str, array: Any, expected: str) -> str:
    """Give the datatype of an output; HandlerFailed, saying what was expected, where it is another."""
    found = DATATYPES.get(array.dtype)
    if expected == "BF16" and array.dtype == np.uint16:
        return expected
    if found != expected:
        raise HandlerFailed(
            f"output '{name}' must be {expected} by the model's configuration, and the model gave "
            f"{found or array.dtype}",
            status=INTERNAL,
        )
    return found


class Tensors(Bound):
    """The batch at hand, as a backend of tensors looks at it."""

    @property
    def cut(self) -> Slice | None:
        """The slice of a batch that the calling thread works on."""
        owner = getattr(self._at_hand[1], "__self__", None)
        return owner if isinstance(owner, Slice) else None

    @property
    def instance(self) -> int:
        """The number of the instance that runs it."""
        cut = self.cut
        return cut.batch.instance if cut is not None else 0

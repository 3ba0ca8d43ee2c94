"""Tensors as the protocols see them: a name, a datatype, a shape and bytes; and how they travel to a worker and back.

Row-major, little-endian, no padding; BYTES elements each have their length before them. The front process looks at
names, datatypes, shapes and sizes, never at values, unless a client speaks JSON.
"""

from collections.abc import Iterable, Sequence
from math import prod
from typing import Final

from shoal.answer import Answer, decode_answer, encode_answer
from shoal.errors import InvalidInput, ProtocolError

WIDTHS: Final = {
    "BOOL": 1,
    **dict.fromkeys(("UINT8", "INT8"), 1),
    **dict.fromkeys(("UINT16", "INT16", "FP16", "BF16"), 2),
    **dict.fromkeys(("UINT32", "INT32", "FP32"), 4),
    **dict.fromkeys(("UINT64", "INT64", "FP64"), 8),
    "BYTES": 0,  # as long as each element is
}
PART: Final = "tensor/"  # begins the content type of a part that is a tensor: tensor/FP32;1,3,224,224
ANSWER: Final = "application/x-shoal-tensors"  # the content type of an answer that is tensors
LARGEST_DIMENSION: Final = 2**31 - 1


def part_type(datatype: str, shape: Sequence[int]) -> str:
    """Give the content type of a part that carries a tensor."""
    return f"{PART}{datatype};{','.join(map(str, shape))}"


def read_part_type(content_type: str) -> tuple[str, tuple[int, ...]]:
    """Give the datatype and shape that a part's content type tells."""
    datatype, _, dims = content_type.removeprefix(PART).partition(";")
    if not content_type.startswith(PART) or datatype not in WIDTHS:
        raise ProtocolError(f"{content_type!r} is no tensor's content type")
    return datatype, tuple(map(int, dims.split(","))) if dims else ()


def elements(shape: Sequence[int], name: str) -> int:
    """Count the elements of a shape; a shape no tensor has is InvalidInput."""
    if any(not 0 <= size <= LARGEST_DIMENSION for size in shape):
        raise InvalidInput(f"the shape of '{name}' has a dimension that is negative or too large: {list(shape)}")
    return prod(shape)


def pieces(answer: Answer, buffers: Sequence[bytes | memoryview]) -> list[bytes | memoryview]:
    """Give what an answer's body is made of: its head and its tensors."""
    head = encode_answer(answer)
    return [len(head).to_bytes(4, "little"), head, *buffers]


def join(answer: Answer, buffers: Sequence[bytes | memoryview]) -> bytes:
    """Put an answer's head and its tensors into one body."""
    return b"".join(pieces(answer, buffers))


def split(body: bytes | bytearray | memoryview) -> tuple[Answer, list[memoryview]]:
    """Take a body apart again; nothing but its head is copied: a worker may still write to where it lies."""
    view = memoryview(body)
    size = int.from_bytes(view[:4], "little")
    answer = decode_answer(bytes(view[4 : 4 + size]))
    at, found = 4 + size, []
    for head in answer.outputs:
        found.append(view[at : at + head.size])
        at += head.size
    return answer, found


def pack_strings(values: Iterable[bytes]) -> bytes:
    """Write the elements of a BYTES tensor, each after its length."""
    return b"".join([piece for value in values for piece in (len(value).to_bytes(4, "little"), value)])


def string_ends(data: bytes | bytearray | memoryview, most: int) -> list[int]:
    """Give where each element of a BYTES tensor ends; InvalidInput where lengths and bytes do not agree.

    No element is copied, and after more than `most` of them nobody goes on.
    """
    view, at, size = memoryview(data), 0, len(data)
    ends: list[int] = []
    while at < size and len(ends) <= most:
        start = at + 4
        if start > size:
            raise InvalidInput(f"an element's length is 4 bytes, but only {size - at} are left")
        at = start + int.from_bytes(view[at:start], "little")
        if at > size:
            raise InvalidInput(f"an element is {at - start} bytes long, but only {size - start} are left")
        ends.append(at)
    return ends


def unpack_strings(data: bytes | bytearray | memoryview) -> list[bytes]:
    """Take the elements of a BYTES tensor apart; InvalidInput where the lengths and the bytes do not agree."""
    view, start, found = memoryview(data), 0, []
    for end in string_ends(data, len(data)):
        found.append(bytes(view[start + 4 : end]))
        start = end
    return found

"""The raw tensors of ModelInfer messages, cut out before and put in after protobuf: it would copy each several times.

A message is a row of fields, each with its number and, as tensors have, its length before it. Fields may stand in any
order and protobuf reads them joined in any pieces, so those that are tensors can travel beside the rest.
"""

from collections.abc import Sequence
from typing import Final

from shoal.payload import Buffer

WORTH: Final = 16 * 1024  # bytes of a message below which protobuf alone is faster
INPUT_TAG: Final = 7 << 3 | 2  # raw_input_contents of ModelInferRequest, length-delimited
OUTPUT_TAG: Final = bytes([6 << 3 | 2])  # raw_output_contents of ModelInferResponse
MOST: Final = 4096  # fields of a message that are looked at; one with more is left to protobuf


def cut(message: bytes) -> tuple[bytes, list[memoryview]]:
    """Give a request without its raw tensors, and the tensors; all of it and none where it is not worth it."""
    size = len(message)
    if size < WORTH:
        return message, []
    rest: list[memoryview] = []
    found: list[memoryview] = []
    view, at = memoryview(message), 0
    for _ in range(MOST):
        if at == size:
            return (b"".join(rest), found) if found else (message, [])
        start, tag = at, message[at]
        at += 1
        kind = tag & 7
        if tag & 0x80 or kind not in (0, 2):
            break  # a field number that this message has not: protobuf knows what to do
        value, at = _number(message, at)
        if at < 0:
            break
        if kind == 2:
            end = at + value
            if end > size:
                break
            if tag == INPUT_TAG:
                found.append(view[at:end])
            else:
                rest.append(view[start:end])
            at = end
        else:
            rest.append(view[start:at])
    return message, []


def mark(size: int) -> bytes:
    """Give what stands before a raw tensor of so many bytes in a request."""
    return bytes([INPUT_TAG]) + _varint(size)


def put(outputs: Sequence[Buffer]) -> list[Buffer]:
    """Give what stands behind the rest of a response: each raw tensor after its number and length."""
    pieces: list[Buffer] = []
    for data in outputs:
        pieces.append(OUTPUT_TAG + _varint(len(data)))
        pieces.append(data)
    return pieces


def _number(message: bytes, at: int) -> tuple[int, int]:
    """Read a number; says where it ends, or -1 where it does not."""
    value = shift = 0
    for byte in message[at : at + 10]:
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
    return 0, -1


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)

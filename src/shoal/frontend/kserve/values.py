"""The values of tensors as JSON has them, and as bytes: the only place of the front process that looks at values."""

import json
from array import array
from collections.abc import Callable
from itertools import chain
from typing import Annotated, Any, Final

import msgspec

from shoal.errors import InvalidInput
from shoal.tensor import pack_strings, unpack_strings

DEEPEST: Final = 100  # lists inside lists
USUAL_DEPTH: Final = 8  # up to here, nested lists are read and checked in one go
SHAPE_DIFFERS: Final = "Unable to parse 'data': Shape does not match true shape of 'data' field"
CODES: Final = {
    "UINT8": "B",
    "UINT16": "H",
    "UINT32": "I",
    "UINT64": "Q",
    "INT8": "b",
    "INT16": "h",
    "INT32": "i",
    "INT64": "q",
    "FP32": "f",
    "FP64": "d",
}
NOT_IN_JSON: Final = frozenset({"FP16", "BF16"})
_Natural = Annotated[int, msgspec.Meta(ge=0)]
_KINDS: dict[str, Any] = {
    "BOOL": bool,
    "BYTES": str,
    **{datatype: float if code in "fd" else _Natural if code.isupper() else int for datatype, code in CODES.items()},
}
_WORDS: Final = {bool: "boolean as boolean", str: "string as string", float: "number as double", int: "int as int"}
_DECODERS: dict[tuple[str, int], Callable[[Any], list[Any]]] = {}
_decode_any = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def from_json(datatype: str, name: str, count: int, raw: "msgspec.Raw | Any") -> bytes:
    """Give the bytes of the values that a client wrote, nested or flat; InvalidInput where they do not fit."""
    if datatype in NOT_IN_JSON:
        raise InvalidInput(
            f"receiving {datatype} data via JSON is not supported. Please use the binary data format for input {name}"
        )
    values = _read(datatype, raw) if isinstance(raw, msgspec.Raw) else _checked(datatype, _flat(raw))
    if datatype == "BYTES":
        return _strings(values)
    if len(values) != count:
        raise InvalidInput(f"{SHAPE_DIFFERS} of input '{name}': expected {count} values, got {len(values)}")
    return to_bytes(datatype, values)


def to_bytes(datatype: str, values: list[Any]) -> bytes:
    """Write numbers; those too large for the datatype lose their upper bits, as KServe's clients know it."""
    if datatype == "BOOL":
        return bytes(values)
    code = CODES[datatype]
    try:
        return array(code, values).tobytes()
    except OverflowError:
        pass
    low, high = (0, 2**64) if code.isupper() else (-(2**63), 2**63)
    if any(not low <= value < high for value in values):
        raise InvalidInput(f"Unable to parse 'data': a value does not fit into 64 bits, as {datatype} or wider")
    unsigned = code.upper()
    mask = (1 << 8 * array(unsigned).itemsize) - 1
    return array(unsigned, [value & mask for value in values]).tobytes()


def to_list(datatype: str, data: memoryview) -> list[Any]:
    """Give the values of a tensor; BYTES as text, where a byte that is none of UTF-8 keeps its value."""
    if datatype == "BOOL":
        return [value != 0 for value in data]
    if datatype == "BYTES":
        return [value.decode("utf-8", "surrogateescape") for value in unpack_strings(data)]
    numbers = array(CODES[datatype])
    numbers.frombytes(data)
    return numbers.tolist()


def to_json(datatype: str, data: memoryview) -> bytes:
    """Write the values of a tensor as one flat list."""
    return dump(to_list(datatype, data))


def dump(value: Any) -> bytes:
    """Write JSON as KServe's servers do: NaN and infinities bare, bytes that are no text as they are."""
    try:
        text = _encode(value)
    except UnicodeEncodeError:
        text = b"null"
    if text.find(b"null") < 0:  # `in` would raise and catch an exception each time, to see that this is no number
        return text
    written = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return written.encode("utf-8", "surrogateescape")


def _strings(values: list[str]) -> bytes:
    try:
        return pack_strings([value.encode() for value in values])
    except UnicodeEncodeError:
        raise InvalidInput("Unable to parse JSON bytes array: half of a surrogate pair is no text") from None


def _read(datatype: str, raw: msgspec.Raw) -> list[Any]:
    """Read nested lists with the type of their elements told to the decoder; what is not even takes the slow way."""
    depth = _depth(bytes(memoryview(raw)[: 4 * USUAL_DEPTH]))
    if 1 <= depth <= USUAL_DEPTH:
        decode = _DECODERS.get((datatype, depth))
        if decode is None:
            kind: Any = _KINDS[datatype]
            for _ in range(depth):
                kind = list[kind]
            decode = _DECODERS[datatype, depth] = msgspec.json.Decoder(kind).decode
        try:
            values = decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass
        else:
            for _ in range(depth - 1):
                values = list(chain.from_iterable(values))
            return values
    try:
        return _checked(datatype, _flat(_decode_any(raw)))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"Unable to parse 'data': {error}") from None


def _depth(start: bytes) -> int:
    depth = 0
    for byte in start:
        if byte == 0x5B:
            depth += 1
        elif byte not in b" \t\r\n":
            break
    return depth


def _flat(value: Any, depth: int = 0) -> list[Any]:
    if not isinstance(value, list):
        raise InvalidInput("Unable to parse 'data': attempt to access JSON non-array as array")
    if depth + 1 >= DEEPEST:
        raise InvalidInput(f"Unable to parse 'data': lists are nested {DEEPEST} deep or deeper")
    found: list[Any] = []
    for item in value:
        if isinstance(item, list):
            found += _flat(item, depth + 1)
        else:
            found.append(item)
    return found


def _checked(datatype: str, values: list[Any]) -> list[Any]:
    kind: Any = _KINDS[datatype]
    try:
        checked: list[Any] = msgspec.convert(values, list[kind])  # noqa: TID251 - no fields to be read
    except msgspec.ValidationError as error:
        word = _WORDS.get(kind, "unsigned-int as unsigned-int")
        where = "Unable to parse JSON bytes array" if kind is str else "Unable to parse 'data'"
        raise InvalidInput(f"{where}: attempt to access JSON non-{word}: {error}") from None
    return checked

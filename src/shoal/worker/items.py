"""Bytes to what handlers see, and what they give back to bytes.

Two dialects: native items (the value itself, strict) and TorchServe's rows (dicts, what cannot be read stays raw).
An item that cannot be read is replaced by its error, as everywhere between the stages.
"""

import json
import logging
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import PurePath
from typing import Any, Literal, NamedTuple

import msgspec

from shoal.errors import HandlerFailed, InvalidInput, ProtocolError
from shoal.payload import Buffer
from shoal.wire.memory import ArenaReader
from shoal.wire.messages import Item, PartHead
from shoal.wire.tray import Laid

BYTES_TYPE = "application/octet-stream"
TEXT_TYPE = "text/plain; charset=utf-8"
JSON_TYPE = "application/json"

Form = Literal["bytes", "json", "text"]
Reader = Callable[[Sequence[Item], memoryview, ArenaReader | None], list[Any]]

_log = logging.getLogger("shoal.worker")
_decode_json = msgspec.json.Decoder().decode
_POSITION = re.compile(r"(?:JSON is malformed: )?(.*) \(byte (\d+)\)")


class Written(NamedTuple):
    """A result whose bytes are made already; where it says no content type, its handler may have chosen one."""

    body: Buffer | Laid
    content_type: str = ""


def read_native(
    items: Sequence[Item], data: memoryview, arena: ArenaReader | None, binary: Callable[[memoryview], Any] = bytes
) -> list[Any]:
    """One value per item: its only part's, or a dict of its parts'; an InvalidInput for what cannot be read."""
    values: list[Any] = []
    at = 0
    for item in items:
        parts = item.parts
        if len(parts) == 1:
            part = parts[0]
            if part.offset < 0:
                view = data[at : at + part.size]
                at += part.size
            else:
                view = _shared(part, arena)
            form = form_of(part.content_type)
            if form == "bytes":
                values.append(binary(view))
                continue
            try:
                values.append(_native_value(part.name, form, view))
            except InvalidInput as error:
                values.append(error)
            continue
        views, at = _locate(parts, data, at, arena)
        try:
            values.append(
                {
                    part.name: _native_value(part.name, form_of(part.content_type), view)
                    for part, view in zip(parts, views, strict=True)
                }
                or b""
            )
        except InvalidInput as error:
            values.append(error)
    return values


def read_views(items: Sequence[Item], data: memoryview, arena: ArenaReader | None) -> list[Any]:
    """As `read_native`, but a body that is neither JSON nor text is not copied: it is a view, valid for its batch."""
    return read_native(items, data, arena, memoryview.toreadonly)


def read_rows(items: Sequence[Item], data: memoryview, arena: ArenaReader | None) -> list[Any]:
    """One dict per item with a value per part, as TorchServe makes them; what cannot be read is a bytearray."""
    rows: list[Any] = []
    at = 0
    for item in items:
        views, at = _locate(item.parts, data, at, arena)
        rows.append(
            {
                part.name or "body": _row_value(form_of(part.content_type), view)
                for part, view in zip(item.parts, views, strict=True)
            }
        )
    return rows


def read_raw_rows(items: Sequence[Item], data: memoryview, arena: ArenaReader | None) -> list[Any]:
    """One dict per item with a bytearray per part, whatever its content type says."""
    rows: list[Any] = []
    at = 0
    for item in items:
        views, at = _locate(item.parts, data, at, arena)
        rows.append({part.name or "body": bytearray(view) for part, view in zip(item.parts, views, strict=True)})
    return rows


def inline_size(items: Sequence[Item]) -> int:
    """How many of the bytes behind the message belong to these items."""
    return sum([part.size for item in items for part in item.parts if part.offset < 0])


@lru_cache(maxsize=512)
def form_of(content_type: str) -> Form:
    """How a content type is read; parameters do not count."""
    essence = content_type.partition(";")[0].strip().lower()
    if essence == "application/json":
        return "json"
    return "text" if essence.startswith("text") else "bytes"


def write(value: Any) -> tuple[Buffer | Laid, str]:
    """The bytes of a result and their content type; HandlerFailed for what cannot be said."""
    if isinstance(value, (bytes, bytearray)):
        return value, BYTES_TYPE
    if type(value) is Written:
        return value.body, value.content_type
    try:
        if isinstance(value, str):
            return value.encode(), TEXT_TYPE
        if isinstance(value, memoryview):
            return (value.cast("B") if value.c_contiguous else value.tobytes()), BYTES_TYPE
        return _encode_json(value), JSON_TYPE
    except Exception as error:  # anything a user's object does while it is looked at
        failed = HandlerFailed(f"a result of type {type_name(value)} cannot be sent: {error}")
        raise failed from error


def type_name(value: Any) -> str:
    """A value's type as its user knows it."""
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _speak(value: Any) -> Any:
    """What JSON can say of a value it does not know: numpy and torch know how to become lists."""
    if callable(tolist := getattr(value, "tolist", None)):
        return tolist()
    if isinstance(value, PurePath):
        return str(value)
    if value is None or isinstance(value, bool):  # only as a dict's key: written as json.dumps does
        return {None: "null", True: "true", False: "false"}[value]
    raise TypeError(f"{type_name(value)} has no JSON form; give bytes, str, numbers, lists or dicts")


_encode_json = msgspec.json.Encoder(enc_hook=_speak).encode


def _locate(
    parts: Sequence[PartHead], data: memoryview, at: int, arena: ArenaReader | None
) -> tuple[list[memoryview], int]:
    views = []
    for part in parts:
        if part.offset < 0:
            views.append(data[at : at + part.size])
            at += part.size
        else:
            views.append(_shared(part, arena))
    return views, at


def _shared(part: PartHead, arena: ArenaReader | None) -> memoryview:
    if arena is None:
        raise ProtocolError("a part lies in shared memory, and this worker was given none")
    return arena.read(part.offset, part.size)


def _native_value(name: str, form: Form, view: memoryview) -> Any:
    if form == "bytes":
        return bytes(view)
    try:
        return _decode_json(view) if form == "json" else str(view, "utf-8")
    except UnicodeDecodeError:
        raise InvalidInput(f"{name or 'body'} is not valid UTF-8: {_utf8_problem(bytes(view))}") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidInput(f"{name or 'body'} is not valid JSON: {_json_problem(str(error), len(view))}") from None


def _utf8_problem(data: bytes) -> str:
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return f"{error.reason} at byte {error.start}"
    return "surrogates are not allowed"


def _json_problem(text: str, size: int) -> str:
    if size == 0:
        return "it is empty"
    found = _POSITION.fullmatch(text)
    return f"{found[1]} at byte {found[2]}" if found else f"{text[:1].lower()}{text[1:]} at byte {size}"


def _row_value(form: Form, view: memoryview) -> Any:
    raw = bytearray(view)
    try:
        if form == "json":
            return _lenient_json(raw)
        return raw.decode() if form == "text" else raw
    except (ValueError, RecursionError):
        _log.warning("%d bytes that are said to be %s are not; the handler gets them raw", len(raw), form)
        return raw


def _lenient_json(raw: bytearray) -> Any:
    """As json.loads reads it (NaN, lone surrogates), at msgspec's speed where both agree."""
    try:
        return _decode_json(raw)
    except ValueError:
        return json.loads(raw)

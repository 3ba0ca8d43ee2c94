"""Header compression (RFC 7541): a decoder with its bounded table, and the few forms a server needs to encode."""

import re
from collections import deque
from typing import Final

from shoal.frontend.http2 import huffman
from shoal.frontend.http2.frames import ErrorCode, Fault

Field = tuple[bytes, bytes]

ENTRY: Final = 32  # what the RFC adds to the size of each entry
MAX_INTEGER: Final = 2**28
EMPTY_TABLE: Final = b"\x20"  # the size update that says our table stays empty

STATIC: Final[tuple[Field, ...]] = (
    (b":authority", b""),
    (b":method", b"GET"),
    (b":method", b"POST"),
    (b":path", b"/"),
    (b":path", b"/index.html"),
    (b":scheme", b"http"),
    (b":scheme", b"https"),
    *((b":status", status) for status in (b"200", b"204", b"206", b"304", b"400", b"404", b"500")),
    (b"accept-charset", b""),
    (b"accept-encoding", b"gzip, deflate"),
    *(
        (name, b"")
        for name in (
            b"accept-language accept-ranges accept access-control-allow-origin age allow authorization cache-control"
            b" content-disposition content-encoding content-language content-length content-location content-range"
            b" content-type cookie date etag expect expires from host if-match if-modified-since if-none-match if-range"
            b" if-unmodified-since last-modified link location max-forwards proxy-authenticate proxy-authorization"
            b" range referer refresh retry-after server set-cookie strict-transport-security transfer-encoding"
            b" user-agent vary via www-authenticate"
        ).split()
    ),
)
_NAMES: Final = {name: number for number, (name, _) in reversed(list(enumerate(STATIC, 1)))}
_NUMBERS: Final = {field: number for number, field in enumerate(STATIC, 1)}
_ENTRIES: Final = (None, *STATIC)
_FIRST_DYNAMIC: Final = len(STATIC) + 1

_sane_name = re.compile(rb":?[!#$%&'*+.^_`|~0-9a-z-]+").fullmatch
_sane_value = re.compile(rb"[^\x00-\x08\x0a-\x1f\x7f]*").fullmatch


class Decoder:
    """The receiving end of one connection. `changes` counts what happened to the table: where it stands still, the
    same block means the same fields again."""

    __slots__ = ("_allowed", "_entries", "_limit", "_max_list", "_size", "changes")

    def __init__(self, table: int, max_list: int) -> None:
        self._entries: deque[Field] = deque()  # the newest first
        self._size = 0
        self._limit = self._allowed = table
        self._max_list = max_list
        self.changes = 0

    def decode(self, block: bytes) -> list[Field] | None:
        """The fields of a block, or None when they are larger than allowed; raises `Fault` where sense ends."""
        try:
            return self._decode(block)
        except IndexError:
            raise Fault(ErrorCode.COMPRESSION_ERROR, "a header block ends inside a field, or names no entry") from None

    def _decode(self, block: bytes) -> list[Field] | None:
        fields: list[Field] = []
        at, end = 0, len(block)
        total = 0
        while at < end:
            byte = block[at]
            if byte & 0x80:  # an entry of the table
                index, at = (byte & 0x7F, at + 1) if byte != 0xFF else _integer(block, at, 0x7F)
                field = self._entry(index)
            elif byte & 0xE0 == 0x20:
                at = self._resize(block, at, bool(fields))
                continue
            else:  # a literal, to be kept or not
                mask = 0x3F if byte & 0x40 else 0x0F
                index, at = (byte & mask, at + 1) if byte & mask != mask else _integer(block, at, mask)
                if index:
                    name = self._entry(index)[0]
                else:
                    name, at = _string(block, at)
                    if not _sane_name(name):
                        raise Fault(ErrorCode.PROTOCOL_ERROR, "a header name has letters that are not allowed")
                value, at = _string(block, at)
                if not _sane_value(value):
                    raise Fault(ErrorCode.PROTOCOL_ERROR, "a header value has letters that are not allowed")
                field = name, value
                if byte & 0x40:
                    self._keep(field)
            total += len(field[0]) + len(field[1]) + ENTRY
            if total <= self._max_list:
                fields.append(field)
        return fields if total <= self._max_list else None

    def _entry(self, index: int) -> Field:
        if index < _FIRST_DYNAMIC:
            entry = _ENTRIES[index]
            if entry is None:
                raise IndexError
            return entry
        return self._entries[index - _FIRST_DYNAMIC]

    def _keep(self, field: Field) -> None:
        self.changes += 1
        size = len(field[0]) + len(field[1]) + ENTRY
        self._shrink(self._limit - size)
        if size <= self._limit:
            self._entries.appendleft(field)
            self._size += size

    def _resize(self, block: bytes, at: int, is_late: bool) -> int:
        limit, at = _integer(block, at, 0x1F) if block[at] & 0x1F == 0x1F else (block[at] & 0x1F, at + 1)
        if is_late or limit > self._allowed:
            raise Fault(ErrorCode.COMPRESSION_ERROR, "a size update stands after a field, or is above the setting")
        self.changes += 1
        self._limit = limit
        self._shrink(limit)
        return at

    def _shrink(self, size: int) -> None:
        while self._size > size and self._entries:
            name, value = self._entries.pop()
            self._size -= len(name) + len(value) + ENTRY


def _integer(block: bytes, at: int, mask: int) -> tuple[int, int]:
    """An integer that did not fit its prefix; says where it ends."""
    number, shift = mask, 0
    while True:
        at += 1
        byte = block[at]
        number += (byte & 0x7F) << shift
        shift += 7
        if number > MAX_INTEGER or shift > 35:
            raise Fault(ErrorCode.COMPRESSION_ERROR, "an integer of a header block is absurd")
        if byte < 0x80:
            return number, at + 1


def _string(block: bytes, at: int) -> tuple[bytes, int]:
    byte = block[at]
    length, at = (byte & 0x7F, at + 1) if byte & 0x7F != 0x7F else _integer(block, at, 0x7F)
    end = at + length
    if end > len(block):
        raise IndexError
    text = block[at:end]
    if byte & 0x80:
        try:
            text = huffman.decode(text)
        except huffman.BadHuffman as error:
            raise Fault(ErrorCode.COMPRESSION_ERROR, str(error)) from None
    return text, end


def encode_integer(number: int, mask: int, pattern: int = 0) -> bytes:
    """An integer with a prefix of that mask; `pattern` is what stands before the prefix."""
    if number < mask:
        return bytes((pattern | number,))
    out = bytearray((pattern | mask,))
    number -= mask
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def encode(fields: list[Field]) -> bytes:
    """A block that keeps nothing in the peer's table: entries of the static table, else literals."""
    out = []
    for field in fields:
        name, value = field
        if field in _NUMBERS:
            out.append(encode_integer(_NUMBERS[field], 0x7F, 0x80))
            continue
        number = _NAMES.get(name, 0)
        out.append(encode_integer(number, 0x0F))
        if not number:
            out += (encode_integer(len(name), 0x7F), name)
        out += (encode_integer(len(value), 0x7F), value)
    return b"".join(out)

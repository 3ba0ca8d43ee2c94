"""The frames of HTTP/2 (RFC 9113): their numbers, and the bytes of those a server sends."""

from enum import IntEnum
from struct import Struct
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD_SIZE: Final = 9  # of every frame
LARGEST: Final = 2**31 - 1  # stream number, and window
DEFAULT_WINDOW: Final = 65_535
DEFAULT_FRAME: Final = 16_384

DATA: Final = 0
HEADERS: Final = 1
PRIORITY: Final = 2
RST_STREAM: Final = 3
SETTINGS: Final = 4
PUSH_PROMISE: Final = 5
PING: Final = 6
GOAWAY: Final = 7
WINDOW_UPDATE: Final = 8
CONTINUATION: Final = 9

END_STREAM: Final = 0x1
ACK: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
WITH_PRIORITY: Final = 0x20

HEADER_TABLE_SIZE: Final = 1
ENABLE_PUSH: Final = 2
MAX_CONCURRENT_STREAMS: Final = 3
INITIAL_WINDOW_SIZE: Final = 4
MAX_FRAME_SIZE: Final = 5
MAX_HEADER_LIST_SIZE: Final = 6

head_at: Final = Struct(">IBI").unpack_from  # length and kind in one number, flags, stream
pack_head: Final = Struct(">IBI").pack
_pack_number: Final = Struct(">IBII").pack
_pack_setting: Final = Struct(">HI").pack
_pack_goaway: Final = Struct(">IBIII").pack


class ErrorCode(IntEnum):
    """Why a stream or a connection ended."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    CONNECT_ERROR = 10
    ENHANCE_YOUR_CALM = 11
    INADEQUATE_SECURITY = 12
    HTTP_1_1_REQUIRED = 13


class Fault(Exception):
    """The client broke a rule that ends the connection."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


def settings(values: dict[int, int]) -> bytes:
    """A SETTINGS frame."""
    payload = b"".join(_pack_setting(name, value) for name, value in values.items())
    return pack_head(len(payload) << 8 | SETTINGS, 0, 0) + payload


SETTINGS_ACK: Final = pack_head(SETTINGS, ACK, 0)


def ping(payload: bytes, is_answer: bool = False) -> bytes:
    """A PING, or the answer to one."""
    return pack_head(8 << 8 | PING, ACK if is_answer else 0, 0) + payload


def goaway(last: int, code: ErrorCode, reason: str = "") -> bytes:
    """The connection ends; streams above `last` were not looked at."""
    text = reason.encode("ascii", "replace")
    return _pack_goaway((8 + len(text)) << 8 | GOAWAY, 0, 0, last, code) + text


def rst_stream(stream: int, code: ErrorCode) -> bytes:
    """The stream ends here."""
    return _pack_number(4 << 8 | RST_STREAM, 0, stream, code)


def window_update(stream: int, increment: int) -> bytes:
    """The client may send that much more."""
    return _pack_number(4 << 8 | WINDOW_UPDATE, 0, stream, increment)


def headers(stream: int, block: bytes, is_end: bool, frame_size: int) -> bytes:
    """A header block in one HEADERS frame, and as many CONTINUATION frames as it needs."""
    end = END_STREAM if is_end else 0
    if len(block) <= frame_size:
        return pack_head(len(block) << 8 | HEADERS, END_HEADERS | end, stream) + block
    out: list[bytes] = []
    for start in range(0, len(block), frame_size):
        piece = block[start : start + frame_size]
        flags = (END_HEADERS if start + frame_size >= len(block) else 0) | (0 if start else end)
        out += (pack_head(len(piece) << 8 | (CONTINUATION if start else HEADERS), flags, stream), piece)
    return b"".join(out)

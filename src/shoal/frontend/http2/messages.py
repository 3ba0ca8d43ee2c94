"""The messages of gRPC inside the data of a stream: a flag, a length, and the bytes, cut anywhere by frames."""

import zlib
from collections.abc import Iterator
from typing import Final

from shoal.frontend.rpc import Code

PREFIX: Final = 5
_WINDOW_BITS: Final = {b"gzip": 31, b"deflate": 15}


class Refused(Exception):
    """The call cannot go on, and its client is told so."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code


class Messages:
    """The messages of one call as they come in."""

    __slots__ = ("_buffer", "_encoding", "_is_compressed", "_limit", "_missing", "held")

    def __init__(self, encoding: bytes, limit: int) -> None:
        self._encoding = encoding
        self._limit = limit
        self._buffer = bytearray()  # the prefix while it is not whole, then the message
        self._missing = -1  # bytes of the message still to come; negative while the prefix is not whole
        self._is_compressed = False
        self.held = 0  # bytes that are part of a message not whole yet

    def feed(self, data: bytes | memoryview) -> Iterator[bytes]:
        """The messages that are whole with this data; raises `Refused` after those before the bad one."""
        at, size = 0, len(data)
        buffer = self._buffer
        while at < size:
            if self._missing < 0:
                stop = min(size, at + PREFIX - len(buffer))
                buffer += data[at:stop]
                at = stop
                if len(buffer) < PREFIX:
                    break
                self._open()
            stop = min(size, at + self._missing)
            buffer += data[at:stop]
            self._missing -= stop - at
            at = stop
            if not self._missing:
                message = bytes(buffer)
                buffer.clear()
                self._missing = -1
                self.held = 0
                yield decompress(message, self._encoding, self._limit) if self._is_compressed else message
        self.held = len(buffer) + (PREFIX if self._missing >= 0 else 0)

    def _open(self) -> None:
        flag, size = self._buffer[0], int.from_bytes(self._buffer[1:PREFIX], "big")
        self._buffer.clear()
        check_prefix(flag, size, self._encoding, self._limit)
        self._is_compressed = flag == 1
        self._missing = size


def check_prefix(flag: int, size: int, encoding: bytes, limit: int) -> None:
    """Refuse what a prefix may not say."""
    if flag > 1:
        raise Refused(Code.INTERNAL, f"a message begins with the flag {flag}; 0 and 1 are known")
    if flag and encoding == b"identity":
        raise Refused(Code.INTERNAL, "a message is compressed, and no grpc-encoding said how")
    if size > limit:
        raise Refused(Code.RESOURCE_EXHAUSTED, f"a message of {size} bytes is larger than the {limit} allowed")


def decompress(message: bytes, encoding: bytes, limit: int) -> bytes:
    """Decompress within the limit."""
    engine = zlib.decompressobj(_WINDOW_BITS[encoding])
    try:
        out = engine.decompress(message, limit + 1)
    except zlib.error as error:
        raise Refused(Code.INTERNAL, f"a message is not {encoding.decode()}: {error}") from None
    if len(out) > limit:
        raise Refused(Code.RESOURCE_EXHAUSTED, f"a message decompresses to more than the {limit} bytes allowed")
    if not engine.eof or engine.unused_data:
        raise Refused(Code.INTERNAL, f"a message is not whole {encoding.decode()}")
    return out

"""The messages of gRPC inside the data of a stream: a flag, a length, and the bytes, cut anywhere by frames."""

import zlib
from collections.abc import Iterator
from typing import Final

from shoal.frontend.fragments import Fragments
from shoal.frontend.rpc import Code

PREFIX: Final = 5
MAX_PIECES: Final = 64  # of a message that are kept apart whatever their size
LARGE: Final = 64 * 1024  # bytes of a message that is better copied once than joined first
SMALL: Final = 2048  # bytes that a piece has at least on the average, where there are more
_WINDOW_BITS: Final = {b"gzip": 31, b"deflate": 15}


class Refused(Exception):
    """The call cannot go on, and its client is told so."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code


class Messages:
    """The messages of one call as they come in. Pieces are looked at where they came, and joined once all are there.

    `in_pieces`: large ones are not joined.
    """

    __slots__ = (
        "_encoding",
        "_in_pieces",
        "_is_compressed",
        "_limit",
        "_pieces",
        "_prefix",
        "_size",
        "held",
        "missing",
    )

    def __init__(self, encoding: bytes, limit: int, *, in_pieces: bool = False) -> None:
        self._in_pieces = in_pieces
        self._encoding = encoding
        self._limit = limit
        self._prefix = b""  # as far as it came
        self._pieces: list[bytes | memoryview] = []
        self._size = 0  # of the pieces
        self.missing = -1  # bytes of the message still to come; negative while the prefix is not whole
        self._is_compressed = False
        self.held = 0  # bytes that are part of a message not whole yet

    def feed(self, data: bytes | memoryview) -> Iterator[bytes | Fragments]:
        """The messages that are whole with this data; raises `Refused` after those before the bad one."""
        at, size = 0, len(data)
        while at < size:
            if self.missing < 0:
                stop = min(size, at + PREFIX - len(self._prefix))
                self._prefix += data[at:stop]
                at = stop
                if len(self._prefix) < PREFIX:
                    break
                self._open()
            stop = min(size, at + self.missing)
            if stop > at:
                self._add(data[at:stop], stop - at)
                at = stop
            if not self.missing:
                pieces, whole = self._pieces, self._size
                self._pieces = []
                self._size, self.missing, self.held = 0, -1, 0
                if self._is_compressed:
                    yield decompress(b"".join(pieces), self._encoding, self._limit)
                elif self._in_pieces and whole >= LARGE:
                    yield Fragments(pieces)
                else:
                    yield b"".join(pieces)
        self.held = self._size + (PREFIX if self.missing >= 0 else len(self._prefix))

    def extend(self, data: bytes | memoryview, size: int) -> None:
        """Take data that is all of it the middle of a message."""
        self._add(data, size)
        self.held += size

    def _open(self) -> None:
        flag, size = self._prefix[0], int.from_bytes(self._prefix[1:PREFIX], "big")
        self._prefix = b""
        check_prefix(flag, size, self._encoding, self._limit)
        self._is_compressed = flag == 1
        self.missing = size

    def _add(self, piece: bytes | memoryview, size: int) -> None:
        """Keep a piece; many small ones would hold far more memory than they have bytes, and are joined."""
        pieces = self._pieces
        pieces.append(piece)
        self._size += size
        self.missing -= size
        if len(pieces) > MAX_PIECES and self._size < SMALL * len(pieces):
            self._pieces = [b"".join(pieces)]


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

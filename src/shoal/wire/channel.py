"""Frames on a byte stream: a message and the data behind it, sent without joining, cut out of the stream again.

A frame is twelve bytes (length of the message, length of the data, little-endian), the message, the data. A stream that
ends between frames has ended; one that ends inside a frame is a dead peer, and the two are told apart.
"""

import socket
import struct
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from shoal.errors import ProtocolError
from shoal.payload import Buffer, total
from shoal.wire.messages import encode

HEAD: Final = struct.Struct("<IQ")
HEAD_SIZE: Final = 12  # of HEAD: the compiler does not see its `size`
MAX_MESSAGE: Final = 64 * 2**20
MAX_DATA: Final = 4 * 2**30
READ_SIZE: Final = 120 * 1024  # from 128 KiB on, malloc may map memory anew for every read
JOIN_BELOW: Final = 64 * 1024  # bytes that are cheaper copied once than gathered
Frame = tuple[memoryview, memoryview]  # the message, the data behind it


class PeerDied(ProtocolError):
    """The stream ended in the middle of a frame."""


def frame(message: msgspec.Struct, data: Sequence[Buffer] = ()) -> list[Buffer]:
    """Give the buffers of one frame; data is referred to, not copied."""
    head = encode(message)
    size = total(data) if data else 0
    return [HEAD.pack(len(head), size) + head, *data]


class FrameReader:
    """Cuts frames out of bytes as they come; keeps a part of one until the rest is there."""

    def __init__(self, max_message: int = MAX_MESSAGE, max_data: int = MAX_DATA) -> None:
        self._max_message = max_message
        self._max_data = max_data
        self._buffer = bytearray()  # a frame begun: grows to its head, then has its full size at once
        self._filled = 0
        self._needed = HEAD_SIZE

    @property
    def is_inside_frame(self) -> bool:
        """Whether the stream may not end here."""
        return self._filled > 0

    def take_whole(self, data: bytes) -> Frame | None:
        """Give the frame that this is, whole and alone; else None, and nothing is taken: it has to be fed."""
        if self._filled or len(data) < HEAD_SIZE:
            return None
        message, size = self._sizes(data)
        start = HEAD_SIZE + message
        if start + size != len(data):
            return None
        view = memoryview(data)
        return view[HEAD_SIZE:start], view[start:]

    def feed(self, data: bytes | memoryview) -> Iterator[Frame]:
        """Take more of the stream; give every frame that is complete now. Views are valid while they are held."""
        view = memoryview(data)
        while len(view) or (self._filled and self._filled == self._needed):
            if not self._filled and len(view) >= HEAD_SIZE:  # the usual case: whole frames in one read
                message, size = self._sizes(view)
                end = HEAD_SIZE + message + size
                if len(view) >= end:
                    yield view[HEAD_SIZE : HEAD_SIZE + message], view[HEAD_SIZE + message : end]
                    view = view[end:]
                    continue
            view = self._keep(view)
            if self._filled == self._needed:
                if self._needed == HEAD_SIZE:
                    message, size = self._sizes(self._buffer)
                    self._needed += message + size
                    self._buffer.extend(bytes(message + size))
                    if message + size:
                        continue
                yield self._complete()

    def _keep(self, view: memoryview) -> memoryview:
        if not self._filled:
            self._buffer = bytearray(HEAD_SIZE)
            self._needed = HEAD_SIZE
        count = min(len(view), self._needed - self._filled)
        self._buffer[self._filled : self._filled + count] = view[:count]
        self._filled += count
        return view[count:]

    def _complete(self) -> Frame:
        whole = memoryview(self._buffer)
        message = HEAD.unpack_from(whole)[0]
        self._buffer, self._filled, self._needed = bytearray(), 0, HEAD_SIZE
        return whole[HEAD_SIZE : HEAD_SIZE + message], whole[HEAD_SIZE + message :]

    def _sizes(self, view: memoryview | bytearray | bytes) -> tuple[int, int]:
        message, size = HEAD.unpack_from(view)
        if message > self._max_message or size > self._max_data:
            raise ProtocolError(
                f"a frame of {message} + {size} bytes is over the limit; the peer speaks something else"
            )
        return message, size


class BlockingChannel:
    """A worker's end: a blocking socket, one reader, any number of writers that take turns outside."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._reader = FrameReader()
        self._frames: Iterator[Frame] | None = None  # of the last read, where it was not just one

    def receive(self, *, wait: bool = True) -> Frame | None:
        """Give the next frame; None when the peer closed between frames. Frames own their bytes.

        Without `wait`, BlockingIOError says that none is there yet.
        """
        while True:
            if (got := self.rest()) is not None:
                return got
            data = self._socket.recv(READ_SIZE, 0 if wait else socket.MSG_DONTWAIT)
            if not data:
                if self._reader.is_inside_frame:
                    raise PeerDied("the stream ended in the middle of a frame")
                return None
            if (got := self._reader.take_whole(data)) is not None:
                return got
            self._frames = self._reader.feed(data)

    def rest(self) -> Frame | None:
        """Give the next frame of what was received already; None where there is none whole."""
        if self._frames is not None:
            for got in self._frames:
                return got
            self._frames = None
        return None

    def send(self, message: msgspec.Struct, data: Sequence[Buffer] = ()) -> None:
        """Send one frame whole; small ones in one piece, of large ones the kernel gathers the buffers."""
        buffers = frame(message, data)
        size = total(buffers)
        if size < JOIN_BELOW:
            self._socket.sendall(b"".join(buffers))
            return
        sent = self._socket.sendmsg(buffers[:512])
        if sent == size:
            return
        for buffer in buffers:  # a full socket buffer, or very many buffers: the slow way for the rest
            view = memoryview(buffer)
            if sent >= len(view):
                sent -= len(view)
                continue
            self._socket.sendall(view[sent:])
            sent = 0

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

"""A worker's end of the link to the front process: commands in, reports out."""

import socket
import threading
from collections.abc import Sequence

import msgspec

from shoal.errors import ProtocolError
from shoal.payload import Buffer
from shoal.wire.channel import BlockingChannel, Frame
from shoal.wire.messages import Command, decode_command


class Inbox:
    """Commands as they come; one thread reads them at a time."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self._channel = BlockingChannel(sock)

    def receive(self) -> tuple[Command, memoryview] | None:
        """Wait for the next command; None once the stream has ended."""
        return self._next(wait=True)

    def poll(self) -> tuple[Command, memoryview] | None:
        """Take the next command if one is there."""
        try:
            return self._next(wait=False)
        except BlockingIOError:
            return None

    def rest(self) -> tuple[Command, memoryview] | None:
        """Take the next command if it came with those before: the socket is not asked."""
        return self._decoded(self._channel.rest())

    def interrupt(self) -> None:
        """End the stream for the thread that waits for it; from any thread."""
        self.socket.shutdown(socket.SHUT_RD)

    def _next(self, *, wait: bool) -> tuple[Command, memoryview] | None:
        try:
            frame = self._channel.receive(wait=wait)
        except ConnectionResetError:
            return None
        return self._decoded(frame)

    def _decoded(self, frame: Frame | None) -> tuple[Command, memoryview] | None:
        if frame is None:
            return None
        try:
            return decode_command(frame[0]), frame[1]
        except msgspec.DecodeError as error:
            raise ProtocolError(f"no command: {error}") from error


class Outbox:
    """Reports from any thread, one at a time; once nobody reads them they are dropped."""

    def __init__(self, sock: socket.socket) -> None:
        self._channel = BlockingChannel(sock)
        self._lock = threading.Lock()
        self.is_gone = False

    def send(self, message: msgspec.Struct, data: Sequence[Buffer] = ()) -> None:
        """Send one frame whole."""
        with self._lock:
            if self.is_gone:
                return
            try:
                self._channel.send(message, data)
            except (BrokenPipeError, ConnectionResetError):
                self.is_gone = True  # the reading side sees the end of the stream and leaves

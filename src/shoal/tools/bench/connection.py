"""One keep-alive connection of a load process: sends a request, knows when its answer is whole.

Answers with a length, the usual ones, are cut out by hand; chunked ones and those that end with the connection go
through llhttp's parser. The body is counted and dropped.
"""

import asyncio
import re
from typing import Any, Protocol

import httptools

_LENGTH = re.compile(rb"(?i)\r\ncontent-length:[ \t]*(\d+)[ \t]*\r\n")
_CHUNKED = re.compile(rb"(?i)\r\ntransfer-encoding:")
_CLOSE = re.compile(rb"(?i)\r\nconnection:[ \t]*close")
_TIMING = re.compile(rb"(?i)\r\nserver-timing:[ \t]*([^\r]*)")
LARGEST_HEAD = 256 * 1024
BODILESS = (b"204", b"304")


class Desk(Protocol):
    """Who uses connections."""

    def ready(self, connection: "Connection") -> None:
        """A new connection can be used."""
        ...

    def answered(self, connection: "Connection", status: bytes, head: bytes) -> None:
        """The answer is whole; the connection can be used again if it `is_open`."""
        ...

    def lost(self, connection: "Connection", error: BaseException | None) -> None:
        """The connection is gone, perhaps with a request."""
        ...


class Connection(asyncio.Protocol):
    """One connection; at most one request at a time."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        self._head = b""
        self._rest = 0  # bytes of the body still to come
        self._parser: Any = None
        self._ends_with_connection = False
        self.is_open = False
        self.is_busy = False
        self.started = 0.0  # when the request at hand was due
        self.sent = 0.0
        self.problem = ""  # why we closed it ourselves

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Be ready."""
        self._transport = transport  # type: ignore[assignment]  # a stream's
        self.is_open = True
        self._desk.ready(self)

    def send(self, request: bytes, started: float, now: float) -> None:
        """Send a request that was due at `started`."""
        assert self._transport is not None
        self.is_busy = True
        self.started = started
        self.sent = now
        self._transport.write(request)

    def close(self, problem: str = "") -> None:
        """Close it; a request at hand fails with `problem`."""
        self.problem = problem
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take bytes of the answer."""
        if self._rest:
            self._rest -= len(data)
            if self._rest <= 0:
                self._whole(is_clean=self._rest == 0)
        elif self._parser is not None:
            self._parse(data)
        else:
            self._begin(self._buffer + data if self._buffer else data)

    def connection_lost(self, error: Exception | None) -> None:
        """Say so; an answer that ends with the connection is whole now."""
        self.is_open = False
        if self._ends_with_connection and error is None and self.is_busy:
            self._ends_with_connection = False
            self._whole()
        self._desk.lost(self, error)

    def _begin(self, data: bytes) -> None:
        """Look for the end of the head, and then of the body."""
        end = data.find(b"\r\n\r\n")
        if end < 0:
            self._buffer = data
            if len(data) > LARGEST_HEAD or not data.startswith(b"HTTP/"[: len(data)]):
                self.close("not HTTP")
            return
        if not self.is_busy or not data.startswith(b"HTTP/1."):
            self.close("not HTTP")
            return
        self._buffer = b""
        head = data[: end + 2]
        status = head[9:12]
        if status[:1] == b"1":
            if rest := data[end + 4 :]:
                self._begin(rest)
            return
        self._head = head
        if status in BODILESS:
            self._whole(is_clean=len(data) == end + 4)
        elif (found := _LENGTH.search(head)) and not _CHUNKED.search(head):
            missing = end + 4 + int(found[1]) - len(data)
            if missing <= 0:
                self._whole(is_clean=missing == 0)
            else:
                self._rest = missing
        else:
            self._ends_with_connection = not _CHUNKED.search(head)
            self._parser = httptools.HttpResponseParser(self)
            self._parse(data)

    def _parse(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.close("not HTTP")

    def on_message_complete(self) -> None:
        """Hear from the parser that the answer is whole."""
        self._ends_with_connection = False
        self._whole()

    def _whole(self, *, is_clean: bool = True) -> None:
        head, self._head = self._head, b""
        self._parser = None
        self._rest = 0
        self.is_busy = False
        if not is_clean or (b"lose" in head and _CLOSE.search(head)) or head.startswith(b"HTTP/1.0"):
            self.is_open = False
            if self._transport is not None:
                self._transport.close()
        self._desk.answered(self, head[9:12], head)


def timing_of(head: bytes) -> str:
    """Give what a Server-Timing header says; empty without one."""
    found = _TIMING.search(head)
    return found[1].decode("latin-1") if found else ""

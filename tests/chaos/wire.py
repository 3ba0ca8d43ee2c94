"""A client of HTTP that hears everything: an answer nobody asked for, a piece too many, a connection that ends."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable
from typing import cast

import httptools

from tests.chaos.requests import CUT, NO_ANSWER, Ask, End

HOST = "127.0.0.1"
WITHIN = 60.0  # seconds in which every request must have ended
BOUNDARY = "chaos-7f3b"


class Wire(asyncio.Protocol):
    """One connection. One request at a time; whatever comes at another time is told to `on_surplus`."""

    def __init__(self, on_surplus: Callable[[str], None]) -> None:
        self._on_surplus = on_surplus
        self._parser = httptools.HttpResponseParser(self)
        self._answer: asyncio.Future[End] | None = None
        self._transport: asyncio.Transport | None = None
        self._body = bytearray()
        self._has_hint = False
        self._closed = asyncio.get_running_loop().create_future()
        self.received = 0
        self.token = ""  # of the last request
        self.keeps = True  # another request may follow

    @classmethod
    async def open(cls, port: int, on_surplus: Callable[[str], None], *, small_buffer: bool = False) -> "Wire":
        """Connect; with `small_buffer` the kernel keeps little for a client that reads slowly."""
        sock = socket.socket()
        if small_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        sock.setblocking(False)
        loop = asyncio.get_running_loop()
        try:
            await loop.sock_connect(sock, (HOST, port))
            _, wire = await loop.create_connection(lambda: cls(on_surplus), sock=sock)
        except BaseException:
            sock.close()
            raise
        return wire

    async def ask(self, request: bytes, token: str, within: float = WITHIN) -> End:
        """Send a whole request and wait for the whole answer."""
        self.expect(token)
        self.write(request)
        return await self.answer(within)

    def expect(self, token: str) -> None:
        """From here on an answer may come."""
        assert self._answer is None or self._answer.done(), "one request at a time"
        self.token = token
        self._body.clear()
        self._has_hint = False
        self._answer = asyncio.get_running_loop().create_future()
        if self._closed.done():
            self._answer.set_result(End(CUT, b"the connection was closed before the request"))

    async def answer(self, within: float = WITHIN) -> End:
        """Wait for it."""
        assert self._answer is not None
        done, _ = await asyncio.wait({self._answer}, timeout=within)
        if done:
            return self._answer.result()
        self.abort()
        return End(NO_ANSWER)

    @property
    def is_answered(self) -> bool:
        return self._answer is not None and self._answer.done()

    def write(self, data: bytes) -> None:
        """Send bytes, whatever they mean."""
        if self._transport is not None:
            self._transport.write(data)

    def pause(self) -> None:
        """Read nothing for a while."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read again."""
        if self._transport is not None:
            self._transport.resume_reading()

    async def close(self, within: float = 10.0) -> None:
        """Leave in good order: what still comes is surplus."""
        if self._transport is not None:
            self._transport.close()
        await asyncio.wait({self._closed}, timeout=within)

    async def ended(self, within: float = 10.0) -> bool:
        """Wait for the server to close; whether it did."""
        done, _ = await asyncio.wait({self._closed}, timeout=within)
        return bool(done)

    def abort(self, *, reset: bool = False) -> None:
        """Leave at once, with a reset where that is wanted."""
        if self._transport is None:
            return
        if reset:
            sock = self._transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    # what the connection says

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.received += len(data)
        if self._answer is None or self._answer.done():
            self.keeps = False
            self._on_surplus(f"bytes after the answer to {self.token}: {data[:200]!r}")
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._end(End(CUT, f"no HTTP: {error}: {data[:80]!r}".encode()))
            self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self.keeps = False
        self._end(End(CUT, b"the connection ended"))
        if not self._closed.done():
            self._closed.set_result(None)

    # what the parser says

    def on_message_begin(self) -> None:
        if self._answer is None or self._answer.done():
            self._on_surplus(f"another answer after the one to {self.token}")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._has_hint = self._has_hint or (name.lower() == b"retry-after" and int(value) >= 1)

    def on_body(self, data: bytes) -> None:
        self._body += data

    def on_message_complete(self) -> None:
        self.keeps = self.keeps and self._parser.should_keep_alive()
        self._end(End(self._parser.get_status_code(), bytes(self._body), self._has_hint))

    def _end(self, end: End) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(end)


def post(ask: Ask, *, close: bool = False, form: bool = False) -> bytes:
    """Write the request down."""
    body, kind = (_form(ask), f"multipart/form-data; boundary={BOUNDARY}") if form else (ask.body, "")
    lines = [f"POST {ask.path} HTTP/1.1", "Host: chaos", f"Content-Length: {len(body)}"]
    lines += [f"Content-Type: {kind}"] if kind else []
    lines += [f"X-Request-Timeout-Ms: {ask.timeout_ms}"] if ask.timeout_ms else []
    lines += ["Connection: close"] if close else []
    return "\r\n".join([*lines, "", ""]).encode() + body


def _form(ask: Ask) -> bytes:
    parts = b""
    for name, data in (("head", ask.head), ("data", ask.data)):
        parts += f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"; filename="{name}"\r\n'.encode()
        parts += b"Content-Type: application/octet-stream\r\n\r\n" + data + b"\r\n"
    return parts + f"--{BOUNDARY}--\r\n".encode()


async def call(port: int, method: str, path: str, within: float = WITHIN) -> End:
    """Ask something of the management API, on a connection of its own."""
    with contextlib.suppress(OSError):
        wire = await Wire.open(port, lambda _: None)
        request = f"{method} {path} HTTP/1.1\r\nHost: chaos\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        end = await wire.ask(request.encode(), path, within)
        await wire.close()
        return end
    return End(CUT, b"no connection")

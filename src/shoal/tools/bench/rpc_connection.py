"""One HTTP/2 connection of a load process that makes gRPC calls: one at a time, and knows when its answer is whole.

Bodies are dropped unless somebody wants them. What the server allows us to send is kept to; what we allow it is without
end.
"""

import asyncio
from typing import Protocol
from urllib.parse import unquote

from shoal.frontend.http2 import frames, hpack
from shoal.frontend.rpc import Code

REFILL = 2**29  # bytes after which the connection's window is made whole again
LARGEST_BLOCK = 256 * 1024
LAST_STREAM = 2**31 - 3
HELLO = (
    frames.PREFACE
    + frames.settings({frames.ENABLE_PUSH: 0, frames.INITIAL_WINDOW_SIZE: frames.LARGEST})
    + frames.window_update(0, frames.LARGEST - frames.DEFAULT_WINDOW)
)


class RpcDesk(Protocol):
    """Who uses connections."""

    def ready(self, connection: "RpcConnection") -> None:
        """A new connection can be used."""
        ...

    def answered(self, connection: "RpcConnection", status: bytes, head: bytes) -> None:
        """The answer is whole; the connection can be used again if it `is_open`."""
        ...

    def lost(self, connection: "RpcConnection", error: BaseException | None) -> None:
        """The connection is gone, perhaps with a request."""
        ...


class RpcConnection(asyncio.Protocol):
    """One connection; at most one call at a time."""

    def __init__(self, desk: RpcDesk, block: bytes, *, keeps: bool = False) -> None:
        self._desk = desk
        self._block = block  # the header block of every call
        self._keeps = keeps
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        self._decoder = hpack.Decoder(4096, LARGEST_BLOCK)
        self._stream = -1
        self._pending = memoryview(b"")  # of the request at hand, not sent yet
        self._window = frames.DEFAULT_WINDOW
        self._initial = frames.DEFAULT_WINDOW
        self._stream_window = 0
        self._frame = frames.DEFAULT_FRAME
        self._received = 0
        self._headers = b""  # of a block that goes on in the next frame
        self._ends = False  # that block ends the stream
        self._is_greeted = False
        self._is_leaving = False
        self.body = bytearray()
        self.message = ""
        self.is_open = False
        self.is_busy = False
        self.started = 0.0
        self.sent = 0.0
        self.problem = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet, and be ready."""
        self._transport = transport  # type: ignore[assignment]  # a stream's
        self._write(HELLO)
        self.is_open = True
        self._desk.ready(self)

    def send(self, request: bytes, started: float, now: float) -> None:
        """Make a call that was due at `started`; the request is a message with its five bytes before it."""
        self.is_busy = True
        self.started, self.sent = started, now
        self._stream += 2
        self._stream_window = self._initial
        self.body.clear()
        self._write(frames.headers(self._stream, self._block, False, frames.DEFAULT_FRAME))
        self._pending = memoryview(request)
        self._pump()

    def close(self, problem: str = "") -> None:
        """Close it; a call at hand fails with `problem`."""
        self.problem = problem
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        """Say so."""
        self.is_open = False
        self._desk.lost(self, error)

    def data_received(self, data: bytes) -> None:
        """Take frames."""
        buffer = self._buffer + data if self._buffer else data
        at, end = 0, len(buffer)
        try:
            while end - at >= frames.HEAD_SIZE:
                number, flags, stream = frames.head_at(buffer, at)
                size, kind = number >> 8, number & 0xFF
                if size > frames.DEFAULT_FRAME or (not self._is_greeted and kind != frames.SETTINGS):
                    raise frames.Fault(frames.ErrorCode.PROTOCOL_ERROR, "no HTTP/2")
                self._is_greeted = True
                if end - at - frames.HEAD_SIZE < size:
                    break
                at += frames.HEAD_SIZE
                self._take(kind, flags, stream & frames.LARGEST, buffer[at : at + size])
                at += size
        except (frames.Fault, IndexError):
            self.close("not HTTP/2")
            return
        self._buffer = buffer[at:]

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == frames.DATA:
            self._on_data(flags, stream, payload)
        elif kind == frames.HEADERS:
            self._headers = _bare(flags, payload)
            self._ends = bool(flags & frames.END_STREAM)
            self._on_block(flags, stream)
        elif kind == frames.CONTINUATION:
            self._headers += payload
            self._on_block(flags, stream)
        elif kind == frames.SETTINGS and not flags & frames.ACK:
            self._on_settings(payload)
        elif kind == frames.WINDOW_UPDATE:
            self._on_window(stream, int.from_bytes(payload, "big") & frames.LARGEST)
        elif kind == frames.PING and not flags & frames.ACK:
            self._write(frames.ping(payload, is_answer=True))
        elif kind == frames.RST_STREAM and stream == self._stream and self.is_busy:
            self._whole("stream reset")
        elif kind == frames.GOAWAY:
            self._is_leaving = True
            if not self.is_busy:
                self._leave()

    def _on_data(self, flags: int, stream: int, payload: bytes) -> None:
        self._received += len(payload)
        if self._received >= REFILL:
            self._write(frames.window_update(0, self._received))
            self._received = 0
        if self._keeps and stream == self._stream:
            self.body += payload
        if flags & frames.END_STREAM and stream == self._stream and self.is_busy:
            self._whole("no grpc-status")

    def _on_block(self, flags: int, stream: int) -> None:
        if not flags & frames.END_HEADERS:
            if len(self._headers) > LARGEST_BLOCK:
                raise frames.Fault(frames.ErrorCode.PROTOCOL_ERROR, "a head without end")
            return
        fields = dict(self._decoder.decode(self._headers) or [])
        if not self._ends or stream != self._stream or not self.is_busy:
            return
        status = fields.get(b"grpc-status", b"")
        if status.isdigit():
            self.message = " ".join(unquote(fields.get(b"grpc-message", b"").decode("utf-8", "replace")).split())
            self._whole(Code(int(status)).name if int(status) in set(Code) else f"status {int(status)}")
        else:
            self._whole(f"HTTP {fields.get(b':status', b'?').decode('latin-1')}")

    def _on_settings(self, payload: bytes) -> None:
        for at in range(0, len(payload) - 5, 6):
            name, value = int.from_bytes(payload[at : at + 2], "big"), int.from_bytes(payload[at + 2 : at + 6], "big")
            if name == frames.INITIAL_WINDOW_SIZE:
                self._stream_window += value - self._initial
                self._initial = value
            elif name == frames.MAX_FRAME_SIZE:
                self._frame = value
        self._write(frames.SETTINGS_ACK)
        self._pump()

    def _on_window(self, stream: int, more: int) -> None:
        if not stream:
            self._window += more
        elif stream == self._stream:
            self._stream_window += more
        self._pump()

    def _pump(self) -> None:
        """Send as much of the request as the server takes now."""
        while self._pending and (size := min(len(self._pending), self._window, self._stream_window, self._frame)) > 0:
            piece, self._pending = self._pending[:size], self._pending[size:]
            self._window -= size
            self._stream_window -= size
            flags = 0 if self._pending else frames.END_STREAM
            self._write(frames.pack_head(size << 8 | frames.DATA, flags, self._stream) + bytes(piece))

    def _whole(self, status: str) -> None:
        self.is_busy = False
        if self._pending:  # it answered before it had everything; the rest is not sent
            self._pending = memoryview(b"")
            self._write(frames.rst_stream(self._stream, frames.ErrorCode.CANCEL))
        if self._is_leaving or self._stream >= LAST_STREAM:
            self._leave()
        self._desk.answered(self, b"200" if status == "OK" else status.encode(), b"")

    def _leave(self) -> None:
        self.is_open = False
        if self._transport is not None:
            self._transport.close()

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)


def _bare(flags: int, payload: bytes) -> bytes:
    """A HEADERS frame's block without padding and priority."""
    if flags & frames.PADDED:
        payload = payload[1 : len(payload) - payload[0]]
    return payload[5:] if flags & frames.WITH_PRIORITY else payload

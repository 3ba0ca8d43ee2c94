"""One HTTP/2 connection of gRPC clients, from its preface to its end.

It never waits: everything is a callback of the event loop, and time is the coarse clock of the hub, moved by its
sweep. A head that was seen before is looked up by its bytes, a message that is whole in its frame is one slice, and
all answers that are ready when a read is through leave in one write.
"""

import asyncio
import logging
import math
import re
from typing import Final, cast

from shoal.frontend.http2.age import Age
from shoal.frontend.http2.control import ARE_YOU_THERE, FAREWELL
from shoal.frontend.http2.deadlines import Deadlines
from shoal.frontend.http2.frames import (
    ACK,
    CONTINUATION,
    DEFAULT_WINDOW,
    HEAD_SIZE,
    HEADER_TABLE_SIZE,
    INITIAL_WINDOW_SIZE,
    LARGEST,
    MAX_CONCURRENT_STREAMS,
    MAX_FRAME_SIZE,
    MAX_HEADER_LIST_SIZE,
    PREFACE,
    SETTINGS,
    ErrorCode,
    Fault,
    goaway,
    head_at,
    ping,
    settings,
    window_update,
)
from shoal.frontend.http2.limits import Http2Limits
from shoal.frontend.http2.streams import Streams
from shoal.frontend.hub import Hub, address_of
from shoal.frontend.rpc import Services

MAX_PARTS: Final = 64  # pieces of a frame kept apart before they are joined
MUCH: Final = 32 * 1024  # bytes that are not copied only because a frame was begun before them
MAX_METHOD: Final = 10  # letters of a method of HTTP/1.1
LINGER_TIME: Final = 2.0
LINGER_BYTES: Final = 16 * 2**20
REFUSED_HTTP_1: Final = b"this port speaks gRPC, over HTTP/2\n"
HTTP_1_ANSWER: Final = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b"
    % (len(REFUSED_HTTP_1), REFUSED_HTTP_1)
)

# What a connection is doing. Up to OPEN it expects something definite; after that it listens no more.
NEW: Final = 0
GREETED: Final = 1
OPEN: Final = 2
LINGERING: Final = 3
CLOSED: Final = 4

_looks_like_http_1 = re.compile(rb"[A-Z]{3,10} [^\r\n]*").match

log = logging.getLogger("shoal.http2")


class Http2Connection(Streams, asyncio.Protocol):
    """The server side of one connection."""

    __slots__ = ("_age", "_have", "_is_asked", "_need", "_parts", "_phase", "deadline")

    def __init__(self, services: Services, limits: Http2Limits, hub: Hub, deadlines: Deadlines) -> None:
        super().__init__(services, limits, hub, deadlines)
        self._phase = NEW
        self._parts: list[bytes] = []  # of a frame that is not whole
        self._have = self._need = 0
        self._is_asked = False  # whether the client is there, and it has not answered
        self.deadline = math.inf
        self._age: Age | None = None

    # The transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Join the hub, or leave when it is full."""
        self._transport = cast(asyncio.Transport, transport)
        self.peer = address_of(transport.get_extra_info("peername"))
        is_full = len(self.hub.connections) >= self._limits.max_connections
        self.client = self.hub.join(self, transport.get_extra_info("peername"))
        self.deadline = self.hub.now + self._limits.head_timeout
        if is_full or self.hub.draining:
            self.hub.refused += 1
            self._close()
        elif self._limits.max_age:
            self._age = Age(self, self._deadlines, self._limits.max_age, self._limits.max_age_grace)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the services that nobody waits any more."""
        self._phase = CLOSED
        self._is_closed = True
        self._is_leaving = False
        self.hub.leave(self)
        if self._age is not None:
            self._age.gone()
        for call in list(self._calls.values()):
            self._drop(call)
        self._parts.clear()
        self.out.clear()

    def data_received(self, data: bytes) -> None:
        """Take what came in, and write all that is ready then."""
        if self._parts:
            self._parts.append(data)
            self._have += len(data)
            if self._have < self._need:
                if len(self._parts) > MAX_PARTS:
                    self._parts = [b"".join(self._parts)]
                return
            if self._phase == OPEN and len(data) > MUCH and self._need > HEAD_SIZE:
                self._end_frame(data)
                return
            data = b"".join(self._parts)
            self._parts.clear()
        if self._phase > OPEN:
            self._discard(len(data))
            return
        self._take(data, 0)

    def _take(self, data: bytes, at: int) -> None:
        self.is_awake = True
        try:
            self._read(data, self._begin(data) if self._phase == NEW else at)
        except Fault as fault:
            self._fail(fault.code, str(fault))
        except Exception:
            log.exception("the connection of %s failed", self.peer)
            self._fail(ErrorCode.INTERNAL_ERROR, "the server failed; its log says why")
        self.flush()

    def _end_frame(self, data: bytes) -> None:
        """Take the rest of a frame out of much that came in; what follows is read where it lies."""
        at = len(data) - (self._have - self._need)
        self._parts[-1] = data[:at]
        frame = b"".join(self._parts)
        self._parts.clear()
        self._take(frame, 0)
        if self._phase > OPEN:
            self._discard(len(data) - at)
        elif at < len(data):
            self._take(data, at)

    def eof_received(self) -> bool:
        """The client sends no more: no call of its can go on, for lack of windows and acknowledgements."""
        return False

    def hold(self, is_held: bool) -> None:
        """Read nothing for a while, or read on: what services take is out of their hands for now."""
        if self._phase == CLOSED or self._transport.is_closing():
            return
        if is_held:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    # Reading

    def _begin(self, data: bytes) -> int:
        """Look for the preface; says where the frames begin."""
        if data.startswith(PREFACE):
            self._phase = GREETED
            self._greet()
            return len(PREFACE)
        if PREFACE.startswith(data):
            self._keep(data, 0, len(PREFACE))
        elif data.isalpha() and len(data) <= MAX_METHOD:
            self._keep(data, 0, len(data) + 1)
        elif _looks_like_http_1(data) and not data.startswith(b"PRI "):
            self.put(HTTP_1_ANSWER)
            self._linger()
        else:
            self._close()
        return len(data)

    def _greet(self) -> None:
        limits = self._limits
        self.put(
            settings(
                {
                    HEADER_TABLE_SIZE: limits.header_table,
                    MAX_CONCURRENT_STREAMS: limits.max_streams,
                    INITIAL_WINDOW_SIZE: limits.stream_window,
                    MAX_FRAME_SIZE: limits.frame_size,
                    MAX_HEADER_LIST_SIZE: limits.max_header_list,
                }
            )
        )
        self.put(window_update(0, limits.connection_window - DEFAULT_WINDOW))

    def _read(self, data: bytes, at: int) -> None:
        """Take frame by frame."""
        size = len(data)
        largest = self._limits.frame_size
        while self._phase <= OPEN and at < size:
            begin = at + HEAD_SIZE
            if begin > size:
                self._keep(data, at, HEAD_SIZE)
                return
            word, flags, stream = head_at(data, at)
            length = word >> 8
            if length > largest:
                raise Fault(ErrorCode.FRAME_SIZE_ERROR, f"a frame of {length} bytes is larger than {largest}")
            end = begin + length
            if end > size:
                self._keep(data, at, end - at)
                return
            kind = word & 0xFF
            if self._block_stream and kind != CONTINUATION:
                raise Fault(ErrorCode.PROTOCOL_ERROR, "a frame stands inside a head")
            if self._phase == GREETED:
                if kind != SETTINGS or flags & ACK:
                    raise Fault(ErrorCode.PROTOCOL_ERROR, "the first frame is not SETTINGS")
                self._phase = OPEN
            if kind <= CONTINUATION:
                _ROUTES[kind](self, data, begin, end, flags, stream & LARGEST)
            else:
                self._on_unknown(data, begin, end, flags, stream)
            at = end
        self._stamp()

    def _keep(self, data: bytes, at: int, need: int) -> None:
        """Wait for the rest of a frame."""
        self._parts.append(data[at:] if at else data)
        self._have, self._need = len(data) - at, need
        if self._phase == OPEN:
            self._stamp()
            self.deadline = min(self.deadline, self.hub.now + self._limits.message_timeout)

    def _stamp(self) -> None:
        """The client is there: give it time again."""
        limits, now = self._limits, self.hub.now
        self._is_asked = False
        if self._phase != OPEN:
            return
        if self._block_stream:  # its time runs from the first frame of the head
            self.deadline = min(self.deadline, now + limits.head_timeout)
        elif self._partial:
            self.deadline = min(self.deadline, now + limits.message_timeout)
        else:
            self.deadline = now + (limits.ping_after if self._calls else limits.idle_timeout)

    # The hub's side

    def expire(self, now: float) -> None:
        """A deadline passed: decide what the client did not do in time."""
        if self.write_deadline <= now:
            self._expire_writing(now)
        if self.deadline > now:
            return
        if self._phase in (LINGERING, CLOSED):
            self._transport.abort()
        elif self._phase < OPEN or self._block_stream or self._parts:
            self._fail(ErrorCode.PROTOCOL_ERROR, "the client began something and did not go on in time")
            self.flush()
        else:
            self._expire_open(now)

    def _expire_open(self, now: float) -> None:
        limits = self._limits
        stuck = [call for call in self._partial if call._stamp + limits.message_timeout <= now]
        for call in stuck:
            self.cancel(call)
        if self._partial:
            self.deadline = min(call._stamp for call in self._partial) + limits.message_timeout
        elif stuck:
            self.deadline = now + limits.ping_after
        elif not self._calls:
            self._fail(ErrorCode.NO_ERROR, "no call for a while")
            self.flush()
        elif self._is_asked:
            self._transport.abort()
        else:
            self._is_asked = True
            self.deadline = now + limits.ping_timeout
            self.put(ping(ARE_YOU_THERE))

    def finish(self) -> None:
        """Ask the client to begin no call here, then leave with the last one.

        What is under way to us is still taken: the answer to the ping says that nothing is any more.
        """
        if self._phase == OPEN:
            if not self._has_farewell and not self._is_leaving:
                self._has_farewell = True
                self.put(goaway(LARGEST, ErrorCode.NO_ERROR, "the server is leaving"))
                self.put(ping(FAREWELL))
        elif self._phase < OPEN:
            self._close()

    def abort(self) -> None:
        """Cut the connection."""
        self._transport.abort()

    # Ends

    def _leave(self) -> None:
        """No call begins any more; close when none is left."""
        if self._phase != OPEN:
            return
        if not self._is_leaving:
            self._is_leaving = True
            self.put(goaway(self._last, ErrorCode.NO_ERROR))
        if not self._calls:
            self._linger()

    def _fail(self, code: ErrorCode, reason: str) -> None:
        """End the connection for a reason, and drop its calls."""
        if self._phase > OPEN:
            return
        if code != ErrorCode.NO_ERROR:
            log.info("the connection of %s ends with %s: %s", self.peer, code.name, reason)
        self.put(goaway(self._last, code, reason))
        self._linger()

    def _linger(self) -> None:
        """Closing with unread input would reset the connection and destroy our last words: read on for a while."""
        self._phase = LINGERING
        self._is_leaving = False
        self._write()
        self._have = 0
        self._parts.clear()
        self.deadline = self.hub.now + LINGER_TIME
        for call in list(self._calls.values()):
            self._drop(call)
        self._is_closed = True
        if self._transport.can_write_eof():
            self._transport.write_eof()
        else:
            self._transport.close()

    def _discard(self, size: int) -> None:
        self._have += size
        if self._phase == LINGERING and self._have > LINGER_BYTES:
            self._close()

    def _close(self) -> None:
        self._write()
        self._phase = CLOSED
        self._is_closed = True
        self.deadline = self.hub.now + self._limits.write_timeout  # then it is cut, sent or not
        self._transport.close()


_ROUTES: Final = (
    Http2Connection._on_data,
    Http2Connection._on_headers,
    Http2Connection._on_priority,
    Http2Connection._on_rst_stream,
    Http2Connection._on_settings,
    Http2Connection._on_push_promise,
    Http2Connection._on_ping,
    Http2Connection._on_goaway,
    Http2Connection._on_window_update,
    Http2Connection._on_continuation,
)

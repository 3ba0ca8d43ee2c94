"""One HTTP/1.1 connection: bytes in, exchanges to the application, answers out.

It never waits: everything is a callback of the event loop, and time is the coarse clock of the hub, moved by its sweep.
What the bytes mean and which are refused is in `incoming.py`; here is when they are read, how long a client may take,
and how a connection ends.

One request of a connection is with the application at a time. What a client sends ahead of its answer is kept unparsed,
up to a limit, then reading stops. The parser sees bytes up to the next blank line only, so it never runs past the end
of a message, and large bodies do not pass through it.
"""

import asyncio
import math
from collections.abc import Callable
from typing import Final, cast

from shoal.frontend.exchange import STATUS_LINES, Exchange
from shoal.frontend.hub import HttpLimits, Hub, address_of, hung_up
from shoal.frontend.incoming import CONTINUE, MAX_STRANGE, MIN_RATE, SPENT, Incoming, Lend, Refused
from shoal.frontend.phase import BODY, BUSY, CHUNKED, CLOSED, HEAD, IDLE, LINGER, READY, SINK
from shoal.frontend.refusals import answer_for_defect, refusal, tell

__all__ = ["Application", "HttpLimits", "HttpProtocol", "Hub", "Lend"]

Application = Callable[[Exchange], None]

MIN_DRAINED: Final = 64 * 1024  # what a slow reader must take in one write_timeout
RESET_TIME: Final = 0.02  # after which a client that is gone has answered with a reset, if it is near
LINGER_TIME: Final = 5.0
LINGER_BYTES: Final = 64 * 2**20
LINGERING: Final = 64  # connections over the limit that get a lingering close; more are just closed


class HttpProtocol(Incoming, asyncio.BufferedProtocol):
    """The server side of one connection."""

    __slots__ = (
        "_app",
        "_eof",
        "_held",
        "_held_requests",
        "_is_tls",
        "_paused",
        "_raw",
        "_transport",
        "_unsent",
        "_view",
        "write_deadline",
    )

    def __init__(self, app: Application, limits: HttpLimits, lend: Lend, hub: Hub) -> None:
        super().__init__(limits, lend, hub)
        self._app = app
        self._raw = hub.received
        self._view = hub.received_view
        self.deadline = self.write_deadline = math.inf
        self.blocked = False  # the client does not read what it asked for,
        self._unsent = 0  # and this much of it waited when its time began
        self._is_tls = self._eof = self._paused = False
        self._held = bytearray()  # sent ahead of the answer, not parsed yet
        self._held_requests = 0

    # The transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Join the hub, or refuse when it is full."""
        transport = cast(asyncio.Transport, transport)
        self._transport = transport
        self.send = transport.write
        self.send_all = transport.writelines
        self._is_tls = transport.get_extra_info("sslcontext") is not None
        self._peer = address_of(transport.get_extra_info("peername"))
        hub = self.hub
        over = len(hub.connections) - self._limits.max_connections
        self._client = hub.join(self, transport.get_extra_info("peername"))
        self.deadline = hub.now + self._limits.idle_timeout
        if over >= 0 or hub.draining:
            hub.refused += 1
            self._refuse(503, f"the server has as many connections as it takes: {self._limits.max_connections}")
        if over >= LINGERING:
            self._close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Give back what was lent, and tell the application if it still works for this client."""
        working = self._phase == BUSY
        self._phase = CLOSED
        self.hub.leave(self)
        self._drop_body()
        self._held.clear()
        self._parser = SPENT  # the old one knows our callbacks: a cycle only the collector would find
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange._link = None
            on_gone, exchange.on_gone, exchange.on_drained = exchange.on_gone, None, None
            if working:
                tell(on_gone)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go: the shared buffer, or the rest of a large body's place."""
        return self._view if self._sink is None else self._sink[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Take what came in; the shared buffer is free again on return."""
        if self._sink is None:
            self._consume(self._raw, self._view, nbytes)
            return
        self._filled += nbytes
        if self._filled < self._length:
            self._stamp_body()
        else:
            self._close_sink()
            self._dispatch()

    def eof_received(self) -> bool:
        """The client sends no more. It may still wait for its answer, or be gone: TCP says the same in both cases.

        So the connection stays open while an answer is due. A client that is gone meets whatever we send with a reset:
        an interim 100, harmless to one that listens, makes the difference visible to the sweep.
        """
        if self._is_tls or not (self._phase == BUSY or self._held):
            return False
        self._eof = True
        self._after_eof()
        return True

    def pause_writing(self) -> None:
        """More is waiting to be sent than the transport likes."""
        self.blocked = True
        self._unsent = self._transport.get_write_buffer_size()
        self.write_deadline = self.hub.now + self._limits.write_timeout

    def resume_writing(self) -> None:
        """The client caught up."""
        self.blocked = False
        self.write_deadline = math.inf
        if self._phase == BUSY and self._exchange is not None:
            tell(self._exchange.on_drained)
        elif self._held:
            self.hub.soon(self._continue)

    # The hub's side

    def expire(self, now: float) -> None:
        """A deadline passed: decide what the client did not do in time."""
        if self.write_deadline <= now and not self._reads_on(now):
            self._transport.abort()
        elif self.deadline <= now:
            self._expire(self._phase)

    def finish(self) -> None:
        """Leave at once when idle, else after the answer that is due."""
        if self._phase == IDLE and not self._head_size and not self._held:
            self._close()
        elif self._exchange is not None:
            self._exchange._keep = False

    def abort(self) -> None:
        """Cut the connection."""
        self._transport.abort()

    def _expire(self, phase: int) -> None:
        if phase == BUSY:  # half-closed: the sweep looks whether the client is still there
            if hung_up(self._transport):
                self._transport.abort()
        elif phase == CLOSED:
            self._transport.abort()
        elif phase == LINGER or (phase == IDLE and not self._head_size):
            self._close()
        elif phase <= HEAD:
            self._refuse(408, f"the request's head did not arrive within {self._limits.head_timeout:g} s")
        else:
            silence = self._limits.body_timeout
            self._refuse(408, f"the body came too slowly: nothing for {silence:g} s, or under {MIN_RATE} bytes/s")

    def _reads_on(self, now: float) -> bool:
        unsent = self._transport.get_write_buffer_size()
        taken, self._unsent = self._unsent - unsent, unsent
        self.write_deadline = now + self._limits.write_timeout
        return taken >= MIN_DRAINED

    # The exchange's side

    def answered(self, keep: bool) -> None:
        """The answer is written. What was sent ahead goes on in the next turn of the loop, not inside the caller."""
        self._exchange = None
        if self._owed:
            self._repay()
        if keep:
            self._phase = IDLE
            self.deadline = self.hub.now + self._limits.idle_timeout
            if self._held:
                self.hub.soon(self._continue)
        elif self._held:
            self._linger()
        else:
            self._close()

    # Input

    def _consume(self, raw: bytes | bytearray, view: memoryview, size: int) -> None:
        """Take bytes message by message, as long as the application is free for the next."""
        start = 0
        while start < size:
            phase = self._phase
            if phase == BUSY or (phase == IDLE and self.blocked):
                return self._hold(view[start:size])
            if phase > BUSY:
                return self._discard(size - start)
            known = None
            if phase == IDLE and not self._head_size:
                known = self._known
                if known is None:
                    known = self._known = self.hub.heads.at(raw, start, size)
                elif not known.leads(raw, start, size):
                    known = None
            try:
                if known is not None and known.length > self._limits.inline_body:
                    start = self._repeat_large(known, view, start + known.size, size)
                elif known is not None and start + known.size + known.length <= size:
                    begin = start + known.size
                    start = begin + known.length
                    self._repeat(known, bytes(view[begin:start]))
                else:
                    start = self._take(phase, raw, view, start, size)
            except Refused as refusal:
                return self._refuse(refusal.status, str(refusal))
            if self._phase == READY:
                self._dispatch()
        if CHUNKED <= self._phase <= SINK:
            self._stamp_body()

    def _take(self, phase: int, raw: bytes | bytearray, view: memoryview, start: int, size: int) -> int:
        """Take one step into the message; says where the next one begins."""
        if phase == BODY:
            stop = start + self._missing
            if stop > size:
                stop = size
            self._missing -= stop - start
            self._feed(view[start:stop])
            return stop
        stop = self._stop(raw, start, size)
        if phase == CHUNKED:
            self._feed(view[start:stop])
            if self._phase == CHUNKED:
                self._count_wire(stop - start)
            return stop
        limit = start + self._limits.max_head - self._head_size
        if stop > limit:
            stop = limit
        is_begin = phase == IDLE and not self._head_size
        self._feed(view[start:stop])
        phase = self._phase
        if phase <= HEAD:
            self._count_head(stop - start)
            return stop
        if is_begin and phase != CHUNKED and self._strange < MAX_STRANGE:
            self._remember(bytes(view[start:stop]))
        return stop if phase != SINK else self._open_sink(view, stop, size)

    def _dispatch(self) -> None:
        exchange = self._exchange
        assert exchange is not None
        self._phase = BUSY
        self.deadline = math.inf
        self._head_size = 0
        try:
            self._app(exchange)
        except Exception:
            answer_for_defect(exchange, self._transport.abort)

    def _hold(self, data: memoryview) -> None:
        self._held += data
        self._held_requests += bytes(data).count(b"\r\n\r\n")
        if not self._paused and self._holds_enough():
            self._paused = True
            self._transport.pause_reading()

    def _holds_enough(self) -> bool:
        return self._held_requests >= self._limits.max_pipelined or len(self._held) >= self._limits.max_head

    def _continue(self) -> None:
        """Go on with what was sent ahead."""
        if self._phase > SINK or self.blocked or not self._held:
            return
        data, self._held, self._held_requests = self._held, bytearray(), 0
        self._consume(data, memoryview(data), len(data))
        if self._paused and not self._holds_enough():
            self._paused = False
            self._transport.resume_reading()
        if self._eof and not self._held:
            self._after_eof()

    def _after_eof(self) -> None:
        if self._phase == BUSY and self._exchange is not None:
            self._exchange._keep = bool(self._held) and self._exchange._keep
            if not self._exchange._old and not self._exchange.is_answered:
                self.send(CONTINUE)
            self.deadline = self.hub.now
            self.hub.later(RESET_TIME, self._look)
        elif self._phase < BUSY and not self._held:
            self._close()

    def _look(self) -> None:
        """See whether the client met what we sent with a reset; a nearby one has done so by now."""
        if self._phase == BUSY and self._eof and hung_up(self._transport):
            self._transport.abort()

    # Ends

    def _refuse(self, status: int, message: str) -> None:
        """Answer an error of the connection itself, and close so that the client can still read it."""
        self._exchange = None
        self._drop_body()
        head, body = (self.hub.refusal or refusal)(status, message)
        if status == 503:
            head += b"Retry-After: 1\r\n"
        self.hub.answers[status // 100] += 1
        length = b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
        self.send(STATUS_LINES[status] + self.hub.date + head + length + body)
        self._linger()

    def _linger(self) -> None:
        """Closing with unread input would reset the connection and destroy the answer: read on for a while."""
        self._phase = LINGER
        self._held.clear()
        self._filled = 0
        self.deadline = self.hub.now + LINGER_TIME
        if self._paused:
            self._paused = False
            self._transport.resume_reading()
        if self._transport.can_write_eof():
            self._transport.write_eof()

    def _discard(self, size: int) -> None:
        self._filled += size
        if self._phase == LINGER and self._filled > LINGER_BYTES:
            self._close()

    def _close(self) -> None:
        self._phase = CLOSED
        self.deadline = self.hub.now + self._limits.write_timeout  # then it is cut, sent or not
        self._transport.close()

"""The sending half of a connection: frames are gathered and written together; what the windows or the client's pace
hold back waits with its call, and the calls take turns."""

import asyncio
import math
from collections import deque
from typing import Final

from shoal.frontend.http2.call import Http2Call
from shoal.frontend.http2.frames import DEFAULT_FRAME, DEFAULT_WINDOW, ErrorCode, headers, rst_stream
from shoal.frontend.http2.hpack import EMPTY_TABLE
from shoal.frontend.http2.limits import Http2Limits
from shoal.frontend.hub import Hub
from shoal.payload import Buffer

JOINED: Final = 32 * 1024  # up to this size one copy is cheaper than a vector
MAX_UNREAD: Final = 16 * 2**20  # heads and control frames, which no window holds back, that a client lets pile up
MIN_DRAINED: Final = 64 * 1024  # what a slow reader must take in one write_timeout


class Outgoing:
    """Frames on their way out."""

    __slots__ = (
        "_calls",
        "_is_closed",
        "_limits",
        "_queued",
        "_ready",
        "_transport",
        "_unsent",
        "blocked",
        "frame_size",
        "hub",
        "is_awake",
        "max_send_buffer",
        "must_resize",
        "out",
        "out_size",
        "window",
        "write_deadline",
    )

    _transport: asyncio.Transport

    def __init__(self, limits: Http2Limits, hub: Hub) -> None:
        self._limits = limits
        self.hub = hub
        self._calls: dict[int, Http2Call] = {}
        self._is_closed = False
        self.out: list[bytes | memoryview] = []
        self.out_size = 0
        self.is_awake = False  # somebody will flush: the reader when it is through, or the loop's next turn
        self.window = DEFAULT_WINDOW
        self.frame_size = DEFAULT_FRAME  # the largest the client takes
        self.max_send_buffer = limits.max_send_buffer
        self.must_resize = False  # the client shrank its table, and waits for us to say that we know
        self.blocked = False  # the transport holds as much as it likes
        self._unsent = 0  # bytes the transport held when the client's time began
        self._queued = 0  # bytes waiting with their calls
        self._ready: deque[Http2Call] = deque()  # calls that wait and have a window
        self.write_deadline = math.inf

    # What calls ask for

    def put(self, frame: bytes) -> None:
        """Send a frame that no window holds back."""
        self.out.append(frame)
        self.out_size += len(frame)
        if not self.is_awake or self.out_size > self.max_send_buffer:
            self.wake()

    def put_block(self, stream: int, block: bytes, is_end: bool) -> None:
        """Send a header block."""
        if self.must_resize:
            self.must_resize = False
            block = EMPTY_TABLE + block
        self.put(headers(stream, block, is_end, self.frame_size))

    def enqueue(self, call: Http2Call, message: bytes, *more: Buffer) -> None:
        """Send a message as far as the windows go, and the rest when they open."""
        if not call._unsent:
            call._moved = self.hub.now
        before = call._unsent
        call.begin_queue(message, *more)
        self._queued += call._unsent - before
        if self.write_deadline == math.inf:
            self.write_deadline = self.hub.now + self._limits.write_timeout
        self._set_ready(call)
        self.pump()
        if call._unsent >= self.max_send_buffer:
            call._was_full = True

    def wake(self) -> None:
        """See to it that `out` is written: now if it is much, else once in this turn."""
        if self.out_size > self.max_send_buffer:
            self._write()
        if not self.is_awake:
            self.is_awake = True
            self.hub.soon(self.flush)

    def flush(self) -> None:
        """Write what was gathered."""
        self.is_awake = False
        if self.out:
            self._write()

    def _write(self) -> None:
        out, size = self.out, self.out_size
        self.out, self.out_size = [], 0
        if self._is_closed:
            return
        if size <= JOINED:
            self._transport.write(b"".join(out))
        else:
            self._transport.writelines(out)
        if self.blocked and self._transport.get_write_buffer_size() > MAX_UNREAD:
            self._transport.abort()

    # Waiting, and taking turns

    def pump(self) -> None:
        """Send what waits as far as windows and transport go: a frame of each call in turn, many of one alone."""
        ready = self._ready
        many = self.frame_size * (1 + self.max_send_buffer // self.frame_size)
        while ready and self.window > 0 and not self.blocked:
            call = ready.popleft()
            size = min(call._unsent, call._window, self.window, self.frame_size if ready else many)
            if size <= 0:  # its window is shut, or it is gone
                call._is_ready = False
                continue
            call._window -= size
            self.window -= size
            self._queued -= size
            call.take(size, self.frame_size, self.out)
            self.out_size += size
            call._moved = self.hub.now
            if call._unsent:
                ready.append(call)
            else:
                call._is_ready = False
                self._caught_up(call)
            if not self.is_awake or self.out_size > self.max_send_buffer:
                self.wake()
            if call._was_full and call._unsent * 2 < self.max_send_buffer:
                call._was_full = False
                self.hub.soon(call.drained)

    def _set_ready(self, call: Http2Call) -> None:
        if call._unsent and not call._is_ready:
            call._is_ready = True
            self._ready.append(call)

    def _caught_up(self, call: Http2Call) -> None:
        if call._tail:
            self.put_block(call._stream, call._tail, True)
            self.ended(call)

    def ended(self, call: Http2Call) -> None:
        """The last frame of a call is out."""
        raise NotImplementedError

    def _forget(self, call: Http2Call) -> None:
        """The call is off this connection."""
        if call._unsent:
            self._queued -= call._unsent
            if call._is_ready:
                self._ready.remove(call)
        self._calls.pop(call._stream, None)
        call.release()

    # The transport's pace

    def pause_writing(self) -> None:
        """More is waiting to be sent than the transport likes."""
        self.blocked = True
        self._unsent = self._transport.get_write_buffer_size()
        self.write_deadline = self.hub.now + self._limits.write_timeout

    def resume_writing(self) -> None:
        """The client caught up."""
        self.blocked = False
        self.pump()

    def _expire_writing(self, now: float) -> None:
        """A client that takes nothing is cut; a call whose answers it does not take is ended."""
        limit = self._limits.write_timeout
        if self.blocked:
            unsent = self._transport.get_write_buffer_size()
            taken, self._unsent = self._unsent - unsent, unsent
            if taken < MIN_DRAINED:
                self._transport.abort()
            self.write_deadline = now + limit
            return
        for call in [c for c in self._calls.values() if c._unsent and c._moved + limit <= now]:
            self.cancel(call)
        self.write_deadline = now + limit / 4 if self._queued else math.inf

    def cancel(self, call: Http2Call) -> None:
        """Cut the stream of a call, and tell its service."""
        self.put(rst_stream(call._stream, ErrorCode.CANCEL))
        self._drop(call)

    def _drop(self, call: Http2Call) -> None:
        """A call ends without a word of ours."""
        raise NotImplementedError

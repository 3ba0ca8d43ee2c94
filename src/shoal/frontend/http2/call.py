"""One call: its stream's state, what the service hears of it, and what it says back."""

from collections import deque
from collections.abc import Sequence
from struct import Struct
from typing import Final, Protocol

from shoal.frontend.client import Client
from shoal.frontend.http2 import answers
from shoal.frontend.http2.frames import DATA, END_HEADERS, END_STREAM, HEADERS, pack_head
from shoal.frontend.http2.heads import Head
from shoal.frontend.http2.hpack import Field
from shoal.frontend.http2.messages import PREFIX, Messages
from shoal.frontend.http2.served import ServedCall, run
from shoal.frontend.rpc import Code
from shoal.payload import Buffer

# The frames of nearly every answer, but for the stream's number and the message.
_HEAD: Final = pack_head(len(answers.HEAD) << 8 | HEADERS, END_HEADERS, 0)[:5]
_OK: Final = pack_head(len(answers.OK) << 8 | HEADERS, END_HEADERS | END_STREAM, 0)[:5]
_pack_first: Final = Struct(f">5sI{len(answers.HEAD)}sIBIBI").pack  # the head, a DATA frame's head, a message's prefix
_pack_next: Final = Struct(">IBIBI").pack
_pack_prefix: Final = Struct(">BI").pack
_FIRST_SIZE: Final = Struct(f">5sI{len(answers.HEAD)}sIBIBI").size
_OK_SIZE: Final = 9 + len(answers.OK)


class Link(Protocol):
    """What a call needs of its connection."""

    out: list[bytes | memoryview]  # frames to be written together, soon
    out_size: int
    window: int
    frame_size: int
    blocked: bool
    is_awake: bool
    must_resize: bool
    client: Client
    peer: str
    max_send_buffer: int

    def put_block(self, stream: int, block: bytes, is_end: bool) -> None:
        """Send a header block."""
        ...

    def enqueue(self, call: "Http2Call", message: bytes, *more: Buffer) -> None:
        """Send a message as far as the windows go, and the rest when they open."""
        ...

    def wake(self) -> None:
        """See to it that `out` is written."""
        ...

    def cancel(self, call: "Http2Call") -> None:
        """Cut its stream, and tell its service."""
        ...

    def over(self, call: "Http2Call") -> None:
        """The service is done with it."""
        ...

    def ended(self, call: "Http2Call") -> None:
        """The last frame of it is out."""
        ...


class Http2Call(ServedCall):
    """A call, as `rpc.Call` says; the underscored half belongs to the connection."""

    __slots__ = (
        "_has_begun",
        "_head",
        "_is_ended",
        "_is_ready",
        "_link",
        "_messages",
        "_moved",
        "_queue",
        "_stamp",
        "_stream",
        "_tail",
        "_taken",
        "_unsent",
        "_was_full",
        "_window",
    )

    def __init__(self, link: Link, stream: int, head: Head, window: int, now: float) -> None:
        ServedCall.__init__(self, head, link.client, link.peer)  # not by super(): each call would pay for it
        self._link: Link | None = link
        self._stream = stream
        self._head = head
        self._window = window  # what may be sent
        self._stamp = now  # when it began, then when the last piece of a message came
        self._taken = 0  # bytes received since the client's window was last widened
        self._unsent = 0
        self._moved = now  # when the last of what waits was sent
        self._is_ended = self._has_begun = False
        self._messages: Messages | None = None  # once one is not whole in its frame

    # The service's side

    @property
    def writable(self) -> bool:
        """Whether more may be sent now."""
        return not self.is_over and self._link is not None and self._unsent < self._link.max_send_buffer

    def send(self, message: bytes, *more: Buffer) -> None:
        """Send one message; the head goes before the first. Pieces of a large one are not copied."""
        link = self._link
        if link is None or self.is_over:
            return
        size = len(message) + PREFIX
        if more:
            size += sum(map(len, more))
        if (
            size > self._window
            or size > link.window
            or size > link.frame_size
            or self._unsent
            or link.blocked
            or link.must_resize
        ):
            if not self._has_begun:
                self._has_begun = True
                link.put_block(self._stream, answers.HEAD, False)
            link.enqueue(self, message, *more)
            return
        if more:
            message = b"".join((message, *more))
        self._window -= size
        link.window -= size
        stream = self._stream
        if self._has_begun:
            link.out.append(_pack_next(size << 8 | DATA, 0, stream, 0, size - PREFIX))
        else:
            self._has_begun = True
            link.out.append(_pack_first(_HEAD, stream, answers.HEAD, size << 8 | DATA, 0, stream, 0, size - PREFIX))
        link.out.append(message)
        link.out_size += size + _FIRST_SIZE
        if not link.is_awake or link.out_size > link.max_send_buffer:
            link.wake()

    def finish(self, code: Code = Code.OK, message: str = "", trailers: Sequence[Field] = ()) -> None:
        """End the call."""
        link = self._link
        if link is None or self.is_over:
            return
        if self._has_begun and code == 0 and not (message or trailers or self._unsent or link.must_resize):
            self.is_over = True
            link.out.append(_OK + self._stream.to_bytes(4, "big") + answers.OK)
            link.out_size += _OK_SIZE
            link.over(self)
            link.ended(self)
            if not link.is_awake:
                link.wake()
            return
        block = (answers.trailers if self._has_begun else answers.lone)(code, message, trailers)
        self.is_over = True
        link.over(self)
        if self._unsent:
            self._tail = block
            return
        link.put_block(self._stream, block, True)
        link.ended(self)

    # The connection's side

    def expire(self) -> None:
        """The deadline passed. Half a message that waits cannot be followed by a status: then the stream is cut."""
        if self._unsent and self._link is not None:
            self._link.cancel(self)
            return
        self.fail(Code.DEADLINE_EXCEEDED, f"the call took longer than the {self.timeout:g} s its client gives it")

    def drained(self) -> None:
        """It is writable again."""
        run(self.on_drained)

    def begin_queue(self, *pieces: Buffer) -> None:
        """Queue a whole message."""
        size = sum(map(len, pieces)) + PREFIX
        if not self._unsent:
            self._queue: deque[bytes | memoryview] = deque()
            self._tail = b""
            self._is_ready = self._was_full = False
        self._queue.append(_pack_prefix(0, size - PREFIX))
        self._queue.extend(memoryview(piece) for piece in pieces if len(piece))
        self._unsent += size

    def take(self, size: int, frame_size: int, out: list[bytes | memoryview]) -> None:
        """Put that many bytes of the queue into frames, each as large as it may be."""
        queue = self._queue
        head = pack_head(frame_size << 8 | DATA, 0, self._stream)
        room = 0  # in the frame that was begun
        self._unsent -= size
        while size:
            piece = queue.popleft()
            at, end = 0, len(piece)
            while at < end and size:
                if not room:
                    room = min(size, frame_size)
                    out.append(head if room == frame_size else pack_head(room << 8 | DATA, 0, self._stream))
                step = min(room, end - at)
                out.append(piece[at : at + step] if step < end else piece)
                at += step
                room -= step
                size -= step
            if at < end:
                queue.appendleft(memoryview(piece)[at:])

    def release(self) -> None:
        """Let go of everything: nobody will hear of this call again."""
        self._link = None
        if self._unsent:
            self._queue.clear()
            self._unsent = 0
        self._messages = None
        self.deafen()

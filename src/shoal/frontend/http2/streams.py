"""The frames that are calls: heads become calls of a service, data becomes their messages."""

import math
from struct import Struct
from typing import Final

from shoal.frontend.client import NOBODY
from shoal.frontend.http2 import answers
from shoal.frontend.http2.call import Http2Call
from shoal.frontend.http2.control import Control
from shoal.frontend.http2.deadlines import Deadlines
from shoal.frontend.http2.frames import (
    END_HEADERS,
    END_STREAM,
    PADDED,
    WITH_PRIORITY,
    ErrorCode,
    Fault,
    rst_stream,
    window_update,
)
from shoal.frontend.http2.heads import Head, judge
from shoal.frontend.http2.limits import Http2Limits
from shoal.frontend.http2.messages import PREFIX, Messages, Refused
from shoal.frontend.hub import Hub
from shoal.frontend.rpc import Code, Services

MAX_KNOWN: Final = 16  # heads remembered by their bytes,
MAX_KNOWN_SIZE: Final = 1024  # if they are no longer than this
MAX_CUT: Final = 1024  # streams we ended before their client did, whose frames may still come

_prefix_at: Final = Struct(">BI").unpack_from


class Streams(Control):
    """The calls of a connection."""

    __slots__ = (
        "_block",
        "_block_flags",
        "_block_stream",
        "_cut",
        "_deadlines",
        "_known",
        "_owed",
        "_partial",
        "_services",
        "_taken",
        "_unfinished",
        "client",
        "peer",
    )

    def __init__(self, services: Services, limits: Http2Limits, hub: Hub, deadlines: Deadlines) -> None:
        super().__init__(limits, hub)
        self._services = services
        self._deadlines = deadlines
        self.client = NOBODY
        self.peer = ""
        self._known: dict[bytes, Head] = {}
        self._block = bytearray()  # a head that comes in several frames,
        self._block_stream = self._block_flags = 0  # and whose it is
        self._taken = 0  # bytes received since the connection's window was last widened
        self._partial: dict[Http2Call, int] = {}  # calls with a message that is not whole: how much of it is there
        self._unfinished = 0  # all of these together
        self._owed: dict[Http2Call, int] = {}  # bytes of the hub's budget that large messages of calls have
        self._cut: dict[int, None] = {}

    # Heads

    def _on_headers(self, data: bytes, at: int, end: int, flags: int, stream: int) -> None:
        if flags & (PADDED | WITH_PRIORITY):
            at, end = self._unwrap(data, at, end, flags, stream)
        if end - at > self._limits.max_header_block:
            raise Fault(ErrorCode.ENHANCE_YOUR_CALM, f"a head is larger than {self._limits.max_header_block} bytes")
        block = data[at:end]
        if flags & END_HEADERS:
            self._on_head(stream, self._known.get(block) or self._learn(block), bool(flags & END_STREAM))
            return
        if not stream:
            raise Fault(ErrorCode.PROTOCOL_ERROR, "HEADERS belong to a stream")
        if not block:
            self._spend_idle()
        self._block += block
        self._block_stream, self._block_flags = stream, flags

    def _on_continuation(self, data: bytes, at: int, end: int, flags: int, stream: int) -> None:
        if stream != self._block_stream or not stream:
            raise Fault(ErrorCode.PROTOCOL_ERROR, "a CONTINUATION continues nothing")
        if at == end:
            self._spend_idle()
        self._block += data[at:end]
        if len(self._block) > self._limits.max_header_block:
            raise Fault(ErrorCode.ENHANCE_YOUR_CALM, f"a head is larger than {self._limits.max_header_block} bytes")
        if flags & END_HEADERS:
            block, self._block = bytes(self._block), bytearray()
            self._block_stream = 0
            self._on_head(stream, self._known.get(block) or self._learn(block), bool(self._block_flags & END_STREAM))

    def _unwrap(self, data: bytes, at: int, end: int, flags: int, stream: int) -> tuple[int, int]:
        """Take off padding and priority."""
        if flags & PADDED:
            at, end = _unpad(data, at, end)
        if flags & WITH_PRIORITY:
            if end - at < 5:
                raise Fault(ErrorCode.FRAME_SIZE_ERROR, "HEADERS with a priority are five bytes or more")
            self._check_dependency(data, at, stream)
            at += 5
        return at, end

    def _learn(self, block: bytes) -> Head:
        """Decode a block. It means the same again as long as no block changes the table."""
        changes = self._decoder.changes
        head = judge(self._decoder.decode(block))
        if self._decoder.changes != changes:
            self._known.clear()
        elif len(block) <= MAX_KNOWN_SIZE:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            self._known[block] = head
        return head

    def _on_head(self, stream: int, head: Head, is_end: bool) -> None:
        if stream <= self._last:
            self._on_late_head(stream, is_end)
            return
        if not stream & 1:
            raise Fault(ErrorCode.PROTOCOL_ERROR, f"stream {stream} is even; a client's are odd")
        self._last = stream
        service = self._services.get(head.method)
        if service is None or head.timeout <= 0 or self._is_full:
            self._refuse(stream, head, is_end)
            return
        call = self._calls[stream] = Http2Call(self, stream, head, self._initial_window, self.hub.now)
        call._is_ended = is_end
        if head.timeout != math.inf:
            self._deadlines.add(head.timeout, call)
        try:
            service(call)
        except Exception:
            call.crash()
        if is_end:
            self._end(call)

    @property
    def _is_full(self) -> bool:
        return (
            self._is_leaving or len(self._calls) >= self._limits.max_streams or self._queued > self._limits.max_unsent
        )

    def _refuse(self, stream: int, head: Head, is_end: bool) -> None:
        """Answer a head that begins no call."""
        if not is_end:
            self._remember_cut(stream)
        if head.is_malformed:
            self._break(stream, ErrorCode.PROTOCOL_ERROR)
            return
        if self._is_full:
            self._break(stream, ErrorCode.REFUSED_STREAM)
            return
        if head.answer is not None:
            answer = head.answer
        elif head.timeout <= 0:
            answer = answers.lone(Code.DEADLINE_EXCEEDED, "the call's time was over when it arrived")
        else:
            answer = answers.lone(Code.UNIMPLEMENTED, f"there is no method {head.method}")
        self.put_block(stream, answer, True)
        if not is_end:
            self.put(rst_stream(stream, ErrorCode.NO_ERROR))

    def _on_late_head(self, stream: int, is_end: bool) -> None:
        """The trailers of a stream, or a mistake."""
        call = self._calls.get(stream)
        if call is None:
            if stream not in self._cut:
                code = ErrorCode.STREAM_CLOSED if stream & 1 else ErrorCode.PROTOCOL_ERROR
                raise Fault(code, f"HEADERS on stream {stream}, which is closed")
            if is_end:
                del self._cut[stream]
        elif call._is_ended:
            self._break(stream, ErrorCode.STREAM_CLOSED)
        elif not is_end:
            self._break(stream, ErrorCode.PROTOCOL_ERROR)
        else:
            call._is_ended = True
            self._end(call)

    # Data

    def _on_data(self, data: bytes, at: int, end: int, flags: int, stream: int) -> None:
        size = end - at
        self._taken += size
        if self._taken * 2 > self._limits.connection_window:
            self.put(window_update(0, self._taken))
            self._taken = 0
        call = self._calls.get(stream)
        if call is None or call._is_ended:
            self._on_late_data(stream, flags)
            return
        if flags & END_STREAM:
            call._is_ended = True
        else:
            self._widen(call, size)
        if flags & PADDED:
            at, end = _unpad(data, at, end)
            size = end - at
        if size >= PREFIX and call._messages is None and not call.is_over:
            flag, length = _prefix_at(data, at)
            if length + PREFIX == size and not flag and length <= self._limits.max_message:
                try:
                    call.on_message(data[at + PREFIX : end])
                except Exception:
                    call.crash()
            else:
                self._collect(call, memoryview(data)[at:end])
        elif size and not call.is_over:
            self._collect(call, memoryview(data)[at:end])
        if flags & END_STREAM:
            self._end(call)

    def _widen(self, call: Http2Call, size: int) -> None:
        """Let the client send on, in large steps."""
        if not size:
            self._spend_idle()
        call._taken += size
        window = self._limits.stream_window
        if call._taken * 2 > window:
            left, messages = window - call._taken, call._messages
            if messages is not None and 0 <= messages.missing - size <= left and left * 8 > window:
                return  # the rest of its message fits
            self.put(window_update(call._stream, call._taken))
            call._taken = 0

    def _on_late_data(self, stream: int, flags: int) -> None:
        """Data for a stream that is closed, at least from the client's side."""
        if not 0 < stream <= self._last:
            raise Fault(ErrorCode.PROTOCOL_ERROR, "DATA on a stream that never was")
        if stream not in self._cut:
            self._break(stream, ErrorCode.STREAM_CLOSED)
        elif flags & END_STREAM:
            del self._cut[stream]

    def _collect(self, call: Http2Call, data: memoryview) -> None:
        """Take data that is not just one whole message."""
        size = len(data)
        if not self._owe(call, size):
            return
        messages = call._messages
        if messages is None:
            in_pieces = call.on_pieces is not None
            messages = call._messages = Messages(call._head.encoding, self._limits.max_message, in_pieces=in_pieces)
        if messages.missing > size:
            messages.extend(data, size)
        elif not self._hear(call, messages, data):
            return
        self._unfinished += messages.held - self._partial.pop(call, 0)
        if messages.held:
            self._partial[call] = messages.held
            call._stamp = self.hub.now
            if self._unfinished > self._limits.max_unfinished:
                limit = self._limits.max_unfinished
                call.fail(Code.RESOURCE_EXHAUSTED, f"the unfinished messages of this client are over {limit} bytes")
        else:
            call._messages = None

    def _hear(self, call: Http2Call, messages: Messages, data: memoryview) -> bool:
        """Tell the service of the messages that are whole now; says whether the call goes on."""
        last = 0
        try:
            for message in messages.feed(data):
                last = len(message)
                try:
                    if isinstance(message, bytes):
                        call.on_message(message)
                    elif call.on_pieces is not None:
                        call.on_pieces(message)
                except Exception:
                    call.crash()
                if call.is_over:
                    return False
        except Refused as refusal:
            call.fail(refusal.code, str(refusal))
            return False
        self._pay_for(call, messages.held + last if last else self._owed[call])
        return not call.is_over

    def _owe(self, call: Http2Call, size: int) -> bool:
        """Take memory for a message that did not come in one small piece; without any the call fails."""
        if not self.hub.budget.take(size):
            call.fail(Code.RESOURCE_EXHAUSTED, "requests take as much memory as they may; try again")
            return False
        self._owed[call] = self._owed.get(call, 0) + size
        return True

    def _pay_for(self, call: Http2Call, size: int) -> None:
        """Have memory for what is not whole yet and for the last message that was; those before it are through."""
        owed = self._owed[call]
        if size > owed:  # it was compressed
            self._owe(call, size - owed)
        elif size < owed:
            self.hub.budget.give_back(owed - size)
            self._owed[call] = size

    def _end(self, call: Http2Call) -> None:
        """The client will send no more."""
        if call.is_over:
            return
        if call._messages is not None:
            call.fail(Code.INTERNAL, "the stream ended inside a message")
            return
        try:
            call.on_end()
        except Exception:
            call.crash()

    # Ends

    def over(self, call: Http2Call) -> None:
        """The service is done with a call."""
        if call.timeout != math.inf:
            self._deadlines.drop()
        if self._partial:
            self._unfinished -= self._partial.pop(call, 0)
        if self._owed:
            self.hub.budget.give_back(self._owed.pop(call, 0))

    def ended(self, call: Http2Call) -> None:
        """The last frame of a call is out; a client that would send more is told not to."""
        if not call._is_ended:
            self.put(rst_stream(call._stream, ErrorCode.NO_ERROR))
        self._off(call)

    def _off(self, call: Http2Call) -> None:
        if not call._is_ended:
            self._remember_cut(call._stream)
        self._forget(call)
        if self._is_leaving and not self._calls:
            self._leave()

    def _remember_cut(self, stream: int) -> None:
        if len(self._cut) >= MAX_CUT:
            del self._cut[next(iter(self._cut))]
        self._cut[stream] = None


def _unpad(data: bytes, at: int, end: int) -> tuple[int, int]:
    if at == end:
        raise Fault(ErrorCode.FRAME_SIZE_ERROR, "a padded frame does not say how much")
    padding = data[at]
    if at + 1 + padding > end:
        raise Fault(ErrorCode.PROTOCOL_ERROR, "a frame is padded with more than it has")
    return at + 1, end - padding

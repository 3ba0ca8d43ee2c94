"""An HTTP/2 connection on a transport without a socket, and the little of a client that tests need."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from shoal.frontend.http2.connection import Http2Connection
from shoal.frontend.http2.deadlines import Deadlines
from shoal.frontend.http2.frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    ErrorCode,
    head_at,
    pack_head,
)
from shoal.frontend.http2.hpack import Decoder, encode
from shoal.frontend.http2.limits import Http2Limits
from shoal.frontend.hub import Hub
from shoal.frontend.rpc import Call, Code
from tests.unit.frontend.http_fakes import FakeTransport

HEAD = [
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/t.T/Echo"),
    (b":authority", b"a"),
    (b"te", b"trailers"),
    (b"content-type", b"application/grpc"),
]


class Frame(NamedTuple):
    kind: int
    flags: int
    stream: int
    payload: bytes


class Answer(NamedTuple):
    """All that came on one stream."""

    fields: dict[bytes, bytes]
    messages: list[bytes]
    is_ended: bool


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    return pack_head(len(payload) << 8 | kind, flags, stream) + payload


def message(text: bytes, flag: int = 0) -> bytes:
    return bytes((flag,)) + len(text).to_bytes(4, "big") + text


def head(stream: int, *more: tuple[bytes, bytes], is_end: bool = False, path: bytes = b"/t.T/Echo") -> bytes:
    fields = [(name, path if name == b":path" else value) for name, value in HEAD]
    return frame(HEADERS, END_HEADERS | (END_STREAM if is_end else 0), stream, encode([*fields, *more]))


def data(stream: int, payload: bytes, is_end: bool = False) -> bytes:
    return frame(DATA, END_STREAM if is_end else 0, stream, payload)


def unary(stream: int, text: bytes, *more: tuple[bytes, bytes]) -> bytes:
    return head(stream, *more) + data(stream, message(text), is_end=True)


def echo(call: Call) -> None:
    """Answer with the messages, when all have come."""
    got: list[bytes] = []

    def end() -> None:
        for text in got:
            call.send(text)
        call.finish()

    call.on_message = got.append
    call.on_end = end


class Timer:
    def __init__(self, time: float, callback: Callable[[], None]) -> None:
        self.time, self.callback, self.is_cancelled = time, callback, False

    def cancel(self) -> None:
        self.is_cancelled = True


class FakeTime:
    """A loop's time and timers, moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[Timer] = []

    def time(self) -> float:
        return self.now

    def call_at(self, time: float, callback: Callable[[], None]) -> Timer:
        self.timers.append(Timer(time, callback))
        return self.timers[-1]

    def move(self, seconds: float) -> None:
        self.now += seconds
        due = [t for t in self.timers if t.time <= self.now and not t.is_cancelled]
        self.timers = [t for t in self.timers if t not in due]
        for timer in due:
            timer.callback()


class Client:
    """A connection, its fake transport, and the calls its services were given."""

    def __init__(
        self,
        service: Callable[[Call], None] = echo,
        limits: Http2Limits | None = None,
        *,
        hub: Hub | None = None,
        is_open: bool = True,
    ) -> None:
        self.calls: list[Call] = []
        self.gone: list[Call] = []
        self.later: list[Callable[[], None]] = []
        self.hub = hub or Hub(now=1000.0, soon=self.later.append)
        self.clock = FakeTime()
        self.deadlines = Deadlines(self.clock.time, self.clock.call_at)
        self.transport = FakeTransport()
        self._service = service
        services = {"/t.T/Echo": self._take}
        self.connection = Http2Connection(services, limits or Http2Limits(), self.hub, self.deadlines)
        self.connection.connection_made(self.transport)
        self._decoder = Decoder(4096, 2**20)
        if is_open:
            self.send(PREFACE + frame(SETTINGS))
            self.frames()

    def _take(self, call: Call) -> None:
        self.calls.append(call)
        call.on_gone = lambda: self.gone.append(call)
        self._service(call)

    def send(self, bytes_: bytes) -> None:
        self.connection.data_received(bytes_)

    def turn(self) -> None:
        """One turn of the loop."""
        callbacks = self.later[:]
        self.later.clear()
        for callback in callbacks:
            callback()

    def frames(self) -> list[Frame]:
        """What was written since the last look."""
        self.turn()
        raw = bytes(self.transport.written)
        self.transport.written.clear()
        found, at = [], 0
        while at < len(raw):
            word, flags, stream = head_at(raw, at)
            end = at + 9 + (word >> 8)
            assert end <= len(raw), "half a frame was written"
            found.append(Frame(word & 0xFF, flags, stream, raw[at + 9 : end]))
            at = end
        return found

    def answers(self, frames: Sequence[Frame] | None = None) -> dict[int, Answer]:
        """The answers in these frames, by stream; header blocks are decoded in their order."""
        fields: dict[int, dict[bytes, bytes]] = {}
        texts: dict[int, bytes] = {}
        ended = set()
        block = b""
        for kind, flags, stream, payload in self.frames() if frames is None else frames:
            if kind in (HEADERS, CONTINUATION):
                block += payload
                if kind == HEADERS and flags & END_STREAM:
                    ended.add(stream)
                if flags & END_HEADERS:
                    fields.setdefault(stream, {}).update(self._decoder.decode(block) or ())
                    block = b""
            elif kind == DATA:
                texts[stream] = texts.get(stream, b"") + payload
        return {s: Answer(f, messages_of(texts.get(s, b"")), s in ended) for s, f in fields.items()}

    def answer(self, stream: int = 1) -> Answer:
        return self.answers()[stream]

    def goaway(self) -> tuple[int, ErrorCode]:
        """The last stream and the code of the farewell."""
        found = [f for f in self.frames() if f.kind == GOAWAY]
        assert len(found) == 1, found
        payload = found[0].payload
        return int.from_bytes(payload[:4], "big"), ErrorCode(int.from_bytes(payload[4:8], "big"))

    def resets(self) -> list[tuple[int, ErrorCode]]:
        return [(f.stream, ErrorCode(int.from_bytes(f.payload, "big"))) for f in self.frames() if f.kind == RST_STREAM]

    @property
    def is_alive(self) -> bool:
        return not (self.transport.closed or self.transport.aborted or self.transport.ended)


def messages_of(raw: bytes) -> list[bytes]:
    found = []
    while raw:
        size = int.from_bytes(raw[1:5], "big")
        assert len(raw) >= 5 + size, "half a message was sent"
        found.append(raw[5 : 5 + size])
        raw = raw[5 + size :]
    return found


def status(answer: Answer) -> Code:
    return Code(int(answer.fields[b"grpc-status"]))

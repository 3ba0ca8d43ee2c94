"""Whatever comes in: nothing is raised, every call ends once, and the connection answers or leaves."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from shoal.frontend.http2.frames import GOAWAY, PREFACE, SETTINGS
from shoal.frontend.http2.hpack import encode
from shoal.frontend.http2.limits import Http2Limits
from shoal.frontend.rpc import Call
from tests.unit.frontend.http2.fakes import HEAD, Client, frame, message

LIMITS = Http2Limits(max_streams=3, max_message=1000, max_unfinished=1500, idle_budget=30, reset_budget=30)

BLOCKS = st.one_of(
    st.just(encode(HEAD)),
    st.just(encode([*HEAD, (b"grpc-timeout", b"1S")])),
    st.just(encode([*HEAD, (b"grpc-encoding", b"gzip")])),
    st.binary(max_size=40),
)
PAYLOADS = st.one_of(
    BLOCKS,
    st.binary(max_size=30).map(message),
    st.binary(max_size=30),
    st.sampled_from([bytes(4), bytes(5), bytes(8), b"\0\0\1\0", b"\0\4\0\1\0\0", b"\0\4\0\0\0\0", b"\0\0\xff\xff"]),
)
FRAMES = st.builds(
    frame, st.integers(0, 11), st.sampled_from([0, 1, 4, 5, 8, 9, 0x20, 0x25, 0xFF]), st.integers(0, 9), PAYLOADS
)
PLAIN_HEADS = st.builds(
    lambda stream, is_end: frame(1, 5 if is_end else 4, stream, encode(HEAD)),
    st.sampled_from([1, 3, 5, 7, 9]),
    st.booleans(),
)
PLAIN_DATA = st.builds(
    lambda stream, flags, text: frame(0, flags, stream, message(text)),
    st.sampled_from([1, 3, 5, 7]),
    st.integers(0, 1),
    st.binary(max_size=900),
)


class Witness:
    """Counts how calls end. Even calls answer at the end, odd ones answer each message at once."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.finished: set[int] = set()
        self.messages_after_end = 0

    def __call__(self, call: Call) -> None:
        number = len(self.calls)
        self.calls.append(call)
        is_ended = False

        def hear(text: bytes) -> None:
            self.messages_after_end += is_ended
            call.send(text * 200)

        def end() -> None:
            nonlocal is_ended
            self.messages_after_end += is_ended
            is_ended = True
            self.finished.add(number)
            call.finish()

        call.on_message = hear
        call.on_end = end


def live(pieces: list[bytes], is_open: bool = True) -> None:
    witness = Witness()
    client = Client(witness, LIMITS, is_open=is_open)
    for piece in pieces:
        client.send(piece)
        client.turn()
    away = [f for f in client.frames() if f.kind == GOAWAY] if is_open else []
    if away:  # who leaves without an error is answered first
        has_error = any(f.payload[4:8] != bytes(4) for f in away)
        assert not client.is_alive or (client.connection._calls and not has_error)
    client.clock.move(5)
    for _ in range(8):
        client.hub.sweep(client.hub.now + 100)
    client.turn()
    assert client.transport.ended or client.transport.closed or client.transport.aborted
    client.connection.connection_lost(None)

    assert witness.messages_after_end == 0
    assert len(client.gone) == len(set(map(id, client.gone)))
    assert len(client.gone) + len(witness.finished) == len(client.calls)
    assert client.connection._calls == {}
    assert client.connection._queued == client.connection._unfinished == 0
    assert len(client.deadlines) <= 64


@example([frame(1, 4, 1, encode(HEAD)), frame(GOAWAY, 0, 0, bytes(8))])  # a client that leaves and still asks
@settings(deadline=None, max_examples=300)
@given(st.lists(st.one_of(FRAMES, PLAIN_HEADS, PLAIN_DATA), max_size=25))
def test_any_frames(frames: list[bytes]) -> None:
    live(frames)


@settings(deadline=None, max_examples=200)
@given(st.lists(st.one_of(FRAMES, PLAIN_HEADS, PLAIN_DATA), max_size=15), st.data())
def test_any_frames_with_a_broken_byte_and_cut_anywhere(frames: list[bytes], draw: st.DataObject) -> None:
    raw = bytearray(PREFACE + frame(SETTINGS) + b"".join(frames))
    place = draw.draw(st.integers(0, len(raw) - 1))
    raw[place] = draw.draw(st.integers(0, 255))
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(raw)), max_size=6)))
    live([bytes(raw[a:b]) for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True) if a < b], is_open=False)


@settings(deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=100), max_size=10), st.booleans())
def test_any_bytes(pieces: list[bytes], is_open: bool) -> None:
    live(pieces, is_open=is_open)

"""Windows both ways: what may be sent, what waits, and who goes first."""

from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.frontend.fragments import Fragments
from shoal.frontend.http2.call import Http2Call
from shoal.frontend.http2.frames import (
    DATA,
    HEADER_TABLE_SIZE,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    MAX_FRAME_SIZE,
    PING,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    ErrorCode,
    window_update,
)
from shoal.frontend.http2.limits import Http2Limits
from shoal.frontend.http2.messages import LARGE
from shoal.frontend.rpc import Call
from tests.unit.frontend.http2.fakes import Client, Frame, data, frame, head, message, messages_of, unary

WIDE = window_update(0, 2**30)


def setting(name: int, value: int) -> bytes:
    return frame(SETTINGS, 0, 0, name.to_bytes(2, "big") + value.to_bytes(4, "big"))


def sizes(frames: list[Frame], stream: int = 0) -> list[int]:
    return [len(f.payload) for f in frames if f.kind == DATA and (not stream or f.stream == stream)]


def quiet(call: Call) -> None:
    pass


def opened(*streams: int, limits: Http2Limits | None = None) -> Client:
    client = Client(quiet, limits)
    for stream in streams:
        client.send(head(stream, is_end=True))
    client.frames()
    return client


def test_a_message_is_cut_into_the_frames_the_client_takes() -> None:
    client = opened(1)
    client.calls[0].send(b"x" * 40_000)
    client.calls[0].finish()

    frames = client.frames()
    assert sizes(frames) == [16384, 16384, 40_005 - 2 * 16384]
    answer = client.answers(frames)[1]
    assert answer.messages == [b"x" * 40_000] and answer.is_ended


def test_larger_frames_are_sent_when_the_client_takes_them() -> None:
    client = opened(1)
    client.send(setting(MAX_FRAME_SIZE, 2**20))
    client.frames()
    client.calls[0].send(b"x" * 40_000)

    assert sizes(client.frames()) == [40_005]


def test_a_stream_waits_for_its_own_window() -> None:
    client = opened(1, 3)
    client.send(WIDE)
    client.calls[0].send(b"x" * 100_000)
    client.calls[0].finish()
    frames = client.frames()
    assert sum(sizes(frames)) == 65_535
    assert frames[0].kind == HEADERS

    client.calls[1].send(b"quick")
    client.calls[1].finish()
    assert client.answers()[3].messages == [b"quick"]  # held up by nothing

    client.send(window_update(1, 10_000))
    assert sum(sizes(client.frames())) == 10_000
    client.send(window_update(1, 100_000))
    frames = client.frames()
    assert sum(sizes(frames)) == 100_005 - 75_535
    assert frames[-1].kind == HEADERS


def test_all_streams_share_the_connections_window_in_turns() -> None:
    client = opened(1, 3, 5)
    client.send(setting(INITIAL_WINDOW_SIZE, 2**20))
    for call in client.calls:
        call.send(b"x" * 60_000)
    assert sum(sizes(client.frames())) == 65_535
    client.send(window_update(0, 6 * 16_384))

    frames = client.frames()
    assert [f.stream for f in frames if f.kind == DATA][:4] in ([1, 3, 5, 3], [3, 5, 3, 5], [1, 3, 5, 1])
    client.send(WIDE)
    assert client.connection._queued == 0
    assert all(call.writable for call in client.calls)


@pytest.mark.parametrize("narrow", ["stream", "connection"])
def test_messages_that_fit_a_frame_use_up_both_windows(narrow: str) -> None:
    client = opened(1, 3)
    client.send(setting(INITIAL_WINDOW_SIZE, 2**20) if narrow == "connection" else WIDE)
    client.frames()
    for call in client.calls[: 1 if narrow == "stream" else 2]:
        for _ in range(7):
            call.send(b"x" * 9_995)

    assert sum(sizes(client.frames())) == 65_535


def test_a_change_of_the_initial_window_moves_open_streams_and_may_go_below_nothing() -> None:
    client = opened(1)
    client.send(WIDE)
    client.calls[0].send(b"x" * 99_995)
    assert sum(sizes(client.frames())) == 65_535
    client.send(setting(INITIAL_WINDOW_SIZE, 10_000))  # the window is now below zero
    client.send(window_update(1, 55_535))
    assert sizes(client.frames()) == []
    client.send(window_update(1, 1))
    assert sizes(client.frames()) == [1]
    client.send(setting(INITIAL_WINDOW_SIZE, 100_000))
    assert sum(sizes(client.frames())) == 100_000 - 65_536


def test_a_call_is_writable_until_much_of_it_waits_and_hears_when_it_is_again() -> None:
    client = opened(1)
    drained: list[bool] = []
    call = cast(Http2Call, client.calls[0])
    call.on_drained = lambda: drained.append(call.writable)
    sent = 0
    while call.writable and sent < 100:
        call.send(b"x" * 10_000)
        sent += 1
    assert 65_535 + 65_536 <= sent * 10_005 < 65_535 + 65_536 + 10_005
    client.frames()
    client.send(WIDE + window_update(1, 20_000))
    client.turn()
    assert drained == []
    client.send(window_update(1, 25_000))
    client.turn()
    assert drained == [True]
    client.send(window_update(1, 10**6))
    client.turn()
    assert drained == [True]


def test_a_client_that_reads_slowly_stops_data_and_nothing_else() -> None:
    client = opened(1, 3)
    client.send(WIDE)
    client.connection.pause_writing()
    client.calls[0].send(b"x" * 100)
    client.calls[0].finish()
    client.send(frame(PING, 0, 0, b"12345678"))
    assert [f.kind for f in client.frames()] == [HEADERS, PING]
    assert client.calls[1].writable
    client.connection.resume_writing()
    assert [f.kind for f in client.frames()] == [DATA, HEADERS]


def test_a_turn_writes_before_much_has_gathered() -> None:
    client = opened(1)
    client.send(setting(INITIAL_WINDOW_SIZE, 2**30) + WIDE)
    client.frames()
    writes = client.transport.writes
    for _ in range(100):
        client.calls[0].send(b"x" * 10_000)

    assert client.transport.writes > writes + 5
    assert client.connection.out_size < 100_000


def test_a_reset_drops_what_waits() -> None:
    client = opened(1, 3)
    for call in client.calls:
        call.send(b"x" * 100_000)
    client.frames()
    client.send(frame(RST_STREAM, 0, 1, b"\0\0\0\x08"))
    assert client.gone == client.calls[:1]
    client.send(frame(RST_STREAM, 0, 3, b"\0\0\0\x08"))
    assert client.connection._queued == 0
    assert len(client.connection._ready) == 0
    client.send(WIDE)
    assert sizes(client.frames()) == []


def test_a_call_that_is_finished_and_waits_is_reset_without_a_word_to_its_service() -> None:
    client = opened(1)
    client.calls[0].send(b"x" * 100_000)
    client.calls[0].finish()
    client.send(frame(RST_STREAM, 0, 1, b"\0\0\0\x08"))

    assert client.gone == []
    assert client.connection._calls == {}


def test_a_client_that_takes_no_answers_may_begin_no_call() -> None:
    client = opened(1, limits=Http2Limits(max_unsent=100_000))
    client.calls[0].send(b"x" * 200_000)
    client.frames()
    client.send(head(3, is_end=True))
    assert client.resets() == [(3, ErrorCode.REFUSED_STREAM)]
    client.send(WIDE + window_update(1, 10**6) + head(5, is_end=True))
    assert len(client.calls) == 2


def test_a_client_that_lets_control_frames_pile_up_is_cut() -> None:
    client = Client()
    client.connection.pause_writing()
    client.transport.unsent = 2**25
    client.send(head(1, path=b"/x", is_end=True))

    assert client.transport.aborted


def test_a_shrunken_header_table_is_acknowledged_in_the_next_block() -> None:
    client = opened(1, 3)
    client.send(setting(HEADER_TABLE_SIZE, 0))
    client.frames()
    for call in client.calls:
        call.send(b"x")
        call.finish()

    frames = client.frames()
    blocks = [f.payload for f in frames if f.kind == HEADERS]
    assert [block[:1] == b"\x20" for block in blocks] == [True, False, False, False]
    assert client.answers(frames)[1].messages == [b"x"]


# What comes in


def test_the_windows_are_widened_in_large_steps() -> None:
    limits = Http2Limits(stream_window=2**18, connection_window=2**19)
    client = Client(limits=limits)
    raw = message(b"x" * 500_000)
    client.send(head(1))
    for start in range(0, len(raw), 50_000):
        client.send(data(1, raw[start : start + 50_000]))

    updates = [(f.stream, int.from_bytes(f.payload, "big")) for f in client.frames() if f.kind == WINDOW_UPDATE]
    assert updates == [(1, 150_000), (0, 300_000), (1, 150_000)]  # then the rest of the message fits


def test_a_window_that_a_message_has_used_up_is_widened_for_the_next() -> None:
    limits = Http2Limits(stream_window=2**18, connection_window=2**22)
    client = Client(limits=limits)
    raw = message(bytes(250_000 - 5))  # fits into the window, and nearly fills it
    client.send(head(1))
    for start in range(0, len(raw), 50_000):
        client.send(data(1, raw[start : start + 50_000]))

    updates = [(f.stream, int.from_bytes(f.payload, "big")) for f in client.frames() if f.kind == WINDOW_UPDATE]
    assert updates == [(1, 250_000)]


def test_small_calls_need_no_updates() -> None:
    client = Client()
    for number in range(100):
        client.send(unary(2 * number + 1, b"x" * 100))

    assert [f for f in client.frames() if f.kind == WINDOW_UPDATE] == []


def test_the_greeting_says_the_limits_and_widens_the_connection() -> None:
    client = Client(is_open=False)
    assert client.frames() == []  # a client of HTTP/1.1 would not understand
    client.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    first, second = client.frames()

    values = {
        int.from_bytes(first.payload[at : at + 2], "big"): int.from_bytes(first.payload[at + 2 : at + 6], "big")
        for at in range(0, len(first.payload), 6)
    }
    assert values == {1: 4096, 3: 1024, 4: 2**20, 5: 65536, 6: 16384}
    assert (second.kind, int.from_bytes(second.payload, "big")) == (WINDOW_UPDATE, 4 * 2**20 - 65_535)


@settings(deadline=None)
@given(st.data())
def test_whatever_the_windows_do_all_arrives_in_order_and_within_them(draw: st.DataObject) -> None:
    streams = (1, 3, 5)
    client = opened(*streams)
    windows = {0: 65_535, **dict.fromkeys(streams, 65_535)}
    initial = 65_535
    expected: dict[int, list[bytes]] = {s: [] for s in streams}
    received = dict.fromkeys(streams, b"")
    trailers = set()
    paused = False

    def collect() -> None:
        for f in client.frames():
            if f.kind == DATA:
                windows[0] -= len(f.payload)
                windows[f.stream] -= len(f.payload)
                assert windows[0] >= 0 and windows[f.stream] >= 0 and len(f.payload) <= 16_384
                received[f.stream] += f.payload
            elif f.kind == HEADERS and f.flags & 1:
                trailers.add(f.stream)

    steps = st.sampled_from(["send", "send", "widen", "connection", "initial", "pause"])
    for step in draw.draw(st.lists(steps, max_size=30)):
        stream = draw.draw(st.sampled_from(streams))
        size = draw.draw(st.one_of(st.integers(1, 16_000), st.integers(1, 60_000)))
        if step == "send":
            text = bytes((stream,)) * size
            client.calls[streams.index(stream)].send(text)
            expected[stream].append(text)
        elif step == "widen":
            windows[stream] += size
            client.send(window_update(stream, size))
        elif step == "connection":
            windows[0] += size
            client.send(window_update(0, size))
        elif step == "initial":
            for other in streams:
                windows[other] += size - initial
            initial = size
            client.send(setting(INITIAL_WINDOW_SIZE, size))
        else:
            paused = not paused
            client.connection.pause_writing() if paused else client.connection.resume_writing()
        collect()
    for call in client.calls:
        call.finish()
    if paused:
        client.connection.resume_writing()
    for stream in (0, *streams):
        windows[stream] += 10**8
        client.send(window_update(stream, 10**8))
    collect()

    assert {s: messages_of(raw) for s, raw in received.items()} == expected
    assert trailers == set(streams)
    assert client.connection._queued == 0


def test_a_deadline_cuts_a_call_whose_answer_waits() -> None:
    client = Client(quiet)
    client.send(head(1, (b"grpc-timeout", b"1S"), is_end=True))
    client.calls[0].send(b"x" * 100_000)
    client.frames()
    client.clock.move(2)
    assert client.gone == client.calls
    client.send(WIDE + window_update(1, 10**6))

    assert client.resets() == [(1, ErrorCode.CANCEL)]
    assert client.connection._queued == 0


# Large messages


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 250_000), max_size=6), st.integers(0, 3))
def test_large_messages_come_whole_however_the_stream_is_cut(cuts: list[int], calls: int) -> None:
    """Reads end inside frames, inside their heads, and after many of them."""
    client = Client()
    client.send(setting(INITIAL_WINDOW_SIZE, 2**20) + WIDE)
    client.frames()
    texts = [bytes([65 + number]) * 90_000 for number in range(calls)]
    stream = b""
    for number, text in enumerate(texts):
        raw = message(text)
        stream += head(2 * number + 1)
        stream += data(2 * number + 1, raw[:60_000]) + data(2 * number + 1, raw[60_000:], is_end=True)
    at = 0
    for size in [*cuts, len(stream)]:
        if stream[at : at + size]:
            client.send(stream[at : at + size])
        at += size

    answers = client.answers([f for f in client.frames() if f.kind in (HEADERS, DATA)])
    assert [answers[stream].messages for stream in sorted(answers)] == [[text] for text in texts]


@pytest.mark.parametrize("sizes_of", [[3, 4], [40_000, 5], [10, 100_000, 0, 7]])
def test_a_message_in_pieces_is_one_message(sizes_of: list[int]) -> None:
    client = Client(quiet)
    client.send(setting(INITIAL_WINDOW_SIZE, 2**20) + WIDE + head(1, is_end=True))
    (call,) = client.calls
    first, *rest = [bytes([97 + number]) * size for number, size in enumerate(sizes_of)]
    call.send(first, *(memoryview(piece) for piece in rest))
    call.finish()
    assert client.answers()[1].messages == [b"".join((first, *rest))]


def in_frames(stream: int, text: bytes, step: int = 16_384) -> bytes:
    raw = message(text)
    return b"".join(data(stream, raw[at : at + step], at + step >= len(raw)) for at in range(0, len(raw), step))


@pytest.mark.parametrize(("size", "heard"), [(LARGE, "pieces"), (LARGE - 1, "message")])
def test_a_service_that_wants_large_messages_in_pieces_gets_only_those_so(size: int, heard: str) -> None:
    got: list[tuple[str, bytes]] = []

    def service(call: Call) -> None:
        call.on_message = lambda text: got.append(("message", text))
        call.on_pieces = lambda text: got.append(("pieces", text.joined()))

    client = Client(service)
    text = bytes(range(256)) * (size // 256 + 1)
    client.send(head(1) + in_frames(1, text[:size]))

    assert got == [(heard, text[:size])]


def test_a_service_that_fails_on_pieces_fails_its_call_alone(caplog: pytest.LogCaptureFixture) -> None:
    def broken(text: Fragments) -> None:
        raise ZeroDivisionError("a bug")

    def service(call: Call) -> None:
        call.on_pieces = broken

    client = Client(service)
    client.send(head(1) + in_frames(1, bytes(LARGE)))

    assert client.answers(client.frames())[1].fields[b"grpc-status"] == b"2"
    assert "the service failed on /t.T/Echo" in caplog.text
    assert client.hub.budget.used == 0

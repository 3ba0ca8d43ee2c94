"""Clients that break the rules: which end a stream, which the connection, and what floods are stopped."""

import pytest

from shoal.frontend.http2.frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    LARGEST,
    PADDED,
    PING,
    PREFACE,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    WITH_PRIORITY,
    ErrorCode,
    window_update,
)
from shoal.frontend.http2.hpack import encode
from shoal.frontend.http2.limits import Http2Limits
from shoal.frontend.rpc import Call
from tests.unit.frontend.http2.fakes import HEAD, Client, data, frame, head, message, unary
from tests.unit.frontend.http2.test_flow import setting

BLOCK = encode(HEAD)
CANCEL = b"\0\0\0\x08"
PROTOCOL, SIZE, FLOW = ErrorCode.PROTOCOL_ERROR, ErrorCode.FRAME_SIZE_ERROR, ErrorCode.FLOW_CONTROL_ERROR
CLOSED, COMPRESSION, CALM = ErrorCode.STREAM_CLOSED, ErrorCode.COMPRESSION_ERROR, ErrorCode.ENHANCE_YOUR_CALM


def quiet(call: Call) -> None:
    pass


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (data(0, b"x"), PROTOCOL),
        (data(3, b"x"), PROTOCOL),  # idle
        (frame(HEADERS, END_HEADERS, 0, BLOCK), PROTOCOL),
        (frame(HEADERS, 0, 0, BLOCK), PROTOCOL),
        (frame(HEADERS, END_HEADERS, 2, BLOCK), PROTOCOL),
        (frame(HEADERS, END_HEADERS, 4, BLOCK), PROTOCOL),
        (frame(HEADERS, END_HEADERS | PADDED, 3, b""), SIZE),
        (frame(HEADERS, END_HEADERS | PADDED, 3, b"\xff" + BLOCK), PROTOCOL),
        (frame(HEADERS, END_HEADERS | WITH_PRIORITY, 3, b"\0\0"), SIZE),
        (frame(HEADERS, END_HEADERS | WITH_PRIORITY, 3, b"\0\0\0\x03\0" + BLOCK), PROTOCOL),  # on itself
        (frame(HEADERS, END_HEADERS, 3, b"\x80"), COMPRESSION),
        (frame(HEADERS, 0, 3, BLOCK) + frame(PING, 0, 0, bytes(8)), PROTOCOL),
        (frame(HEADERS, 0, 3, BLOCK) + frame(99), PROTOCOL),
        (frame(HEADERS, 0, 3, BLOCK) + frame(CONTINUATION, END_HEADERS, 5, BLOCK), PROTOCOL),
        (frame(CONTINUATION, END_HEADERS, 1, BLOCK), PROTOCOL),
        (frame(CONTINUATION, END_HEADERS, 0, BLOCK), PROTOCOL),
        (frame(DATA, PADDED, 1, b""), SIZE),
        (frame(DATA, PADDED, 1, b"\x05abc"), PROTOCOL),
        (frame(PRIORITY, 0, 0, bytes(5)), PROTOCOL),
        (frame(PRIORITY, 0, 1, bytes(4)), SIZE),
        (frame(PRIORITY, 0, 9, b"\0\0\0\x09\0"), PROTOCOL),
        (frame(RST_STREAM, 0, 0, CANCEL), PROTOCOL),
        (frame(RST_STREAM, 0, 3, CANCEL), PROTOCOL),
        (frame(RST_STREAM, 0, 1, b"\0\0\0"), SIZE),
        (frame(SETTINGS, 0, 1), PROTOCOL),
        (frame(SETTINGS, ACK, 0, bytes(6)), SIZE),
        (frame(SETTINGS, 0, 0, bytes(5)), SIZE),
        (setting(2, 2), PROTOCOL),
        (setting(4, 2**31), FLOW),
        (setting(5, 16_383), PROTOCOL),
        (setting(5, 2**24), PROTOCOL),
        (frame(SETTINGS, 0, 0, (b"\0\x63" + bytes(4)) * 65), CALM),
        (frame(PUSH_PROMISE, END_HEADERS, 1, bytes(4) + BLOCK), PROTOCOL),
        (frame(PING, 0, 1, bytes(8)), PROTOCOL),
        (frame(PING, 0, 0, bytes(7)), SIZE),
        (frame(GOAWAY, 0, 1, bytes(8)), PROTOCOL),
        (frame(GOAWAY, 0, 0, bytes(7)), SIZE),
        (frame(WINDOW_UPDATE, 0, 0, bytes(4)), PROTOCOL),
        (frame(WINDOW_UPDATE, 0, 0, b"\0\0\0"), SIZE),
        (window_update(3, 5), PROTOCOL),
        (window_update(0, LARGEST), FLOW),
        (setting(4, LARGEST) + window_update(1, 1) + setting(4, LARGEST), None),
        (window_update(1, 1000) + setting(4, LARGEST), FLOW),
        ((65_537 << 8).to_bytes(4, "big") + bytes(5), SIZE),  # a frame too large, by its head alone
        (frame(HEADERS, END_HEADERS, 3, b"\0" + bytes(1)), PROTOCOL),
    ],
)
def test_a_broken_rule_of_the_connection_ends_it_with_its_code(raw: bytes, code: ErrorCode | None) -> None:
    client = Client(quiet)
    client.send(head(1))
    client.send(raw)
    if code is None:  # it is the stream's window that went too far
        assert client.resets() == [(1, FLOW)]
        return

    assert client.goaway() == (1, code)
    assert client.transport.ended
    assert client.gone == client.calls
    client.send(unary(101, b"x") + raw)
    assert client.frames() == []


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (frame(WINDOW_UPDATE, 0, 1, bytes(4)), PROTOCOL),
        (window_update(1, LARGEST), FLOW),
        (frame(HEADERS, END_HEADERS, 1, encode([(b"t", b"u")])), PROTOCOL),  # trailers that do not end it
        (data(1, b"", is_end=True) + data(1, b"x"), CLOSED),
        (data(1, b"", is_end=True) + frame(HEADERS, END_HEADERS | END_STREAM, 1, BLOCK), CLOSED),
    ],
)
def test_a_broken_rule_of_a_stream_ends_the_stream_alone(raw: bytes, code: ErrorCode) -> None:
    client = Client(quiet)
    client.send(head(1) + head(3) + raw)

    assert client.resets() == [(1, code)]
    assert client.gone == client.calls[:1]
    assert client.is_alive
    client.calls[1].finish()
    assert list(client.answers()) == [3]


def test_frames_for_a_stream_that_was_just_ended_are_let_pass() -> None:
    client = Client()
    client.send(unary(1, b"a"))
    client.frames()
    client.send(window_update(1, 5) + frame(RST_STREAM, 0, 1, CANCEL) + frame(PRIORITY, 0, 1, bytes(5)))
    assert client.frames() == [] and client.is_alive
    client.send(data(1, b"x"))
    assert client.resets() == [(1, CLOSED)]
    client.send(frame(HEADERS, END_HEADERS, 1, BLOCK))
    assert client.goaway() == (1, CLOSED)


def test_unknown_frames_flags_and_settings_are_ignored() -> None:
    client = Client()
    client.send(frame(200, 0xFF, 7, b"what") + setting(99, 1) + frame(PING, 0xFE, 0, b"12345678"))
    client.send(frame(SETTINGS, ACK) + frame(PING, ACK, 0, b"12345678") + unary(1, b"x"))

    frames = client.frames()
    assert [(f.kind, f.flags) for f in frames[:2]] == [(SETTINGS, ACK), (PING, ACK)]
    assert frames[1].payload == b"12345678"
    assert client.answers(frames)[1].messages == [b"x"]


def test_the_reserved_bit_of_a_stream_is_ignored() -> None:
    client = Client()
    raw = bytearray(head(1, is_end=True))
    raw[5] |= 0x80
    client.send(bytes(raw))

    assert list(client.answers()) == [1]


@pytest.mark.parametrize("first", [frame(PING, 0, 0, bytes(8)), frame(SETTINGS, ACK), head(1)])
def test_the_first_frame_is_settings(first: bytes) -> None:
    client = Client(is_open=False)
    client.send(PREFACE + first)

    assert client.goaway() == (0, PROTOCOL)


@pytest.mark.parametrize("raw", [b"\x16\x03\x01\x02\x00", b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", b"hello there", b"\0"])
def test_another_protocol_is_closed_without_a_word(raw: bytes) -> None:
    client = Client(is_open=False)
    client.send(raw)

    assert client.transport.closed
    assert client.transport.written == b""


@pytest.mark.parametrize("cut", [1, 3, 4, 10])
def test_a_client_of_http_1_is_told_in_its_own_words(cut: int) -> None:
    raw = b"POST /t.T/Echo HTTP/1.1\r\nHost: a\r\n\r\n"
    client = Client(is_open=False)
    client.send(raw[:cut])
    client.send(raw[cut:])

    assert client.transport.written.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert client.transport.written.endswith(b"\r\n\r\nthis port speaks gRPC, over HTTP/2\n")
    assert client.transport.ended


# Floods


def test_streams_above_the_limit_are_refused_and_their_data_let_pass() -> None:
    client = Client(quiet, Http2Limits(max_streams=2))
    client.send(b"".join(head(s) + data(s, message(b"x")) for s in (1, 3, 5)))
    assert client.resets() == [(5, ErrorCode.REFUSED_STREAM)]
    client.send(data(5, b"", is_end=True))
    client.calls[0].finish()
    client.send(head(7))

    assert len(client.calls) == 3
    assert client.is_alive


def flood(client: Client, raw: bytes, times: int) -> bool:
    """Whether the connection lived through it."""
    for _ in range(times):
        client.send(raw)
    return client.is_alive


QUICK = Http2Limits(idle_budget=20, idle_rate=1.0, reset_budget=20, reset_rate=1.0)


@pytest.mark.parametrize(
    "raw",
    [
        frame(PING, 0, 0, bytes(8)),
        frame(PING, ACK, 0, bytes(8)),
        frame(SETTINGS),
        frame(PRIORITY, 0, 9, bytes(5)),
        frame(99),
        data(1, b""),
        frame(DATA, PADDED, 1, b"\x00") + data(1, b""),
    ],
)
def test_frames_that_carry_nothing_are_limited(raw: bytes) -> None:
    client = Client(quiet, QUICK)
    client.send(head(1))
    assert flood(client, raw, 18)
    client.hub.sweep(client.hub.now + 5)
    client.frames()
    assert flood(client, raw, 5)
    client.frames()
    assert not flood(client, raw, 20)
    assert client.goaway() == (1, CALM)


def test_empty_continuations_are_limited() -> None:
    client = Client(quiet, QUICK)
    client.send(frame(HEADERS, 0, 1, b""))

    assert not flood(client, frame(CONTINUATION, 0, 1), 30)
    assert client.goaway() == (0, CALM)


def test_a_head_that_never_ends_is_limited() -> None:
    client = Client(quiet)
    client.send(frame(HEADERS, 0, 1, b"\x00"))
    assert flood(client, frame(CONTINUATION, 0, 1, bytes(1000)), 32)
    assert not flood(client, frame(CONTINUATION, 0, 1, bytes(1000)), 1)
    assert client.goaway() == (0, CALM)


def test_a_head_of_one_huge_frame_is_limited() -> None:
    client = Client(quiet)
    client.send(frame(HEADERS, END_HEADERS, 1, bytes(33_000)))

    assert client.goaway() == (0, CALM)


def test_calls_begun_and_cancelled_at_once_are_limited() -> None:
    client = Client(quiet, QUICK)
    for number in range(1, 19):
        client.send(head(2 * number + 1) + frame(RST_STREAM, 0, 2 * number + 1, CANCEL))
    assert client.is_alive
    for number in range(19, 40):
        client.send(head(2 * number + 1) + frame(RST_STREAM, 0, 2 * number + 1, CANCEL))

    assert client.goaway()[1] == CALM
    assert client.gone == client.calls


def test_calls_cancelled_after_a_while_are_not() -> None:
    client = Client(quiet, QUICK)
    streams = range(1, 100, 2)
    for stream in streams:
        client.send(head(stream))
    client.hub.sweep(client.hub.now + 1)
    for stream in streams:
        client.send(frame(RST_STREAM, 0, stream, CANCEL))

    assert client.is_alive
    assert client.gone == client.calls


def test_streams_broken_by_the_client_count_like_cancelled_ones() -> None:
    client = Client(quiet, QUICK)
    for stream in range(1, 61, 2):
        client.send(head(stream) + frame(WINDOW_UPDATE, 0, stream, bytes(4)))

    assert client.goaway()[1] == CALM


def test_what_is_remembered_of_ended_streams_is_bounded() -> None:
    client = Client(lambda call: call.finish())
    for number in range(3000):
        client.send(head(2 * number + 1))

    assert client.is_alive
    assert len(client.connection._cut) <= 1024
    client.send(data(5999, b"late", is_end=True))
    assert client.is_alive


def test_connections_above_the_limit_are_closed() -> None:
    limits = Http2Limits(max_connections=2)
    first = Client(limits=limits, is_open=False)
    second = Client(limits=limits, hub=first.hub, is_open=False)
    third = Client(limits=limits, hub=first.hub, is_open=False)

    assert (first.is_alive, second.is_alive, third.is_alive) == (True, True, False)
    assert first.hub.refused == 1

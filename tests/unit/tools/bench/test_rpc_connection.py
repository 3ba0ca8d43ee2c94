"""One HTTP/2 connection of a load process, fed by hand: what it sends, and when it takes an answer for whole."""

import asyncio
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.frontend.http2 import frames, hpack
from shoal.tools.bench.rpc_connection import HELLO, RpcConnection

BLOCK = hpack.encode([(b":method", b"POST"), (b":path", b"/a.B/C")])
HEAD = hpack.encode([(b":status", b"200"), (b"content-type", b"application/grpc")])
GREETING = frames.settings({})


def trailers(code: int = 0, message: bytes = b"") -> bytes:
    return hpack.encode([(b"grpc-status", str(code).encode()), (b"grpc-message", message)])


def data(stream: int, payload: bytes, flags: int = 0) -> bytes:
    return frames.pack_head(len(payload) << 8 | frames.DATA, flags, stream) + payload


def answer(stream: int, code: int = 0, body: bytes = b"\0\0\0\0\1x") -> bytes:
    return b"".join(
        (
            frames.headers(stream, HEAD, False, 16384),
            data(stream, body),
            frames.headers(stream, trailers(code), True, 16384),
        )
    )


class Wire(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        self.sent = b""
        self.closed = ""

    def write(self, data: Any) -> None:
        self.sent += bytes(data)

    def close(self) -> None:
        self.closed = "close"

    def abort(self) -> None:
        self.closed = "abort"

    def frames(self) -> list[tuple[int, int, int, bytes]]:
        """Kind, flags, stream and payload of what was sent after the greeting."""
        at, found = len(HELLO), []
        while at < len(self.sent):
            number, flags, stream = frames.head_at(self.sent, at)
            payload = self.sent[at + 9 : at + 9 + (number >> 8)]
            found.append((number & 0xFF, flags, stream, payload))
            at += 9 + len(payload)
        return found


class Desk:
    """Keeps what it hears."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []

    def ready(self, connection: RpcConnection) -> None:
        self.heard.append(b"ready")

    def answered(self, connection: RpcConnection, status: bytes, head: bytes) -> None:
        self.heard.append(status)

    def lost(self, connection: RpcConnection, error: BaseException | None) -> None:
        self.heard.append(b"lost")


def connected(*, keeps: bool = False) -> tuple[RpcConnection, Wire, Desk]:
    desk, wire = Desk(), Wire()
    connection = RpcConnection(desk, BLOCK, keeps=keeps)
    connection.connection_made(wire)
    return connection, wire, desk


def test_it_greets_and_is_ready() -> None:
    connection, wire, desk = connected()

    assert wire.sent == HELLO and HELLO.startswith(frames.PREFACE)
    assert (desk.heard, connection.is_open) == ([b"ready"], True)


def test_calls_go_over_one_stream_after_the_other() -> None:
    connection, wire, desk = connected()
    connection.data_received(GREETING)
    for number in (1, 3, 5):
        connection.send(b"request", 0.0, 0.0)
        connection.data_received(answer(number))

    assert desk.heard == [b"ready", b"200", b"200", b"200"]
    assert [(kind, stream) for kind, _, stream, _ in wire.frames() if kind != frames.SETTINGS] == [
        *((frames.HEADERS, 1), (frames.DATA, 1), (frames.HEADERS, 3), (frames.DATA, 3)),
        *((frames.HEADERS, 5), (frames.DATA, 5)),
    ]


@given(st.lists(st.integers(0, 200), max_size=8))
def test_an_answer_may_come_in_any_pieces(cuts: list[int]) -> None:
    connection, _, desk = connected(keeps=True)
    connection.send(b"request", 0.0, 0.0)
    stream = GREETING + answer(1, body=b"\0\0\0\0\5hello")
    places = sorted({min(cut, len(stream)) for cut in (0, *cuts, len(stream))})
    for start, end in itertools.pairwise(places):
        connection.data_received(stream[start:end])

    assert desk.heard == [b"ready", b"200"]
    assert bytes(connection.body[5:]) == b"hello"


def test_an_error_is_called_by_its_name_and_its_words_are_kept() -> None:
    connection, _, desk = connected()
    connection.send(b"request", 0.0, 0.0)
    block = trailers(14, b"not%20now%0Areally")
    connection.data_received(GREETING + frames.headers(1, block, True, 16384))

    assert desk.heard[-1] == b"UNAVAILABLE"
    assert connection.message == "not now really"
    assert connection.is_open


@pytest.mark.parametrize(
    ("said", "status"),
    [
        (frames.rst_stream(1, frames.ErrorCode.CANCEL), b"stream reset"),
        (frames.headers(1, HEAD, False, 16384) + data(1, b"", frames.END_STREAM), b"no grpc-status"),
        (frames.headers(1, hpack.encode([(b":status", b"404")]), True, 16384), b"HTTP 404"),
        (frames.headers(1, hpack.encode([(b"grpc-status", b"99")]), True, 16384), b"status 99"),
    ],
)
def test_other_ends_are_told_apart(said: bytes, status: bytes) -> None:
    connection, _, desk = connected()
    connection.send(b"request", 0.0, 0.0)
    connection.data_received(GREETING + said)

    assert desk.heard[-1] == status


@pytest.mark.parametrize("first", [0, 1])
def test_a_large_request_is_sent_as_both_windows_allow(first: int) -> None:
    connection, wire, _ = connected()
    request = bytes(200_000)
    connection.data_received(GREETING)
    connection.send(request, 0.0, 0.0)
    sizes = [len(payload) for kind, _, _, payload in wire.frames() if kind == frames.DATA]
    assert sizes == [16384, 16384, 16384, 16383]

    connection.data_received(frames.window_update(first, 1_000_000))
    assert sum(len(payload) for kind, _, _, payload in wire.frames() if kind == frames.DATA) == 65_535
    connection.data_received(frames.window_update(1 - first, 1_000_000))

    sent = [(flags, payload) for kind, flags, _, payload in wire.frames() if kind == frames.DATA]
    assert b"".join(payload for _, payload in sent) == request
    assert [flags for flags, _ in sent] == [0] * (len(sent) - 1) + [frames.END_STREAM]


def test_a_server_that_allows_more_is_sent_more() -> None:
    connection, wire, _ = connected()
    connection.data_received(frames.settings({frames.INITIAL_WINDOW_SIZE: 10, frames.MAX_FRAME_SIZE: 50_000}))
    connection.send(bytes(60_000), 0.0, 0.0)
    assert [len(payload) for kind, _, _, payload in wire.frames() if kind == frames.DATA] == [10]

    connection.data_received(frames.settings({frames.INITIAL_WINDOW_SIZE: 100_000}))

    assert [len(payload) for kind, _, _, payload in wire.frames() if kind == frames.DATA] == [10, 50_000, 9_990]


def test_an_early_answer_ends_the_sending() -> None:
    connection, wire, desk = connected()
    connection.send(bytes(100_000), 0.0, 0.0)
    connection.data_received(GREETING + frames.headers(1, trailers(8), True, 16384))

    assert desk.heard[-1] == b"RESOURCE_EXHAUSTED"
    assert wire.frames()[-1][0] == frames.RST_STREAM
    connection.data_received(frames.window_update(0, 1_000_000))
    assert wire.frames()[-1][0] == frames.RST_STREAM


def test_settings_and_pings_are_answered() -> None:
    connection, wire, _ = connected()
    connection.data_received(GREETING + frames.ping(b"12345678"))

    assert wire.sent[len(HELLO) :] == frames.SETTINGS_ACK + frames.ping(b"12345678", is_answer=True)


def test_a_server_that_leaves_gets_no_further_call() -> None:
    connection, wire, desk = connected()
    connection.send(b"request", 0.0, 0.0)
    connection.data_received(GREETING + frames.goaway(1, frames.ErrorCode.NO_ERROR))
    assert connection.is_open and not wire.closed

    connection.data_received(answer(1))

    assert desk.heard[-1] == b"200"
    assert (connection.is_open, wire.closed) == (False, "close")


def test_a_head_may_go_on_in_further_frames() -> None:
    connection, _, desk = connected()
    connection.send(b"request", 0.0, 0.0)
    block = hpack.encode([(b"grpc-status", b"0"), (b"long", b"x" * 300)])
    connection.data_received(GREETING + frames.headers(1, block, True, 100))

    assert desk.heard[-1] == b"200"


@pytest.mark.parametrize("said", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\xff" * 40, answer(1)])
def test_what_is_no_http_2_is_closed(said: bytes) -> None:
    connection, wire, _ = connected()
    connection.send(b"request", 0.0, 0.0)
    connection.data_received(said)

    assert (connection.problem, wire.closed) == ("not HTTP/2", "abort")


def test_much_data_refills_the_connections_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.tools.bench.rpc_connection.REFILL", 1000)
    connection, wire, _ = connected()
    connection.send(b"request", 0.0, 0.0)
    connection.data_received(GREETING + data(1, bytes(600)) + data(1, bytes(600)))

    assert wire.frames()[-1] == (frames.WINDOW_UPDATE, 0, 0, (1200).to_bytes(4, "big"))

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.tools.bench.connection import Connection, timing_of

ANSWERS = {
    "length": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX: y\r\n\r\nhello",
    "lower case": b"HTTP/1.1 200 OK\r\ncontent-length:5\r\n\r\nhello",
    "chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "chunked, an empty line inside": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-Note: \r\n\r\n4\r\n\r\n\r\n\r\n0\r\n\r\n"
    ),
    "empty": b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    "none": b"HTTP/1.1 204 No Content\r\n\r\n",
    "continued": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
    "no phrase": b"HTTP/1.1 200 \r\nContent-Length: 1\r\n\r\nx",
}


class FakeTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.is_closed = False

    def write(self, data: Any) -> None:
        self.written += data

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = True


class Desk:
    def __init__(self) -> None:
        self.heard: list[tuple[bytes, bool]] = []
        self.losses: list[tuple[str, bool]] = []

    def ready(self, connection: Connection) -> None:
        connection.send(b"request", 1.0, 1.5)

    def answered(self, connection: Connection, status: bytes, head: bytes) -> None:
        self.heard.append((status, connection.is_open))

    def lost(self, connection: Connection, error: BaseException | None) -> None:
        self.losses.append((connection.problem, connection.is_busy))


def connected() -> tuple[Connection, Desk, FakeTransport]:
    desk, transport = Desk(), FakeTransport()
    connection = Connection(desk)
    connection.connection_made(transport)
    return connection, desk, transport


@pytest.mark.parametrize("name", ANSWERS)
@given(data=st.data())
def test_an_answer_is_whole_however_it_is_cut(name: str, data: st.DataObject) -> None:
    whole = ANSWERS[name]
    cuts = sorted(data.draw(st.lists(st.integers(1, len(whole) - 1), max_size=6)))
    connection, desk, transport = connected()

    for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        assert desk.heard == []
        connection.data_received(whole[start:end]) if start != end else None

    assert desk.heard == [(b"204" if name == "none" else b"200", True)]
    assert not transport.is_closed
    assert not connection.is_busy


def test_a_connection_is_used_again() -> None:
    connection, desk, transport = connected()
    for _ in range(3):
        connection.data_received(ANSWERS["length"])
        connection.send(b"+", 2.0, 2.0)

    assert len(desk.heard) == 3
    assert transport.written == b"request+++"


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 503 x\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx",
        b"HTTP/1.1 503 x\r\ncontent-length: 1\r\nconnection:close\r\n\r\nx",
        b"HTTP/1.0 503 x\r\nContent-Length: 1\r\n\r\nx",
        b"HTTP/1.1 503 x\r\nContent-Length: 1\r\n\r\nx and more than was said",
    ],
)
def test_a_connection_that_ends_with_its_answer_is_not_used_again(answer: bytes) -> None:
    connection, desk, transport = connected()

    connection.data_received(answer)

    assert desk.heard == [(b"503", False)]
    assert transport.is_closed


def test_a_body_without_a_length_ends_with_the_connection() -> None:
    connection, desk, _ = connected()

    connection.data_received(b"HTTP/1.1 200 OK\r\n\r\nbody")
    connection.data_received(b" and more")
    assert desk.heard == []
    connection.connection_lost(None)

    assert desk.heard == [(b"200", False)]
    assert desk.losses == [("", False)]


def test_a_connection_that_breaks_inside_an_answer_has_not_answered() -> None:
    connection, desk, _ = connected()

    connection.data_received(ANSWERS["length"][:-1])
    connection.connection_lost(None)

    assert desk.heard == []
    assert desk.losses == [("", True)]


@pytest.mark.parametrize("data", [b"SSH-2.0-OpenSSH\r\n", b"\x15\x03\x01", b"HTTP/2 200 OK\r\n\r\n", b"x" * 300_000])
def test_what_is_no_http_is_said_to_be_none(data: bytes) -> None:
    connection, _, transport = connected()

    connection.data_received(data)

    assert connection.problem == "not HTTP"
    assert transport.is_closed


def test_broken_chunks_are_no_http() -> None:
    connection, desk, _ = connected()

    connection.data_received(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")

    assert (connection.problem, desk.heard) == ("not HTTP", [])


def test_an_answer_nobody_asked_for_is_no_http() -> None:
    connection, desk, _ = connected()
    connection.data_received(ANSWERS["length"])

    connection.data_received(ANSWERS["length"])

    assert connection.problem == "not HTTP"
    assert len(desk.heard) == 1


def test_the_servers_timing_is_found_in_any_case() -> None:
    assert timing_of(b"HTTP/1.1 200 OK\r\nserver-timing: queue;dur=1\r\nA: b\r\n") == "queue;dur=1"
    assert timing_of(b"HTTP/1.1 200 OK\r\nX-Server-Timing: queue;dur=1\r\n") == ""

"""Time on a connection: what may take how long, and how it leaves."""

import pytest

from shoal.frontend.http2.connection import Http2Connection
from shoal.frontend.http2.frames import (
    CONTINUATION,
    END_STREAM,
    GOAWAY,
    HEADERS,
    LARGEST,
    PING,
    PREFACE,
    SETTINGS,
    ErrorCode,
    window_update,
)
from shoal.frontend.http2.hpack import encode
from shoal.frontend.http2.limits import Http2Limits
from shoal.frontend.rpc import Call
from tests.unit.frontend.http2.fakes import HEAD, Client, data, frame, head, message, unary
from tests.unit.frontend.http_fakes import FakeTransport

NO_ERROR = ErrorCode.NO_ERROR


def quiet(call: Call) -> None:
    pass


def wait(client: Client, seconds: float) -> None:
    client.hub.sweep(client.hub.now + seconds)


@pytest.mark.parametrize("raw", [b"", PREFACE[:5], PREFACE, PREFACE + frame(SETTINGS)[:4]])
def test_a_client_must_say_what_it_is(raw: bytes) -> None:
    client = Client(is_open=False)
    if raw:
        client.send(raw)
    wait(client, 9)
    assert client.is_alive
    wait(client, 2)
    assert not client.is_alive


def test_an_idle_connection_is_left_politely() -> None:
    client = Client()
    client.send(unary(1, b"x"))
    wait(client, 299)
    assert client.is_alive
    client.frames()
    wait(client, 2)
    assert client.goaway() == (1, NO_ERROR)
    assert client.transport.ended
    wait(client, 3)
    assert client.transport.aborted


def test_an_idle_connection_is_not_left_for_the_time_the_loop_stood_still() -> None:
    client = Client()
    client.send(unary(1, b"x"))
    client.hub.sweep(client.hub.now + 1000, late=900)
    assert client.is_alive and not client.transport.ended
    wait(client, 900 + 201)
    assert client.goaway() == (1, NO_ERROR)


def test_a_call_begun_keeps_the_connection_if_its_client_is_there() -> None:
    client = Client(quiet)
    client.send(head(1))
    wait(client, 61)
    (asked,) = client.frames()
    assert (asked.kind, asked.flags) == (PING, 0)
    client.send(frame(PING, 1, 0, asked.payload))
    wait(client, 59)
    assert client.frames() == [] and client.is_alive
    wait(client, 2)
    assert len(client.frames()) == 1
    wait(client, 21)
    assert client.transport.aborted


def test_a_head_in_pieces_has_its_time_however_many_come() -> None:
    client = Client(quiet)
    client.send(frame(HEADERS, 0, 1, encode(HEAD)[:5]))
    for _ in range(9):
        client.send(frame(CONTINUATION, 0, 1, b"\0"))
        wait(client, 1)
    assert client.is_alive
    client.send(frame(CONTINUATION, 0, 1, b"\0"))
    wait(client, 2)
    assert client.goaway()[1] == ErrorCode.PROTOCOL_ERROR


def test_half_a_frame_has_its_time_however_it_drips() -> None:
    client = Client(quiet)
    client.send(head(1, is_end=True) + data(1, b"x" * 100)[:20])
    for _ in range(29):
        wait(client, 1)
        client.send(b"x")
    assert client.is_alive
    wait(client, 2)
    assert not client.is_alive


def test_a_message_that_stops_coming_ends_its_call_alone() -> None:
    client = Client(quiet)
    client.send(head(1) + data(1, message(b"x" * 100)[:50]) + head(3))
    for number in range(31):
        client.send(unary(5 + 2 * number, b"busy"))
        wait(client, 1)

    assert client.resets() == [(1, ErrorCode.CANCEL)]
    assert client.gone == client.calls[:1]
    assert client.is_alive
    wait(client, 50)
    assert client.is_alive


def test_a_message_that_comes_slowly_is_taken() -> None:
    client = Client()
    raw = message(b"x" * 10)
    client.send(head(1))
    for place in range(len(raw)):
        client.send(data(1, raw[place : place + 1], is_end=place == len(raw) - 1))
        wait(client, 20)
        client.frames() if place < len(raw) - 1 else None

    assert client.answer().messages == [b"x" * 10]


def test_a_call_whose_answer_is_not_taken_ends_alone() -> None:
    client = Client(quiet)
    client.send(head(1, is_end=True) + head(3, is_end=True) + window_update(0, 10**6))
    for call in client.calls:
        call.send(b"x" * 100_000)
    client.frames()
    wait(client, 40)
    client.send(window_update(3, 10))
    wait(client, 30)

    assert client.resets() == [(1, ErrorCode.CANCEL)]
    assert client.gone == client.calls[:1]
    wait(client, 40)
    assert client.resets() == [(3, ErrorCode.CANCEL)]
    assert client.connection._queued == 0


def test_a_client_that_reads_nothing_is_cut() -> None:
    client = Client(quiet)
    client.send(head(1, is_end=True))
    client.transport.unsent = 200_000
    client.connection.pause_writing()
    wait(client, 59)
    client.transport.unsent = 100_000
    wait(client, 2)
    assert not client.transport.aborted  # it reads, slowly
    wait(client, 61)
    assert client.transport.aborted


# Leaving


def test_a_draining_server_finishes_what_is_open_and_what_is_under_way() -> None:
    client = Client(quiet)
    client.send(head(1, is_end=True))
    client.hub.finish()
    away, farewell = client.frames()
    assert away.kind == GOAWAY and int.from_bytes(away.payload[:4], "big") == LARGEST
    client.send(head(3, is_end=True))  # it was under way
    assert len(client.calls) == 2
    client.send(frame(PING, 1, 0, farewell.payload))
    assert client.goaway() == (3, NO_ERROR)
    client.send(head(5, is_end=True))
    assert client.resets() == [(5, ErrorCode.REFUSED_STREAM)]
    client.calls[0].finish()
    assert client.is_alive
    client.calls[1].send(b"last")
    client.calls[1].finish()
    assert client.transport.ended
    assert client.answers()[3].messages == [b"last"]
    assert client.gone == []


def test_a_draining_server_closes_a_connection_without_calls_when_nothing_is_under_way() -> None:
    client = Client(quiet)
    client.hub.finish()
    farewell = client.frames()[1]
    assert client.is_alive
    client.send(frame(PING, 1, 0, farewell.payload))

    assert client.transport.ended


def test_a_draining_server_waits_for_what_waits_for_its_client() -> None:
    client = Client(quiet)
    client.send(head(1, is_end=True))
    client.calls[0].send(b"x" * 100_000)
    client.calls[0].finish()
    client.hub.finish()
    client.frames()
    client.send(frame(PING, 1, 0, b"farewell"))
    assert client.is_alive
    client.send(window_update(0, 10**6) + window_update(1, 10**6))

    assert client.transport.ended
    frames = client.frames()
    assert (frames[-1].kind, frames[-1].flags & END_STREAM) == (HEADERS, END_STREAM)


def test_a_drain_closes_who_has_not_said_hello_and_whoever_comes() -> None:
    client = Client(is_open=False)
    client.hub.finish()
    late = Client(hub=client.hub, is_open=False)

    assert client.transport.closed and late.transport.closed


def test_an_answer_to_a_ping_nobody_sent_means_nothing() -> None:
    client = Client(quiet)
    client.send(frame(PING, 1, 0, b"farewell"))

    assert client.is_alive and client.frames() == []


def test_a_client_that_says_goodbye_gets_its_answers_first() -> None:
    client = Client(quiet)
    client.send(head(1, is_end=True) + frame(GOAWAY, 0, 0, bytes(8)))
    assert client.is_alive
    client.calls[0].finish()
    assert client.transport.ended
    assert [f.kind for f in client.frames()] == [GOAWAY, HEADERS]

    other = Client(quiet)
    other.send(frame(GOAWAY, 0, 0, bytes(8)))
    assert other.transport.ended


def test_the_input_after_a_fault_is_thrown_away_and_not_for_ever() -> None:
    client = Client(quiet)
    client.send(frame(PING))
    client.frames()
    for _ in range(16):
        client.send(bytes(2**20))
    assert not client.transport.closed
    client.send(b"x")
    assert client.transport.closed


# Age


def aged(seconds: float, grace: float = 0.0) -> Client:
    return Client(quiet, Http2Limits(max_age=seconds, max_age_grace=grace))


def test_an_old_connection_is_asked_to_leave_and_finishes_what_it_has() -> None:
    client = aged(30.0)
    client.send(head(1, is_end=True))
    client.clock.move(29.9)
    assert client.frames() == []
    client.clock.move(0.2)
    away, farewell = client.frames()
    assert (away.kind, farewell.kind) == (GOAWAY, PING)
    client.send(frame(PING, 1, 0, farewell.payload))
    client.clock.move(10_000)
    assert client.is_alive, "without a grace its calls may take as long as they take"

    client.calls[0].finish()
    assert client.transport.ended
    assert client.gone == []


def test_what_an_old_connection_has_not_finished_in_its_grace_is_cut() -> None:
    client = aged(30.0, grace=5.0)
    client.send(head(1, is_end=True))
    client.clock.move(30.1)
    client.clock.move(4.8)
    assert not client.transport.aborted
    client.clock.move(0.3)

    assert client.transport.aborted


@pytest.mark.parametrize("seconds", [1.0, 30.1])
def test_a_connection_that_is_gone_grows_no_older(seconds: float) -> None:
    client = aged(30.0, grace=5.0)
    client.clock.move(seconds)
    client.connection.connection_lost(None)
    client.clock.move(100.0)

    assert not client.transport.aborted
    for _ in range(100):  # whatever is left of it does not stay
        other = Http2Connection({}, Http2Limits(max_age=30.0), client.hub, client.deadlines)
        other.connection_made(FakeTransport())
        other.connection_lost(None)
    assert len(client.deadlines) < 80


def test_a_drain_that_meets_an_old_connection_says_nothing_twice() -> None:
    client = aged(30.0)
    client.clock.move(30.1)
    client.hub.finish()

    assert [f.kind for f in client.frames()] == [GOAWAY, PING]

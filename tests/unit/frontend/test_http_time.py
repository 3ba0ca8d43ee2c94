"""Slow clients, leaving clients, greedy clients, and the drain; time is what the sweep says it is."""

import logging

import pytest

from shoal.frontend.exchange import Exchange
from shoal.frontend.http import HttpLimits, Hub
from tests.unit.frontend.http_fakes import GET, POST, Client, bodies, ok, post

LIMITS = HttpLimits(max_pipelined=3, max_head=4000)


def test_a_silent_connection_is_closed_without_a_word() -> None:
    client = Client()
    client.hub.sweep(74.9)
    assert not client.transport.closed
    client.hub.sweep(75.0)
    assert client.transport.closed
    assert client.answer == b""


def test_silence_counts_from_the_last_answer() -> None:
    client = Client(ok)
    client.hub.sweep(60.0)
    client.send(GET + b"\r\n")
    client.hub.sweep(134.0)
    assert not client.transport.closed
    client.hub.sweep(135.0)
    assert client.transport.closed


def test_the_time_for_which_the_loop_stood_still_is_not_the_clients() -> None:
    client = Client(ok)
    client.hub.sweep(60.0)
    client.hub.sweep(500.0, late=430.0)
    assert not client.transport.closed
    client.send(GET + b"\r\n")
    client.hub.sweep(574.0)
    assert not client.transport.closed
    client.hub.sweep(575.0)
    assert client.transport.closed


@pytest.mark.parametrize("begun", [GET, b"\r\n", post(b"x" * 20)[:-11]], ids=["head", "start", "body"])
def test_whoever_was_sending_while_the_loop_stood_still_may_go_on(begun: bytes) -> None:
    client = Client(ok)
    client.send(begun)
    client.hub.sweep(500.0, late=498.0)
    assert client.answer == b"" and not client.transport.closed
    client.hub.sweep(540.0)
    assert client.status == 408


def test_a_closed_connection_that_does_not_go_is_cut() -> None:
    client = Client()
    client.hub.sweep(75.0)
    client.hub.sweep(134.0)
    assert not client.transport.aborted
    client.hub.sweep(135.0)
    assert client.transport.aborted


@pytest.mark.parametrize(("start", "drop"), [(b"G", b"E"), (GET, b"G"), (b"\r\n", b"\r")])
def test_a_head_must_end_in_time_however_it_drips(start: bytes, drop: bytes) -> None:
    client = Client()
    client.send(start)
    client.hub.sweep(9.0)
    client.send(drop)
    assert client.answer == b""
    client.hub.sweep(10.0)
    assert client.status == 408
    assert client.transport.ended


def test_a_head_that_ended_in_time_is_taken() -> None:
    client = Client()
    client.send(GET)
    client.hub.sweep(9.9)
    client.send(b"\r\n")
    client.hub.sweep(1000.0)
    assert client.answer == b""
    assert len(client.seen) == 1
    client.seen[0].respond(200)
    client.hub.sweep(1020.0)
    assert client.status == 200
    assert not client.transport.closed


BODIES = {
    "small": post(b"x" * 10_000),
    "lent": post(b"x" * 1_000_000),
    "chunked": POST + b"Transfer-Encoding: chunked\r\n\r\nf4240\r\n" + b"x" * 1_000_000 + b"\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("request_bytes", BODIES.values(), ids=BODIES)
def test_a_body_may_not_pause_too_long(request_bytes: bytes) -> None:
    client = Client()
    client.send(request_bytes[:5000])
    client.hub.sweep(29.0)
    assert client.answer == b""
    client.hub.sweep(31.0)
    assert client.status == 408
    assert client.seen == []
    assert [loan.released for loan in client.loans] == [1] * len(client.loans)


@pytest.mark.parametrize("request_bytes", BODIES.values(), ids=BODIES)
def test_a_dripping_body_may_not_stay_for_ever(request_bytes: bytes) -> None:
    client = Client()
    client.send(request_bytes[:5000])
    for second in range(1, 40):
        client.hub.sweep(float(second))
        if client.answer:
            break
        client.send(request_bytes[5000 + second : 5001 + second])
    assert client.status == 408
    assert 29 < client.hub.now < 35


@pytest.mark.parametrize("name", ["lent", "chunked"])
def test_a_slow_but_steady_body_is_taken(name: str) -> None:
    client = Client()
    request = BODIES[name]
    for second, at in enumerate(range(0, len(request), 10_000)):
        client.hub.sweep(float(second))
        client.send(request[at : at + 10_000])
    assert client.hub.now > 90
    assert len(bodies(client.seen)[0]) == 1_000_000


def test_the_application_may_take_its_time() -> None:
    client = Client()
    client.send(GET + b"\r\n")
    client.hub.sweep(10_000.0)
    client.seen[0].respond(200)
    assert client.status == 200
    assert not client.transport.aborted


def test_a_client_that_does_not_read_is_cut_and_the_application_told() -> None:
    gone: list[str] = []
    client = Client()
    client.send(GET + b"\r\n")
    (exchange,) = client.seen
    exchange.on_gone = lambda: gone.append("gone")
    exchange.start(200)
    client.transport.unsent = 200_000
    client.connection.pause_writing()
    assert not exchange.writable
    client.hub.sweep(59.0)
    assert not client.transport.aborted
    client.transport.unsent = 199_000
    client.hub.sweep(60.0)
    assert client.transport.aborted
    client.connection.connection_lost(None)
    assert gone == ["gone"]


def test_a_client_that_reads_slowly_but_steadily_is_not_cut() -> None:
    client = Client()
    client.send(GET + b"\r\n")
    client.transport.unsent = 10_000_000
    client.connection.pause_writing()
    for minute in range(1, 20):
        client.transport.unsent -= 64 * 1024
        client.hub.sweep(60.0 * minute)
    assert not client.transport.aborted
    client.connection.resume_writing()
    client.hub.sweep(5000.0)
    assert not client.transport.aborted


def test_a_stream_is_told_when_it_may_go_on() -> None:
    events: list[bool] = []
    client = Client()
    client.send(GET + b"\r\n")
    (exchange,) = client.seen
    exchange.on_drained = lambda: events.append(exchange.writable)
    exchange.start(200)
    assert exchange.writable
    client.connection.pause_writing()
    assert not exchange.writable
    assert events == []
    client.connection.resume_writing()
    assert events == [True]


def test_a_client_that_does_not_read_gets_no_further_request_started() -> None:
    client = Client(ok)
    client.connection.pause_writing()
    client.send(GET + b"\r\n")
    assert client.seen == []
    client.connection.resume_writing()
    client.turn()
    assert len(client.seen) == 1


@pytest.mark.parametrize("count", [3, 4])
def test_reading_stops_when_enough_requests_wait(count: int) -> None:
    client = Client(limits=LIMITS)
    client.send((GET + b"\r\n") * count)
    assert client.transport.is_reading_now == (count == 3)
    for number in range(count):
        client.seen[number].respond(200)
        client.turn()
    assert client.transport.is_reading_now
    assert len(client.seen) == count


@pytest.mark.parametrize(("size", "is_reading"), [(3000, True), (4000, False)])
def test_reading_stops_when_much_was_sent_ahead(size: int, is_reading: bool) -> None:
    client = Client(limits=LIMITS)
    client.send(GET + b"\r\n")
    client.send(post(b"x" * 5000)[:size])
    assert client.transport.is_reading_now == is_reading
    client.seen[0].respond(200)
    client.turn()
    assert client.transport.is_reading_now
    client.send(post(b"x" * 5000)[size:])
    assert bodies(client.seen) == [b"", b"x" * 5000]


def test_a_client_that_leaves_in_a_body_gives_the_block_back_and_nobody_hears_of_it() -> None:
    client = Client()
    client.send(post(b"x" * 100_000)[:50_000])
    client.connection.connection_lost(ConnectionResetError())
    assert client.seen == []
    assert [loan.released for loan in client.loans] == [1]
    assert client.hub.connections == set()


def test_a_block_that_was_handed_over_is_the_applications() -> None:
    client = Client()
    client.send(post(b"x" * 100_000))
    client.connection.connection_lost(ConnectionResetError())
    assert [loan.released for loan in client.loans] == [0]


def test_a_client_that_leaves_before_its_answer_is_reported_once() -> None:
    gone: list[int] = []
    client = Client(lambda e: setattr(e, "on_gone", lambda: gone.append(1)))
    client.send(GET + b"\r\n")
    client.connection.connection_lost(None)
    assert gone == [1]
    assert client.seen[0].on_gone is None


def test_a_client_that_leaves_after_its_answer_is_not_reported() -> None:
    gone: list[int] = []
    client = Client(lambda e: setattr(e, "on_gone", lambda: gone.append(1)))
    client.send(GET + b"\r\n")
    client.seen[0].respond(200)
    client.connection.connection_lost(None)
    assert gone == []


def test_a_callback_that_raises_is_logged_and_the_connection_ends_well(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise LookupError

    client = Client(lambda e: setattr(e, "on_gone", fail))
    client.send(GET + b"\r\n")
    client.connection.connection_lost(None)
    assert [r.levelno for r in caplog.records] == [logging.ERROR]
    assert client.hub.connections == set()


def test_a_client_that_closed_its_side_still_gets_its_answer() -> None:
    client = Client()
    client.send(GET + b"\r\n")
    assert client.connection.eof_received() is True
    client.hub.sweep(1.0)
    client.seen[0].respond(200, b"late")
    assert b"Connection: close\r\n" in client.answer
    assert client.answer.endswith(b"late")
    assert client.transport.closed


def test_a_client_that_closed_its_side_gets_all_the_answers_it_asked_for() -> None:
    client = Client()
    client.send(GET + b"\r\n" + GET + b"\r\n" + GET)
    assert client.connection.eof_received() is True
    client.seen[0].respond(200, b"one")
    client.turn()
    client.seen[1].respond(200, b"two")
    client.turn()
    assert len(client.seen) == 2
    assert client.answer.index(b"one") < client.answer.index(b"two")
    assert client.transport.closed or client.transport.ended


@pytest.mark.parametrize("sent", [b"", GET, post(b"x" * 50)[:-1], post(b"x" * 50_000)[:-1]])
def test_a_client_that_closes_its_side_too_early_is_closed(sent: bytes) -> None:
    client = Client()
    client.send(sent)
    assert not client.connection.eof_received()


def test_under_tls_a_closed_side_is_a_closed_connection() -> None:
    client = Client(extra={"sslcontext": object(), "peername": None})
    client.send(GET + b"\r\n")
    assert not client.connection.eof_received()


def test_a_client_that_closed_its_side_is_probed_only_where_it_is_allowed() -> None:
    new, old = Client(), Client()
    new.send(GET + b"\r\n")
    old.send(b"GET / HTTP/1.0\r\n\r\n")
    assert new.connection.eof_received()
    assert old.connection.eof_received()
    assert new.answer == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert old.answer == b""


def test_connections_over_the_limit_are_told_and_closed() -> None:
    hub = Hub()
    limits = HttpLimits(max_connections=2)
    first, second, third = (Client(ok, limits, hub=hub) for _ in range(3))
    assert third.status == 503
    assert third.transport.ended
    third.send(GET + b"\r\n")
    assert third.seen == []
    for client in (first, second):
        client.send(GET + b"\r\n")
        assert client.status == 200
    third.connection.connection_lost(None)
    first.connection.connection_lost(None)
    fourth = Client(ok, limits, hub=hub)
    fourth.send(GET + b"\r\n")
    assert fourth.status == 200
    assert (hub.accepted, hub.refused) == (4, 1)


def test_a_flood_over_the_limit_does_not_linger() -> None:
    hub = Hub()
    limits = HttpLimits(max_connections=1)
    clients = [Client(ok, limits, hub=hub) for _ in range(66)]
    assert not clients[64].transport.closed
    assert clients[65].transport.closed
    assert clients[65].status == 503


def test_a_drain_closes_idle_connections_and_lets_busy_ones_answer() -> None:
    hub = Hub(soon=lambda callback: None)
    idle, busy, coming, ahead = (Client(hub=hub) for _ in range(4))
    busy.send(GET + b"\r\n")
    coming.send(GET)
    ahead.send((GET + b"\r\n") * 2)
    hub.finish()
    assert idle.transport.closed
    assert not busy.transport.closed
    busy.seen[0].respond(200)
    coming.send(b"\r\n")
    coming.seen[0].respond(200)
    ahead.seen[0].respond(200)
    for client in (busy, coming, ahead):
        assert b"Connection: close\r\n" in client.answer
        assert client.transport.closed or client.transport.ended

    late = Client(hub=hub)
    assert late.status == 503


def test_without_a_drain_connections_stay() -> None:
    client = Client(ok)
    client.send(GET + b"\r\n")
    assert not client.transport.closed
    assert b"Connection: close" not in client.answer


@pytest.mark.parametrize(
    ("limits", "period"),
    [(HttpLimits(), 1.0), (HttpLimits(head_timeout=0.2), 0.05), (HttpLimits(write_timeout=2.0), 0.5)],
)
def test_short_limits_are_swept_more_often(limits: HttpLimits, period: float) -> None:
    assert limits.sweep_period == period


@pytest.mark.parametrize(
    ("peername", "text"),
    [(("10.0.0.1", 5), "10.0.0.1:5"), (("::1", 5, 0, 0), "[::1]:5"), ("", "unix"), (None, "unix")],
)
def test_the_peer_is_named(peername: object, text: str) -> None:
    seen: list[Exchange] = []
    client = Client(seen.append, extra={"peername": peername})
    client.send(GET + b"\r\n")
    assert seen[0].peer == text

import asyncio
from collections.abc import Iterator

import msgspec
import pytest

from shoal.errors import ProtocolError
from shoal.frontend.client import Client
from shoal.frontend.exchange import Exchange
from shoal.frontend.hub import Hub
from shoal.fronts.connection import RemoteConnection
from shoal.fronts.frames import ABORT, DATA, WHOLE, WHOLE_LAST, WINDOW
from shoal.fronts.messages import RequestHead
from tests.unit.fronts.wires import Wire

HEAD = RequestHead(0, "1.2.3.4:5", "1.2.3.4", "POST", b"/a?b", [(b"X", b"y")], b"text/plain", b"id", b"9", False, False)


class Core:
    """A connection of a front process, and what the application got from it."""

    def __init__(self) -> None:
        self.wire = Wire()
        self.hub = Hub()
        self.asked: list[Exchange] = []
        self.connection = RemoteConnection(self.take, self.hub, self.wire, 7, Client(99))

    def take(self, exchange: Exchange) -> None:
        self.asked.append(exchange)

    def ask(self, body: bytes = b"body", *, keep: bool = True, head: RequestHead = HEAD) -> Exchange:
        self.connection.learn(head)
        self.connection.ask(body, keep=keep)
        return self.asked[-1]


@pytest.fixture
def core() -> Iterator[Core]:
    async def make() -> Core:
        return Core()

    yield asyncio.run(make())


def test_the_application_sees_the_request_whole(core: Core) -> None:
    exchange = core.ask()
    assert (exchange.method, exchange.path, exchange.query, exchange.body) == ("POST", b"/a", b"b", b"body")
    assert (exchange.content_type, exchange.request_id, exchange.timeout) == (b"text/plain", b"id", b"9")
    assert (exchange.headers, exchange.peer, exchange.client) == ([(b"X", b"y")], "1.2.3.4:5", 99)


def test_an_answer_is_one_frame_and_the_head_serves_again(core: Core) -> None:
    core.ask().respond(200, b"one")
    core.connection.ask(b"again", keep=True)
    core.asked[-1].respond(404, b"two")
    (kind, key, one), (_, _, two) = core.wire.turn()
    assert (kind, key) == (WHOLE, 7)
    assert one.startswith(b"HTTP/1.1 200 OK\r\n") and one.endswith(b"\r\n\r\none")
    assert two.endswith(b"\r\n\r\ntwo")
    assert core.hub.answers[2] == core.hub.answers[4] == 1


def test_a_connection_that_is_not_kept_says_so_in_the_answer(core: Core) -> None:
    core.ask(keep=False).respond(200)
    exchange = core.ask()
    core.connection.finish()
    exchange.respond(200)
    answers = core.wire.turn()
    assert [kind for kind, _, _ in answers] == [WHOLE_LAST] * 2
    assert all(b"Connection: close\r\n" in data for _, _, data in answers)


def test_a_large_answer_travels_in_its_pieces(core: Core) -> None:
    core.ask().respond(200, bytes(100_000))
    ((kind, _, data),) = core.wire.turn()
    assert kind == WHOLE
    assert data.endswith(b"Content-Length: 100000\r\n\r\n" + bytes(100_000))


def test_a_head_request_gets_no_body_and_an_old_client_no_chunks(core: Core) -> None:
    core.ask(head=msgspec.structs.replace(HEAD, is_head=True)).respond(200, b"hidden")
    old = core.ask(head=msgspec.structs.replace(HEAD, is_old=True))
    old.start(200)
    old.write(b"plain")
    old.end()
    answers = core.wire.turn()
    assert answers[0][2].endswith(b"Content-Length: 6\r\n\r\n")
    assert answers[-1][0] == WHOLE_LAST
    assert b"chunked" not in b"".join(data for _, _, data in answers)


def test_a_stream_is_writable_until_its_window_is_full_and_again_when_the_client_took_it(core: Core) -> None:
    drained: list[bool] = []
    exchange = core.ask()
    exchange.on_drained = lambda: drained.append(exchange.writable)
    exchange.start(200)
    exchange.write(bytes(WINDOW // 2))
    assert exchange.writable
    exchange.write(bytes(WINDOW))
    assert not exchange.writable
    core.connection.taken(WINDOW // 4)
    assert drained == []
    core.connection.taken(WINDOW)
    assert drained == [True]
    assert {kind for kind, _, _ in core.wire.turn()} == {DATA}


def test_what_was_under_way_of_one_answer_does_not_hold_up_the_next(core: Core) -> None:
    core.ask().respond(200, bytes(2 * WINDOW))
    exchange = core.ask()
    exchange.start(200)
    assert exchange.writable


def test_a_process_that_is_behind_blocks_its_streams(core: Core) -> None:
    exchange = core.ask()
    exchange.start(200)
    core.wire.pause_writing()
    assert not exchange.writable


def test_whoever_is_gone_is_told_of_and_answering_does_nothing(core: Core) -> None:
    gone: list[bool] = []
    exchange = core.ask()
    exchange.on_gone = lambda: gone.append(True)
    core.connection.lost()
    core.connection.lost()
    exchange.respond(200)
    assert gone == [True]
    assert core.wire.turn() == []


def test_a_client_that_leaves_after_its_answer_is_nobody_s_loss(core: Core) -> None:
    gone: list[bool] = []
    exchange = core.ask()
    exchange.on_gone = lambda: gone.append(True)
    exchange.respond(200)
    core.connection.lost()
    assert gone == []


def test_an_aborted_answer_cuts_the_connection(core: Core) -> None:
    exchange = core.ask()
    exchange.start(200)
    exchange.abort()
    assert [kind for kind, _, _ in core.wire.turn()] == [DATA, ABORT]


@pytest.mark.parametrize(("begins", "kinds"), [(False, [WHOLE]), (True, [DATA, ABORT])])
def test_an_application_that_fails_is_a_500_or_a_cut(core: Core, begins: bool, kinds: list[int]) -> None:
    def fail(exchange: Exchange) -> None:
        if begins:
            exchange.start(200)
        raise RuntimeError("no")

    connection = RemoteConnection(fail, core.hub, core.wire, 7, Client(1))
    connection.learn(HEAD)
    connection.ask(b"", keep=True)
    frames = core.wire.turn()
    assert [kind for kind, _, _ in frames] == kinds
    assert frames[0][2].startswith(b"HTTP/1.1 200" if begins else b"HTTP/1.1 500")


def test_a_request_before_the_last_answer_or_without_a_head_is_refused(core: Core) -> None:
    with pytest.raises(ProtocolError):
        core.connection.ask(b"", keep=True)
    core.ask()
    with pytest.raises(ProtocolError):
        core.connection.ask(b"", keep=True)

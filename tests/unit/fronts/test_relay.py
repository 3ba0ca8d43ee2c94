import asyncio
from collections.abc import Callable, Iterable, Iterator

import pytest

from shoal.frontend.client import Client
from shoal.frontend.exchange import Exchange
from shoal.frontend.hub import Hub
from shoal.fronts import frames
from shoal.fronts.frames import BODY, HEAD, LAST, LEFT, LENT, STEP, TAKEN, count_of
from shoal.fronts.messages import decode_request
from shoal.fronts.relay import Relay, RelayHub
from shoal.payload import Buffer
from tests.support import FakeBlock
from tests.unit.fronts.wires import Wire


class FakeLink:
    """A connection of a client that keeps what it is sent."""

    def __init__(self) -> None:
        self.hub = Hub()
        self.blocked = False
        self.sent = b""
        self.ends: list[bool] = []
        self.is_cut = False
        self.on_send: Callable[[], None] = lambda: None

    def send(self, data: bytes) -> None:
        self.sent += data
        self.on_send()

    def send_all(self, parts: Iterable[Buffer]) -> None:
        self.send(b"".join(parts))

    def answered(self, keep: bool) -> None:
        self.ends.append(keep)

    def abort(self) -> None:
        self.is_cut = True


class Front:
    """A relay with one connection."""

    def __init__(self) -> None:
        self.wire = Wire()
        self.relay = Relay(self.wire)
        self.link = FakeLink()
        self.headers = [(b"Host", b"a")]

    def ask(self, body: bytes | FakeBlock = b"", *, keep: bool = True) -> Exchange:
        exchange = Exchange(self.link, Client(5), "unix", b"/t")
        exchange.method = "POST"
        exchange.headers = self.headers
        exchange.body = body
        exchange._keep = keep
        self.relay.ask(1, exchange)
        return exchange


@pytest.fixture
def front() -> Iterator[Front]:
    async def make() -> Front:
        return Front()

    yield asyncio.run(make())


def test_a_head_is_told_once_and_again_when_it_is_another(front: Front) -> None:
    front.ask(b"a")
    front.relay.whole(5, b"1", keep=True)
    front.ask(b"b")
    front.relay.whole(5, b"2", keep=True)
    front.headers = [(b"Host", b"b")]
    front.ask(b"c", keep=False)
    told = front.wire.turn()
    assert [kind for kind, _, _ in told] == [HEAD, BODY, BODY, HEAD, LAST]
    assert [payload for kind, _, payload in told if kind != HEAD] == [b"a", b"b", b"c"]
    head = decode_request(told[0][2])
    assert (head.place, head.method, head.target, head.headers) == (1, "POST", b"/t", [(b"Host", b"a")])


def test_an_answer_goes_to_its_client_and_says_whether_the_connection_stays(front: Front) -> None:
    front.ask()
    front.relay.whole(5, b"one", keep=True)
    front.ask(keep=False)
    front.relay.whole(5, b"two", keep=True)
    front.ask()
    front.relay.whole(5, b"three", keep=False)
    front.relay.whole(5, b"nobody asked", keep=True)
    assert front.link.sent == b"onetwothree"
    assert front.link.ends == [True, False, False]


def test_a_streamed_answer_is_begun_once_its_first_bytes_are_out(front: Front) -> None:
    exchange = front.ask()
    assert not exchange.is_answered
    front.relay.data(5, b"head")
    assert exchange.is_answered
    front.relay.whole(5, b"", keep=True)
    assert front.link.sent == b"head"


def test_the_core_is_told_of_what_a_client_took_and_of_the_rest_when_it_reads_on(front: Front) -> None:
    exchange = front.ask()
    front.wire.turn()
    front.relay.data(5, bytes(STEP - 1))
    assert front.wire.turn() == []
    front.relay.data(5, b"x")
    ((kind, key, payload),) = front.wire.turn()
    assert (kind, key, count_of(payload)) == (TAKEN, 5, STEP)
    front.link.blocked = True
    front.relay.data(5, bytes(2 * STEP))
    assert front.wire.turn() == []
    front.link.blocked = False
    assert exchange.on_drained is not None
    exchange.on_drained()
    ((_, _, payload),) = front.wire.turn()
    assert count_of(payload) == 2 * STEP


def test_a_body_in_shared_memory_goes_by_its_place_and_comes_back_once(front: Front) -> None:
    block = FakeBlock()
    front.ask(block)
    told = front.wire.turn()
    assert [kind for kind, _, _ in told] == [HEAD, LENT]
    assert len(told[1][2]) == 16
    front.relay.release(block.offset)
    assert block.released == 1
    with pytest.raises(LookupError):
        front.relay.release(block.offset)


def test_a_connection_that_leaves_is_told_of_if_the_core_knows_it(front: Front) -> None:
    front.ask()
    front.wire.turn()
    front.relay.left(6)
    front.relay.left(5)
    front.relay.left(5)
    front.relay.data(5, b"late")
    front.relay.whole(5, b"late", keep=True)
    front.relay.meet(8)
    front.relay.left(8)
    assert front.wire.turn() == [(LEFT, 5, b""), (LEFT, 8, b"")]
    assert front.link.sent == b""


def test_an_aborted_answer_cuts_the_client_off(front: Front) -> None:
    front.ask()
    front.relay.abort(5)
    front.relay.abort(5)
    assert front.link.is_cut


def test_the_hub_tells_of_connections_that_leave(front: Front) -> None:
    class Connection:
        deadline = write_deadline = 0.0

        def expire(self, now: float) -> None: ...

        def finish(self) -> None: ...

        def abort(self) -> None: ...

    hub = RelayHub(front.relay)
    connection = Connection()
    client = hub.join(connection, ("1.2.3.4", 5))
    front.relay.meet(client)
    assert client.address == "1.2.3.4"
    hub.leave(connection)
    hub.leave(connection)
    assert front.wire.turn() == [(frames.LEFT, client, b"")]
    assert not hub.connections

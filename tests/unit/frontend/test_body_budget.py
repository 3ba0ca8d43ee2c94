"""Large bodies that find shared memory full: bounded over all connections, and given back however they end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.frontend.budget import Budget
from shoal.frontend.exchange import Exchange
from shoal.frontend.http import HttpLimits, Hub
from tests.unit.frontend.http_fakes import POST, Client, chunked, post

LIMITS = HttpLimits(inline_body=100, max_body=10_000)
LARGE = b"x" * 1000


def connect(hub: Hub, app: object = None, *, has_memory: bool = False) -> Client:
    return Client(app, LIMITS, hub=hub, has_memory=has_memory)  # type: ignore[arg-type]  # an application or none


@pytest.fixture
def hub() -> Hub:
    hub = Hub(soon=lambda callback: None)
    hub.budget = Budget(2500)
    return hub


@pytest.mark.parametrize("request_bytes", [post(LARGE), chunked(LARGE[:500], LARGE[500:])], ids=["length", "chunked"])
def test_bodies_beyond_the_budget_are_refused_and_those_within_it_are_taken(hub: Hub, request_bytes: bytes) -> None:
    clients = [connect(hub) for _ in range(3)]
    for client in clients:
        client.send(request_bytes)

    assert [len(client.seen) for client in clients] == [1, 1, 0]
    assert clients[2].status == 503
    assert b"Retry-After: 1\r\n" in clients[2].answer
    assert (hub.budget.used, hub.budget.refused) == (2000, 1)


def test_an_answer_gives_the_memory_back(hub: Hub) -> None:
    client = connect(hub)
    for _ in range(5):
        client.send(post(LARGE))
        assert hub.budget.used == 1000
        client.seen[-1].respond(200, b"ok")
        assert hub.budget.used == 0


@pytest.mark.parametrize("part", [200, 900])
@pytest.mark.parametrize("request_bytes", [post(LARGE), chunked(LARGE[:500], LARGE[500:])], ids=["length", "chunked"])
def test_a_client_that_leaves_in_its_body_gives_the_memory_back(hub: Hub, request_bytes: bytes, part: int) -> None:
    client = connect(hub)
    client.send(request_bytes[:part])
    assert hub.budget.used > 0
    client.connection.connection_lost(None)

    assert hub.budget.used == 0


def test_small_bodies_and_those_in_shared_memory_cost_nothing(hub: Hub) -> None:
    connect(hub).send(post(b"x" * 100))
    connect(hub, has_memory=True).send(post(LARGE))
    connect(hub, has_memory=True).send(chunked(LARGE))

    assert hub.budget.used == 0


def test_a_refused_body_is_not_kept(hub: Hub) -> None:
    hub.budget.take(2000)
    client = connect(hub)
    client.send(POST + b"Content-Length: 1000\r\n\r\n")

    assert client.status == 503
    assert client.connection._sink is None


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from(["length", "chunked", "half", "answer", "leave"])), max_size=40
    )
)
def test_whatever_clients_do_the_budget_holds_and_comes_back(steps: list[tuple[int, str]]) -> None:
    hub = Hub(soon=lambda callback: None)
    hub.budget = Budget(2500)
    clients: dict[int, Client] = {}
    for number, what in steps:
        client = clients.get(number)
        if client is None or client.transport.closed or client.connection._phase >= 7:
            client = clients[number] = connect(hub)
        busy: Exchange | None = client.seen[-1] if client.seen and not client.seen[-1].is_answered else None
        if what == "answer" and busy is not None:
            busy.respond(200, b"ok")
        elif what == "leave":
            client.connection.connection_lost(None)
            del clients[number]
        elif busy is None and what == "half":
            client.send(POST + b"Content-Length: 1000\r\n\r\n" + b"x" * 500)
            client.connection.connection_lost(None)
            del clients[number]
        elif busy is None and what in ("length", "chunked"):
            client.send(post(LARGE) if what == "length" else chunked(LARGE))
        assert 0 <= hub.budget.used <= hub.budget.limit
    for client in clients.values():
        client.connection.connection_lost(None)

    assert hub.budget.used == 0

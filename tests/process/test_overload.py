"""More than a server can take: refused at once with a hint, bounded, and nobody pays for another's slowness."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.serving import MODELS, Served, eventually, serving

TRICKS = str(MODELS / "tricks.py")


def config(*lines: str, model: tuple[str, ...] = ()) -> str:
    return "\n".join([*lines, "[models.tricks]", f'path = "{TRICKS}"', 'batching = {policy = "single"}', *model, ""])


@pytest.fixture
def links() -> Iterator[ExitStack]:
    """Connections that are closed with the test."""
    with ExitStack() as stack:
        yield stack


def connect(links: ExitStack, server: Served, source: str = "127.0.0.1") -> socket.socket:
    return links.enter_context(
        socket.create_connection(("127.0.0.1", server.port), timeout=30, source_address=(source, 0))
    )


def send(links: ExitStack, server: Served, item: object, source: str = "127.0.0.1") -> socket.socket:
    body = json.dumps(item).encode()
    link = connect(links, server, source)
    link.sendall(
        b"POST /predictions/tricks HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    )
    return link


def status(link: socket.socket) -> int:
    return int(link.recv(65536).split()[1])


def hold(links: ExitStack, server: Served, seconds: float) -> socket.socket:
    link = send(links, server, {"do": "sleep", "seconds": seconds})
    eventually(lambda: server.metric("shoal_batches_running") == 1, "the worker is busy")
    return link


def test_a_full_queue_refuses_at_once_with_a_hint(tmp_path: Path, links: ExitStack) -> None:
    with serving(tmp_path, config=config(model=("queue_size = 2",))) as server:
        busy = hold(links, server, 1.5)
        waiting = [send(links, server, "x") for _ in range(2)]
        eventually(lambda: server.metric("shoal_queue_requests") == 2, "two wait")
        refused = server.ask("/predictions/tricks", "one too many")

        assert refused.status == 503
        assert int(refused.headers["retry-after"]) >= 1
        assert server.metric("shoal_queue_requests") == 2, "refused while the others still waited"
        assert [status(link) for link in (busy, *waiting)] == [200, 200, 200]


def test_one_address_cannot_fill_the_queue_of_a_model(tmp_path: Path, links: ExitStack) -> None:
    with serving(tmp_path, config=config(model=("queue_size = 4", "client_share = 0.5"))) as server:
        busy = hold(links, server, 1.5)
        greedy = [send(links, server, "x") for _ in range(2)]
        eventually(lambda: server.metric("shoal_queue_requests") == 2, "two wait")
        third = server.ask("/predictions/tricks", "x")
        other = send(links, server, "y", source="127.0.0.2")
        eventually(lambda: server.metric("shoal_queue_requests") == 3, "another address has its place")

        assert third.status == 429
        assert int(third.headers["retry-after"]) >= 1
        assert "127.0.0.1 already has 2 of the 4" in third.json["message"]
        assert [status(link) for link in (busy, *greedy, other)] == [200] * 4


def test_bodies_take_no_more_memory_than_they_may(tmp_path: Path, links: ExitStack) -> None:
    limits = ("shared_memory = 4_000_000", "body_memory = 3_000_000")
    with serving(tmp_path, config=config(*limits)) as server:
        busy = hold(links, server, 2.0)
        replies: list[int] = []

        def large() -> None:
            replies.append(server.ask("/predictions/tricks", b"x" * 1_000_000).status)

        clients = [threading.Thread(target=large) for _ in range(12)]
        for client in clients:
            client.start()
        eventually(lambda: server.metric("shoal_queue_requests") + replies.count(503) == 12, "all are taken or refused")
        limit = server.metric("shoal_arena_limit_bytes")
        assert limit == 4_000_000 or (server.front_pids() and 3_900_000 < limit < 4_000_000)  # cut into whole blocks
        assert server.metric("shoal_arena_lent_bytes") <= limit
        eventually(lambda: 0 < server.metric("shoal_body_memory_bytes") <= 3_000_000, "some lie beside it")
        eventually(lambda: server.metric("shoal_bodies_refused") == replies.count(503) > 0, "refusals are counted")
        for client in clients:
            client.join()

        assert set(replies) == {200, 503}
        assert status(busy) == 200
        eventually(lambda: server.metric("shoal_body_memory_bytes") == 0, "it is all given back")
        eventually(lambda: server.metric("shoal_arena_lent_bytes") == 0, "shared memory as well")


def test_slow_writers_and_slow_readers_hold_no_worker(tmp_path: Path, links: ExitStack) -> None:
    with serving(tmp_path, config=config()) as server:
        writer = connect(links, server)
        writer.sendall(b"POST /predictions/tricks HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\nhalf")
        reader = send(links, server, {"do": "big", "size": 30_000_000})  # and does not read
        eventually(lambda: server.metric("shoal_requests_total") == 1, "its answer is computed")

        assert server.metric("shoal_batches_running") == 0
        for number in range(20):
            assert server.ask("/predictions/tricks", f"{number}").body == b"%d" % number
        writer.sendall(b"x" * (1_000_000 - 4))
        assert status(writer) == 200
        assert status(reader) == 200
        reader.close()

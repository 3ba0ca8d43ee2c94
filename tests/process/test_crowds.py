"""Many who come at once: all are let in within a few turns of the loop, however long its turns take."""

import asyncio
import contextlib
import itertools
import os
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import uvloop

from shoal.frontend.door import MOST
from shoal.frontend.http import HttpLimits
from shoal.frontend.listen import Listener
from tests.process.test_http_sockets import GET, LAST, certificate, close, echo

__all__ = ["certificate"]

CROWD = 2 * MOST + 100
TURNS = 20  # each let in one, without the door


@contextlib.asynccontextmanager
async def listening(limits: HttpLimits | None = None, unix_path: str = "") -> AsyncIterator[Listener]:
    place: dict[str, object] = {"unix_path": unix_path} if unix_path else {"host": "127.0.0.1", "port": 0}
    listener = Listener(echo, limits or HttpLimits(), lambda size: None, **place)  # type: ignore[arg-type]
    await listener.start()
    try:
        yield listener
    finally:
        await listener.drain(0.0)


def crowd(listener: Listener, count: int, says: bytes = GET) -> list[socket.socket]:
    """Clients that are connected, as far as they know, and have spoken, before the loop turns once."""
    address = listener.addresses[0]
    clients = [socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET) for _ in range(count)]
    for client in clients:
        client.settimeout(10)
        client.connect(address)
        client.sendall(says)
    return clients


def tcp_address(listener: Listener) -> tuple[str, int]:
    address = listener.addresses[0]
    assert not isinstance(address, str)
    return address


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def most_at_once(listener: Listener, count: int) -> int:
    """How many of a crowd come in within one turn."""
    seen = [listener.hub.accepted]
    clients = crowd(listener, count)
    while listener.hub.accepted < count:
        await asyncio.sleep(0)
        seen.append(listener.hub.accepted)
    for client in clients:
        client.close()
    return max(after - before for before, after in itertools.pairwise(seen))


@pytest.mark.parametrize("is_unix", [False, True], ids=["tcp", "unix"])
def test_a_crowd_is_let_in_and_answered_within_a_few_turns(tmp_path: Path, is_unix: bool) -> None:
    async def main() -> None:
        async with listening(unix_path=str(tmp_path / "socket") if is_unix else "") as listener:
            clients = crowd(listener, CROWD)
            await turns(TURNS)

            assert listener.hub.accepted == CROWD
            assert all(client.recv(65536).startswith(b"HTTP/1.1 200 OK\r\n") for client in clients)
            for client in clients:
                client.close()

    uvloop.run(main())


def test_no_more_are_let_in_at_once_than_leaves_those_inside_their_turn() -> None:
    async def main() -> None:
        async with listening() as listener:
            assert await most_at_once(listener, CROWD) <= MOST + 1

    uvloop.run(main())


def test_of_a_socket_that_processes_share_each_lets_in_one_in_a_turn(tmp_path: Path) -> None:
    async def main() -> None:
        with socket.socket(socket.AF_UNIX) as shared:
            shared.bind(str(tmp_path / "socket"))
            listener = Listener(echo, HttpLimits(), lambda size: None, sockets=[shared])
            await listener.start()
            most = await most_at_once(listener, 30)
            await listener.drain(0.0)

            assert most == 1

    uvloop.run(main())


def test_those_over_the_limit_are_told_so() -> None:
    async def main() -> None:
        async with listening(HttpLimits(max_connections=10)) as listener:
            clients = crowd(listener, 30)
            await turns(TURNS)

            answers = [client.recv(65536).split(b" ", 2)[1] for client in clients]
            assert (answers.count(b"200"), answers.count(b"503")) == (10, 20)
            for client in clients:
                client.close()

    uvloop.run(main())


def test_clients_that_left_before_they_were_let_in_hurt_nobody() -> None:
    async def main() -> None:
        async with listening() as listener:
            for number, client in enumerate(clients := crowd(listener, 60)):
                if number % 2:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset
                    client.close()
            await turns(TURNS)

            stayed = clients[::2]
            assert all(client.recv(65536).startswith(b"HTTP/1.1 200 OK\r\n") for client in stayed)
            for client in stayed:
                client.close()

    uvloop.run(main())


def test_a_crowd_that_speaks_tls_is_let_in_and_one_that_does_not_is_only_cut(certificate: tuple[str, str]) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    trusting = ssl.create_default_context(cafile=certificate[0])
    trusting.check_hostname = False
    troubles: list[object] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, trouble: troubles.append(trouble))
        listener = Listener(echo, HttpLimits(), lambda size: None, host="127.0.0.1", port=0, ssl_context=context)
        await listener.start()
        host, port = tcp_address(listener)
        plain = crowd(listener, 20)
        pairs = await asyncio.gather(*(asyncio.open_connection(host, port, ssl=trusting) for _ in range(40)))
        for _, writer in pairs:
            writer.write(LAST)
        answers = await asyncio.gather(*(reader.read() for reader, _ in pairs))
        for _, writer in pairs:
            await close(writer)
        for client in plain:
            client.close()
        await listener.drain(1.0)

        assert all(answer.startswith(b"HTTP/1.1 200 OK\r\n") for answer in answers)

    uvloop.run(main())
    assert not troubles


def test_a_listener_that_drains_leaves_nothing_open() -> None:
    async def come_and_go() -> tuple[str, int]:
        async with listening() as listener:
            address = tcp_address(listener)
            clients = crowd(listener, 20)
            await turns(TURNS)
        for client in clients:
            client.close()
        await turns(TURNS)
        return address

    async def main() -> None:
        await come_and_go()  # after which the loop has opened what it keeps
        before = len(os.listdir("/proc/self/fd"))
        address = await come_and_go()

        assert len(os.listdir("/proc/self/fd")) == before
        with socket.socket() as late, pytest.raises(ConnectionRefusedError):
            late.connect(address)

    uvloop.run(main())


def test_the_loop_of_python_itself_does_as_well() -> None:
    async def main() -> None:
        async with listening() as listener:
            clients = crowd(listener, CROWD)
            await turns(TURNS)

            assert listener.hub.accepted == CROWD
            for client in clients:
                client.close()

    asyncio.run(main())

"""Processes in front of the core: one dies and the rest goes on, all die with the core, and memory comes back."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import grpc
import pytest
import uvloop

from shoal.config.server import ServerConfig
from shoal.frontend.exchange import Exchange
from shoal.frontend.http import Application, HttpLimits
from shoal.frontend.http2.limits import Http2Limits
from shoal.frontend.rpc import Call
from shoal.fronts.crew import Crew
from shoal.fronts.frames import LENT, pack_head
from shoal.fronts.memory import arena_of
from shoal.fronts.spread import Spread
from shoal.payload import Block
from shoal.wire.memory import SMALLEST
from tests.process.shapes import reports
from tests.serving import MODELS, SHOAL, eventually, is_alive, kill, serving

TRICKS = str(MODELS / "tricks.py")


class Running:
    """A crew of two with one HTTP listener, in front of an application of the test."""

    def __init__(self, crew: Crew, listener: Spread) -> None:
        self.crew = crew
        self.listener = listener

    @property
    def address(self) -> tuple[str, int]:
        address = self.listener.addresses[0]
        assert not isinstance(address, str)
        return address

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(*self.address)

    async def ask(self, body: bytes = b"") -> bytes:
        """The answer's body, on a connection of its own."""
        reader, writer = await self.connect()
        try:
            writer.write(
                b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body
            )
            answer = await reader.read()
        finally:
            writer.close()
        await writer.wait_closed()
        return answer.partition(b"\r\n\r\n")[2]

    async def until(self, check: Callable[[], bool]) -> None:
        while not check():  # noqa: ASYNC110 - what processes report, and their births and deaths
            await asyncio.sleep(0.01)


@asynccontextmanager
async def crew(app: Application, memory: int = 64 * 2**20) -> AsyncIterator[Running]:
    config = ServerConfig(frontends=2, shared_memory=memory)
    arena = arena_of(config)
    assert arena is not None
    made = Crew(config, arena)
    listener = made.http(app, HttpLimits(), lambda size: None, host="127.0.0.1", port=0, unix_path=None)
    await listener.start()
    try:
        await made.start()
        yield Running(made, listener)
    finally:
        await listener.drain(0.0)
        await made.stop()
        arena.close()
    assert made.pids == []


def run(main: Callable[[], Coroutine[object, object, None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(60):
            await main()

    uvloop.run(limited())


def echo(exchange: Exchange) -> None:
    body = exchange.body if isinstance(exchange.body, bytes) else bytes(exchange.body.view)
    exchange.drop_body()
    exchange.respond(200, body)


@pytest.mark.timeout(120)
def test_killing_a_front_process_under_load_costs_its_own_clients_alone(tmp_path: Path) -> None:
    """Clients whose connection is cut come again; every answer that is given is the right one, and nothing is left."""
    with serving(tmp_path, TRICKS, "--frontends", "2") as server:
        first = server.front_pids()
        assert len(first) == 2
        cut = done = 0

        async def client(number: int) -> None:
            nonlocal cut, done
            sent = 0
            while sent < 60:
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
                with suppress(ConnectionError, asyncio.IncompleteReadError):
                    while sent < 60:
                        body = (b"%d-%d " % (number, sent)) * (5000 if sent % 5 == 0 else 1)
                        writer.write(
                            b"POST /predictions/tricks HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
                        )
                        writer.write(body)
                        head = await reader.readuntil(b"\r\n\r\n")
                        found = re.search(rb"(?i)content-length: (\d+)", head)
                        assert found is not None and head.startswith(b"HTTP/1.1 200"), head
                        assert await reader.readexactly(int(found[1])) == body
                        sent += 1
                        done += 1
                        if done == 300:
                            kill(first[0])
                cut += sent < 60
                writer.close()
                with suppress(ConnectionError):
                    await writer.wait_closed()

        async def main() -> None:
            await asyncio.gather(*(client(number) for number in range(16)))

        asyncio.run(main())

        assert done == 16 * 60
        assert 0 < cut < 16  # at least one client was with the process that died, and at least one was not
        eventually(lambda: len(server.front_pids()) == 2, "it is replaced")
        assert first[1] in server.front_pids()
        assert first[0] not in server.front_pids()
        assert "is gone and is replaced" in server.log.read_text()
        eventually(lambda: server.metric("shoal_arena_lent_bytes") == 0, "memory is given back")
        eventually(lambda: server.metric("shoal_queue_requests") == 0, "nobody is left in the queue")


def test_what_clients_of_a_dead_front_process_asked_for_is_withdrawn(tmp_path: Path) -> None:
    with serving(tmp_path, TRICKS, "--frontends", "2", "--batch-size", "1", "--max-batch-delay", "1") as server:
        clients = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(24)]
        body = json.dumps({"do": "sleep", "seconds": 0.3}).encode()
        for client in clients:
            client.sendall(
                b"POST /predictions/tricks HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
            )
        eventually(lambda: server.metric("shoal_queue_requests") > 15, "they wait")
        for pid in server.front_pids():
            kill(pid)
        for client in clients:
            client.close()
        eventually(lambda: server.metric("shoal_queue_requests") == 0, "they are withdrawn")
        assert server.metric('shoal_requests_total{model_name="tricks",model_version="1.0",outcome="withdrawn"}') > 10
        assert server.ask("/predictions/tricks", "and on").body == b"and on"


def test_front_processes_vanish_with_the_core(tmp_path: Path) -> None:
    with serving(tmp_path, TRICKS, "--frontends", "3") as server:
        fronts = server.front_pids()
        assert len(fronts) == 3
        kill(server.process.pid)
        eventually(lambda: not any(map(is_alive, fronts)), "the front processes are gone")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", server.port))


def test_they_are_gone_after_a_drain_and_the_port_is_free(tmp_path: Path) -> None:
    with serving(tmp_path, TRICKS, "--frontends", "2") as server:
        fronts = server.front_pids()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(30) == 0
        assert not any(map(is_alive, fronts))
        with socket.socket() as again:
            again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            again.bind(("127.0.0.1", server.port))


@pytest.mark.parametrize("others", ["1", "2"])
def test_a_port_that_is_taken_is_a_clear_error(tmp_path: Path, others: str) -> None:
    """Also where the other server shares its port, among its own processes."""
    with serving(tmp_path, TRICKS, "--frontends", others) as server:
        command = [*SHOAL, "serve", TRICKS, "--frontends", "2", "--port", str(server.port)]
        done = subprocess.run(
            [*command, "--management-port", "0", "--metrics-port", "0"], capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 1
        assert "cannot listen" in done.stderr
        assert "in use" in done.stderr
        assert str(server.port) in done.stderr
        assert server.ask("/predictions/tricks", "mine").body == b"mine"


def test_connections_are_spread_over_the_processes() -> None:
    async def main() -> None:
        async with crew(echo) as running:
            links = [await running.connect() for _ in range(32)]
            for reader, writer in links:
                writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
                await reader.readuntil(b"\r\n\r\n")
            counts = [len(front._connections) for front in running.crew._fronts.values()]
            assert sum(counts) == 32
            assert min(counts) > 0
            for _, writer in links:
                writer.close()
                await writer.wait_closed()
            await running.until(lambda: not any(front._connections for front in running.crew._fronts.values()))

    run(main)


@pytest.mark.parametrize(
    "garbage",
    [
        b"\xff" * 64,  # no such kind
        pack_head(77, 3, 200) + b"abc",
        pack_head(12345, 0, LENT),  # of a connection that never was
        pack_head(1, 5, 1) + b"\xc1\xc1\xc1\xc1\xc1",  # a head that is none
        pack_head(0, 3, 15) + b"abc",  # counts that are none
    ],
)
def test_a_process_that_talks_nonsense_is_replaced_and_the_others_go_on(garbage: bytes) -> None:
    async def main() -> None:
        asked: asyncio.Queue[Exchange] = asyncio.Queue()
        async with crew(asked.put_nowait) as running:
            fronts = running.crew._fronts
            waiting: dict[int, asyncio.Task[bytes]] = {}
            while len(waiting) < 2:  # one request in each process
                task = asyncio.create_task(running.ask(b"x"))
                exchange = await asked.get()
                number = exchange.client >> 48
                if number in waiting:
                    exchange.respond(200)
                    await task
                    continue
                waiting[number] = task
                if number == 1:
                    gone = asyncio.Event()
                    exchange.on_gone = gone.set
                else:
                    kept = exchange
            old = dict(fronts)

            old[1]._channel.data_received(garbage)

            await gone.wait()
            assert await waiting[1] == b""
            kept.respond(200, b"kept")
            assert await waiting[2] == b"kept"
            await running.until(lambda: fronts[1] is not old[1] and len(running.crew.pids) == 2)
            assert fronts[2] is old[2]
            assert old[1].pid not in running.crew.pids

    run(main)


def test_a_successor_lends_no_memory_that_is_still_read() -> None:
    async def main() -> None:
        asked: asyncio.Queue[Exchange] = asyncio.Queue()
        async with crew(asked.put_nowait, memory=3 * 64 * SMALLEST) as running:
            fronts = running.crew._fronts
            body = os.urandom(40_000)
            held: dict[int, Block] = {}
            asking: list[asyncio.Task[None]] = []  # a task nobody holds is collected, its connection with it
            while len(held) < 2:
                asking.append(asyncio.create_task(_quietly(running.ask(body))))
                exchange = await asked.get()
                assert not isinstance(exchange.body, bytes)
                if exchange.client >> 48 in held:
                    exchange.body.release()
                    exchange.respond(200)
                else:
                    held[exchange.client >> 48] = exchange.body
            old = dict(fronts)
            for number in (1, 2):
                os.kill(old[number].pid, signal.SIGKILL)
            await running.until(lambda: all(fronts[n] is not old[n] and fronts[n].ready.done() for n in (1, 2)))

            async def where() -> bytes | Block:
                """Where the body of one more request is."""
                task = asyncio.create_task(running.ask(os.urandom(40_000)))
                exchange = await asked.get()
                found = exchange.body
                exchange.drop_body()
                exchange.respond(200)
                await task
                return found

            assert [isinstance(await where(), bytes) for _ in range(6)] == [True] * 6
            assert all(bytes(block.view) == body for block in held.values())
            assert running.crew.memory["arena_lent_bytes"] == 2 * 65_536
            for block in held.values():
                block.release()
            assert [isinstance(await where(), bytes) for _ in range(6)] == [False] * 6
            await running.until(lambda: running.crew.memory["arena_lent_bytes"] == 0)
            await asyncio.gather(*asking)

    run(main)


async def _quietly(work: Coroutine[object, object, bytes]) -> None:
    with suppress(ConnectionError, asyncio.IncompleteReadError):
        await work


def test_a_client_that_leaves_amid_its_body_gives_the_memory_back() -> None:
    async def main() -> None:
        async with crew(echo) as running:
            _, writer = await running.connect()
            writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n" + bytes(50_000))
            await running.until(lambda: running.crew.memory["arena_lent_bytes"] == 131_072)
            writer.close()
            await running.until(lambda: running.crew.memory["arena_lent_bytes"] == 0)

    run(main)


def test_many_large_and_small_requests_come_back_whole_through_both_processes() -> None:
    async def main() -> None:
        async with crew(echo, memory=3 * 64 * SMALLEST) as running:  # some bodies find no room there

            async def client(number: int) -> None:
                for size in (0, 10, 20_000, 300_000, 5):
                    body = bytes([number]) * size
                    assert await running.ask(body) == body

            await asyncio.gather(*(client(number) for number in range(24)))
            await reports(running.crew, running.address)
            await running.until(lambda: running.crew.memory["arena_lent_bytes"] == 0)
            await running.until(lambda: running.crew.memory["body_memory_bytes"] == 0)

    run(main)


def test_what_a_process_refuses_by_itself_is_counted() -> None:
    async def main() -> None:
        async with crew(echo) as running:
            reader, writer = await running.connect()
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.1 400")
            writer.close()
            await running.until(lambda: running.listener.hub.answers[4] == 1)
            assert await running.ask(b"x") == b"x"
            assert running.listener.hub.answers[2] == 1

    run(main)


def test_a_flood_of_messages_waits_with_its_client_while_the_core_is_busy() -> None:
    """The core stands still for a while; what its front processes hold for it meanwhile stays bounded."""
    got = 0

    def service(call: Call) -> None:
        def hear(message: bytes) -> None:
            nonlocal got
            got += len(message)

        call.on_message, call.on_end = hear, call.finish

    async def main() -> None:
        config = ServerConfig(frontends=2, shared_memory=0)
        made = Crew(config, None)
        listener = made.grpc({"/t.T/Flood": service}, Http2Limits(), host="127.0.0.1", port=0)
        await listener.start()
        try:
            await made.start()

            def flood() -> None:
                # a service that gives no answer is an error of the client's
                with grpc.insecure_channel(address) as channel, suppress(grpc.RpcError):
                    channel.stream_unary("/t.T/Flood")((bytes(60_000) for _ in range(3000)), timeout=60)

            address = listener.address
            thread = threading.Thread(target=flood)
            thread.start()
            while not got:  # noqa: ASYNC110 - it begins
                await asyncio.sleep(0.01)
            before = max(map(_resident, made.pids))
            time.sleep(1.5)  # noqa: ASYNC251 - the point
            assert max(map(_resident, made.pids)) - before < 80_000_000  # of the 180 MB that are sent
            while thread.is_alive():  # noqa: ASYNC110 - a thread
                await asyncio.sleep(0.01)
            assert got == 3000 * 60_000
        finally:
            await listener.drain(0.0)
            await made.stop()

    run(main)


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096

"""The listener over real sockets: TCP, Unix, TLS; clients that leave, reset, half-close, do not read; the drain."""

import asyncio
import json
import os
import socket
import ssl
import struct
import subprocess
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import uvloop

from shoal.frontend.exchange import Exchange
from shoal.frontend.http import Application, HttpLimits
from shoal.frontend.listen import Listener
from shoal.fronts.crew import Crew
from shoal.fronts.spread import Spread
from shoal.payload import Block
from tests.process.shapes import crew_of, reports

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
LAST = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
QUICK = HttpLimits(head_timeout=0.4, body_timeout=0.4, idle_timeout=0.4, write_timeout=0.4)


class Loan:
    def __init__(self, size: int) -> None:
        self.offset, self.size = 0, size
        self.view = memoryview(bytearray(size))
        self.is_released = False

    def release(self) -> None:
        self.is_released = True


class Server:
    """A listener, the exchanges it was given, and the memory it lent."""

    def __init__(
        self, listener: Listener | Spread, loans: list[Loan], lent: asyncio.Event, crew: Crew | None = None
    ) -> None:
        self.listener = listener
        self.loans = loans
        self.lent = lent
        self.crew = crew

    async def returned(self, loans: int) -> None:
        """So many blocks were lent, and all of them are back."""
        if self.crew is None:
            assert [loan.is_released for loan in self.loans] == [True] * loans
            return
        assert len(self.loans) == loans
        if loans:
            await reports(self.crew, self.listener.addresses[0])
        while self.crew.memory["arena_lent_bytes"]:  # noqa: ASYNC110 - a count that processes report
            await asyncio.sleep(0.05)

    async def connect(self, context: ssl.SSLContext | None = None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        address = self.listener.addresses[0]
        if isinstance(address, str):
            return await asyncio.open_unix_connection(address)
        return await asyncio.open_connection(*address, ssl=context)

    async def exchange(self, request: bytes, context: ssl.SSLContext | None = None) -> bytes:
        """Everything the server says to a client that sends this and listens to the end."""
        reader, writer = await self.connect(context)
        writer.write(request)
        answer = await reader.read()
        await close(writer)
        return answer


@asynccontextmanager
async def serving(
    app: Application,
    limits: HttpLimits | None = None,
    *,
    unix_path: str | None = None,
    ssl_context: ssl.SSLContext | None = None,
    certificate: tuple[str, str] = ("", ""),
) -> AsyncIterator[Server]:
    loans: list[Loan] = []
    lent = asyncio.Event()

    def lend(size: int) -> Block:
        lent.set()
        loans.append(Loan(size))
        return loans[-1]

    host, port = (None, None) if unix_path else ("127.0.0.1", 0)

    def counted(exchange: Exchange) -> None:
        """Count the blocks of processes that lend by themselves."""
        if not isinstance(exchange.body, bytes):
            lend(exchange.body.size)
        app(exchange)

    crew = crew_of(certificate)
    listener = (crew.http if crew else Listener)(
        counted if crew else app,
        limits or HttpLimits(),
        lend,
        host=host,
        port=port,
        unix_path=unix_path,
        ssl_context=ssl_context,
    )
    await listener.start()
    try:
        if crew:
            await crew.start()
        yield Server(listener, loans, lent, crew)
    finally:
        await listener.drain(0.0)
        if crew:
            await crew.stop()


async def close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(ConnectionError, ssl.SSLError):
        await writer.wait_closed()


def run(main: Callable[[], Coroutine[object, object, None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(30):
            await main()

    uvloop.run(limited())


def echo(exchange: Exchange) -> None:
    body = exchange.body if isinstance(exchange.body, bytes) else bytes(exchange.body.view)
    if not isinstance(exchange.body, bytes):
        exchange.body.release()
    exchange.respond(200, body)


def post(body: bytes) -> bytes:
    return b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body


async def never(events: asyncio.Event) -> None:
    """Nothing happens for as long as it takes the sweep to look twice."""
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(events.wait(), 0.3)


@pytest.mark.parametrize("size", [0, 10, 16_384, 16_385, 100_000, 5_000_000])
def test_bodies_of_any_size_come_back(size: int) -> None:
    async def main() -> None:
        async with serving(echo) as server:
            body = os.urandom(size)
            answer = await server.exchange(post(body))
            assert answer.endswith(b"Content-Length: %d\r\n\r\n" % size + body)
            await server.returned(int(size > 16_384))

    run(main)


def test_it_listens_on_a_unix_socket_and_removes_it(tmp_path: Path) -> None:
    path = str(tmp_path / "s")

    async def main() -> None:
        async with serving(echo, unix_path=path) as server:
            assert server.listener.addresses == [path]
            assert (await server.exchange(post(b"hi"))).endswith(b"\r\n\r\nhi")

    run(main)
    assert not os.path.exists(path)


def test_a_dead_servers_socket_is_replaced_and_a_living_ones_is_not(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)

    async def main() -> None:
        async with serving(echo, unix_path=path) as server:
            with pytest.raises(FileExistsError, match="another server"):
                async with serving(echo, unix_path=path):
                    pass
            assert (await server.exchange(post(b"hi"))).endswith(b"hi")

    run(main)


def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "s"
    path.write_text("precious")

    async def main() -> None:
        with pytest.raises(FileExistsError, match="no socket"):
            async with serving(echo, unix_path=str(path)):
                pass

    run(main)
    assert path.read_text() == "precious"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("tls")
    key, cert = str(folder / "key.pem"), str(folder / "cert.pem")
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-keyout",
            key,
            "-out",
            cert,
            "-days",
            "2",
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=IP:127.0.0.1",
        ],
        check=True,
        capture_output=True,
    )
    return cert, key


def test_tls_carries_requests_large_and_small_and_plain_text_gets_nothing(certificate: tuple[str, str]) -> None:
    serving_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving_context.load_cert_chain(*certificate)
    trusting = ssl.create_default_context(cafile=certificate[0])

    async def main() -> None:
        async with serving(echo, ssl_context=serving_context, certificate=certificate) as server:
            for body in (b"hi", os.urandom(1_000_000)):
                assert (await server.exchange(post(body), trusting)).endswith(b"\r\n\r\n" + body)
            with pytest.raises(ssl.SSLCertVerificationError):
                await server.exchange(post(b"hi"), ssl.create_default_context())
            with suppress(ConnectionResetError):
                assert b"200" not in await server.exchange(post(b"hi"))

    run(main)


def test_a_tls_client_that_leaves_is_noticed(certificate: tuple[str, str]) -> None:
    serving_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving_context.load_cert_chain(*certificate)
    trusting = ssl.create_default_context(cafile=certificate[0])

    async def main() -> None:
        asked, gone = asyncio.Event(), asyncio.Event()

        def app(exchange: Exchange) -> None:
            exchange.on_gone = gone.set
            asked.set()

        async with serving(app, ssl_context=serving_context, certificate=certificate) as server:
            _, writer = await server.connect(trusting)
            writer.write(GET)
            await asked.wait()
            await close(writer)
            await gone.wait()

    run(main)


@pytest.mark.parametrize("is_unix", [False, True])
def test_a_client_that_closes_is_gone_and_one_that_closes_its_side_is_not(tmp_path: Path, is_unix: bool) -> None:
    async def main() -> None:
        asked: asyncio.Queue[Exchange] = asyncio.Queue()
        gone = asyncio.Event()

        def app(exchange: Exchange) -> None:
            exchange.on_gone = gone.set
            asked.put_nowait(exchange)

        async with serving(app, QUICK, unix_path=str(tmp_path / "s") if is_unix else None) as server:
            reader, writer = await server.connect()
            writer.write(GET)
            writer.write_eof()
            exchange = await asked.get()
            await never(gone)
            exchange.respond(200, b"late")
            assert (await reader.read()).endswith(b"late")
            await close(writer)

            _, writer = await server.connect()
            writer.write(GET)
            await asked.get()
            assert not gone.is_set()
            await close(writer)
            await gone.wait()

    run(main)


@pytest.mark.parametrize("is_mid_body", [False, True])
def test_a_client_that_resets_is_gone_and_its_memory_comes_back(is_mid_body: bool) -> None:
    async def main() -> None:
        asked, gone = asyncio.Event(), asyncio.Event()

        def app(exchange: Exchange) -> None:
            exchange.on_gone = gone.set
            asked.set()

        async with serving(app) as server:
            _, writer = await server.connect()
            writer.write(post(b"x" * 100_000)[:-10] if is_mid_body else GET)
            await (server.lent if is_mid_body else asked).wait()
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
            await server.listener.hub.emptied()
            assert gone.is_set() == (not is_mid_body)
            assert [loan.is_released for loan in server.loans] == [True] * is_mid_body

    run(main)


def test_a_refused_upload_can_read_why_although_it_sends_on() -> None:
    async def main() -> None:
        async with serving(echo, HttpLimits(max_body=1_000_000)) as server:
            reader, writer = await server.connect()
            writer.write(post(b"x" * 20_000_000))
            await writer.drain()
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 413 ")
            assert json.loads(body)["code"] == 413
            await close(writer)

    run(main)


@pytest.mark.parametrize(
    ("sent", "status"),
    [(b"", b""), (b"GET / HT", b"HTTP/1.1 408 "), (post(b"x" * 100)[:-1], b"HTTP/1.1 408 ")],
    ids=["idle", "head", "body"],
)
def test_a_client_that_falls_silent_has_to_leave(sent: bytes, status: bytes) -> None:
    async def main() -> None:
        async with serving(echo, QUICK) as server:
            answer = await server.exchange(sent)
            assert answer[: len(status)] == status
            assert bool(answer) == bool(status)

    run(main)


def test_a_client_that_does_not_read_is_cut() -> None:
    async def main() -> None:
        gone = asyncio.Event()
        blocked: list[bool] = []

        def app(exchange: Exchange) -> None:
            exchange.on_gone = gone.set
            exchange.start(200)
            exchange.write(bytes(20_000_000))
            blocked.append(exchange.writable)

        async with serving(app, QUICK) as server:
            _, writer = await server.connect()
            writer.transport.pause_reading()  # type: ignore[attr-defined] # a stream's transport reads
            writer.write(GET)
            await gone.wait()
            assert blocked == [False]
            writer.transport.abort()

    run(main)


def test_a_client_that_reads_gets_a_long_stream_at_its_own_pace() -> None:
    async def main() -> None:
        def app(exchange: Exchange) -> None:
            left = [bytes([n]) * 100_000 for n in range(50)]

            def more() -> None:
                while left and exchange.writable:
                    exchange.write(left.pop(0))
                if not left:
                    exchange.on_drained = None
                    exchange.end()

            exchange.start(200)
            exchange.on_drained = more
            more()

        async with serving(app) as server:
            answer = await server.exchange(LAST)
            assert answer.endswith(b"\r\n0\r\n\r\n")
            assert len(answer) > 5_000_000

    run(main)


def test_pipelined_requests_are_all_answered_in_order() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()

        def app(exchange: Exchange) -> None:
            body = exchange.body
            assert isinstance(body, bytes)
            loop.call_soon(exchange.respond, 200, body)

        async with serving(app) as server:
            one = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n%03d"
            answer = await server.exchange(b"".join(one % n for n in range(200)) + LAST)
            assert answer.count(b"HTTP/1.1 200 OK") == 201
            at = [answer.index(b"\r\n\r\n%03d" % n) for n in range(200)]
            assert at == sorted(at)

    run(main)


def test_connections_over_the_limit_are_answered_503_at_once() -> None:
    async def main() -> None:
        async with serving(echo, HttpLimits(max_connections=1)) as server:
            reader, writer = await server.connect()
            writer.write(GET)
            assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
            assert (await server.exchange(GET)).startswith(b"HTTP/1.1 503 ")
            await close(writer)
            await server.listener.hub.emptied()
            assert (await server.exchange(LAST)).startswith(b"HTTP/1.1 200 ")

    run(main)


async def refused(host: str, port: int) -> None:
    """Wait until nobody accepts there: each of several processes hears of a drain by itself."""
    async with asyncio.timeout(60):
        with pytest.raises(ConnectionRefusedError):
            while True:
                _, writer = await asyncio.open_connection(host, port)
                await close(writer)
                await asyncio.sleep(0.01)


def test_a_drain_ends_idle_connections_at_once_and_busy_ones_with_their_answer() -> None:
    async def main() -> None:
        asked: asyncio.Queue[Exchange] = asyncio.Queue()
        async with serving(asked.put_nowait) as server:
            address = server.listener.addresses[0]
            idle_reader, idle_writer = await server.connect()
            busy_reader, busy_writer = await server.connect()
            busy_writer.write(GET)
            exchange = await asked.get()
            draining = asyncio.create_task(server.listener.drain(20.0))
            assert await idle_reader.read() == b""
            assert not draining.done()
            await refused(*address)
            exchange.respond(200, b"last")
            answer = await busy_reader.read()
            assert b"Connection: close\r\n" in answer
            assert answer.endswith(b"last")
            await close(idle_writer)
            await close(busy_writer)
            await draining

    run(main)


def test_a_drain_cuts_what_is_left_at_its_end() -> None:
    async def main() -> None:
        asked, gone = asyncio.Event(), asyncio.Event()

        def app(exchange: Exchange) -> None:
            exchange.on_gone = gone.set
            asked.set()

        async with serving(app) as server:
            reader, writer = await server.connect()
            writer.write(GET)
            await asked.wait()
            await server.listener.drain(0.05)
            assert gone.is_set()
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
            await close(writer)

    run(main)


def test_a_start_that_fails_halfway_leaves_nothing_bound(tmp_path: Path) -> None:
    path = tmp_path / "s"
    path.write_text("precious")

    async def main() -> None:
        listener = Listener(echo, HttpLimits(), lambda size: None, host="127.0.0.1", port=0, unix_path=str(path))
        with pytest.raises(FileExistsError):
            await listener.start()
        assert listener.addresses == []

    run(main)


def test_a_port_that_is_taken_is_an_error() -> None:
    async def main() -> None:
        async with serving(echo) as server:
            address = server.listener.addresses[0]
            assert isinstance(address, tuple)
            other = Listener(echo, HttpLimits(), lambda size: None, host=address[0], port=address[1], unix_path=None)
            with pytest.raises(OSError, match="in use"):
                await other.start()

    run(main)

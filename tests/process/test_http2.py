"""The HTTP/2 listener with real clients of grpcio: every kind of call, deadlines, cancellation, large messages, TLS,
and the drain. The listener runs on its own loop in a thread; the clients are grpcio's, blocking and asyncio."""

import asyncio
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
import uvloop

from shoal.frontend.http2.frames import PREFACE, SETTINGS, pack_head
from shoal.frontend.http2.limits import Http2Limits
from shoal.frontend.http2.server import Http2Listener
from shoal.frontend.rpc import Call, Code
from tests.process.shapes import crew_of

UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class Services:
    """The services of the tests, and what they saw."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.gone = threading.Semaphore(0)
        self.begun = threading.Semaphore(0)
        self.held: list[Call] = []
        self.methods = {
            f"/t.T/{name}": service
            for name, service in {
                "Echo": self.echo,
                "Talk": self.talk,
                "Count": self.count,
                "Sum": self.sum,
                "Hold": self.hold,
                "Fail": self.fail,
                "Metadata": self.metadata,
                "Stream": self.stream,
            }.items()
        }

    def echo(self, call: Call) -> None:
        got: list[bytes] = []

        def end() -> None:
            call.send(b"".join(got))
            call.finish()

        call.on_message, call.on_end = got.append, end

    def talk(self, call: Call) -> None:
        call.on_message, call.on_end = call.send, call.finish

    def count(self, call: Call) -> None:
        def answer(text: bytes) -> None:
            for number in range(int(text)):
                call.send(b"%d" % number)
            call.finish()

        call.on_message = answer

    def sum(self, call: Call) -> None:
        total = 0

        def add(text: bytes) -> None:
            nonlocal total
            total += int(text)

        def end() -> None:
            call.send(b"%d" % total)
            call.finish()

        call.on_message, call.on_end = add, end

    def hold(self, call: Call) -> None:
        self.held.append(call)
        call.on_end = self.begun.release
        call.on_gone = self.gone.release

    def fail(self, call: Call) -> None:
        call.finish(Code.FAILED_PRECONDITION, "nö: 100 %\n", [(b"why-bin", b"\0\xff"), (b"why", b"because")])

    def metadata(self, call: Call) -> None:
        def end() -> None:
            names = [name for name, _ in call.metadata if name.startswith(b"k")]
            values = [value for name, value in call.metadata if name.startswith(b"k")]
            call.send(b"|".join(names) + b"#" + b"|".join(values))
            call.finish(trailers=[(b"back-bin", b"\x01\xfe"), (b"back", b"x")])

        call.on_end = end

    def stream(self, call: Call) -> None:
        """Many large messages, as fast as the client takes them."""
        left = 200
        loop = asyncio.get_running_loop()
        is_gone = False

        def more() -> None:
            nonlocal left
            while left and call.writable:
                left -= 1
                call.send(bytes(100_000))
            if not left:
                call.finish()
            elif not is_gone:
                loop.call_later(0.001, more)

        def gone() -> None:
            nonlocal is_gone
            is_gone = True
            self.gone.release()

        call.on_end, call.on_gone = more, gone


class Server:
    """A listener in a thread with its own loop."""

    def __init__(self, limits: Http2Limits, context: ssl.SSLContext | None, certificate: tuple[str, str]) -> None:
        self.services = Services()
        self.crew = crew_of(certificate)
        listen = self.crew.grpc if self.crew else Http2Listener
        self.listener = listen(self.services.methods, limits, host="127.0.0.1", port=0, ssl_context=context)
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def start(self) -> None:
        self._thread.start()
        self.run(self.listener.start())
        if self.crew:
            self.run(self.crew.start())
        self.address = self.listener.address

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def answer(self, text: bytes) -> None:
        """Answer every call that is held."""

        async def act() -> None:
            for call in self.services.held:
                call.send(text)
                call.finish()

        self.run(act())

    def drain(self, timeout: float) -> None:
        self.run(self.listener.drain(timeout))

    def stop(self) -> None:
        self.drain(0.2)
        if self.crew:
            self.run(self.crew.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def channel(self, *options: tuple[str, object]) -> grpc.Channel:
        return grpc.insecure_channel(self.address, options=[*UNLIMITED, *options])


@contextmanager
def serving(
    limits: Http2Limits | None = None,
    context: ssl.SSLContext | None = None,
    certificate: tuple[str, str] = ("", ""),
) -> Iterator[Server]:
    server = Server(limits or Http2Limits(), context, certificate)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as running:
        yield running


def test_all_four_kinds_of_calls(server: Server) -> None:
    with server.channel() as channel:
        assert channel.unary_unary("/t.T/Echo")(b"hello") == b"hello"
        assert channel.unary_unary("/t.T/Echo")(b"") == b""
        assert list(channel.unary_stream("/t.T/Count")(b"5")) == [b"0", b"1", b"2", b"3", b"4"]
        assert channel.stream_unary("/t.T/Sum")(iter([b"1", b"2", b"39"])) == b"42"
        assert list(channel.stream_stream("/t.T/Talk")(iter([b"a", b"", b"ccc"]))) == [b"a", b"", b"ccc"]


def test_a_conversation_goes_back_and_forth(server: Server) -> None:
    with server.channel() as channel:
        heard = threading.Semaphore(0)

        def say() -> Iterator[bytes]:
            for number in range(20):
                yield b"%d" % number
                assert heard.acquire(timeout=10)

        answers = []
        for text in channel.stream_stream("/t.T/Talk")(say()):
            answers.append(text)
            heard.release()
    assert answers == [b"%d" % number for number in range(20)]


def test_asyncio_clients_with_many_calls_at_once(server: Server) -> None:
    async def run() -> None:
        async with grpc.aio.insecure_channel(server.address) as channel:
            echo, talk = channel.unary_unary("/t.T/Echo"), channel.stream_stream("/t.T/Talk")
            texts = [b"%d" % number * 50 for number in range(2000)]
            assert await asyncio.gather(*(echo(text, timeout=60) for text in texts)) == texts

            async def converse(number: int) -> list[bytes]:
                return [text async for text in talk(iter([b"%d" % number] * 5))]

            got = await asyncio.gather(*(converse(number) for number in range(50)))
            assert got == [[b"%d" % number] * 5 for number in range(50)]

    asyncio.run(run())


def test_more_calls_than_streams_wait_for_their_turn() -> None:
    with serving(Http2Limits(max_streams=4)) as server, server.channel() as channel:
        echo = channel.unary_unary("/t.T/Echo")
        futures = [echo.future(b"%d" % number, timeout=30) for number in range(100)]
        assert [future.result() for future in futures] == [b"%d" % number for number in range(100)]


@pytest.mark.parametrize("size", [65_530, 65_531, 1_000_000, 10_000_000])
def test_large_messages_pass_both_ways(server: Server, size: int) -> None:
    text = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    with server.channel() as channel:
        assert channel.unary_unary("/t.T/Echo")(text, timeout=60) == text


def test_large_messages_share_a_connection_with_small_ones(server: Server) -> None:
    text = bytes(3_000_000)
    with server.channel() as channel:
        echo = channel.unary_unary("/t.T/Echo")
        large = [echo.future(text, timeout=60) for _ in range(5)]
        small = [echo.future(b"%d" % number, timeout=60) for number in range(100)]
        assert [future.result() for future in small] == [b"%d" % number for number in range(100)]
        assert all(future.result() == text for future in large)


def test_a_message_too_large_is_resource_exhausted() -> None:
    with serving(Http2Limits(max_message=100_000)) as server, server.channel() as channel:
        echo = channel.unary_unary("/t.T/Echo")
        with pytest.raises(grpc.RpcError) as caught:
            echo(bytes(5_000_000), timeout=30)
        assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert echo(bytes(100_000), timeout=30) == bytes(100_000)


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_compressed_requests_are_understood(server: Server, compression: grpc.Compression) -> None:
    with server.channel() as channel:
        echo = channel.unary_unary("/t.T/Echo")
        assert echo(b"hello" * 1000, compression=compression) == b"hello" * 1000
        talk = channel.stream_stream("/t.T/Talk")
        assert list(talk(iter([b"a" * 1000, b"b"]), compression=compression)) == [b"a" * 1000, b"b"]


def test_a_compressed_bomb_is_resource_exhausted() -> None:
    with serving(Http2Limits(max_message=100_000)) as server, server.channel() as channel:
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary("/t.T/Echo")(bytes(20_000_000), compression=grpc.Compression.Gzip, timeout=30)
        assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "decompresses" in str(caught.value.details())


def test_metadata_travels_both_ways(server: Server) -> None:
    with server.channel() as channel:
        metadata = (("key", "value"), ("k-bin", b"\x00\xff\x10"), ("key", "again"))
        answer, call = channel.unary_unary("/t.T/Metadata").with_call(b"", metadata=metadata)
        assert answer == b"key|k-bin|key#value|\x00\xff\x10|again"
        assert dict(call.trailing_metadata()) == {"back-bin": b"\x01\xfe", "back": "x"}


def test_errors_carry_code_words_and_metadata(server: Server) -> None:
    with server.channel() as channel:
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary("/t.T/Fail")(b"")
        assert caught.value.code() == grpc.StatusCode.FAILED_PRECONDITION
        assert caught.value.details() == "nö: 100 %\n"
        assert dict(caught.value.trailing_metadata()) == {"why-bin": b"\x00\xff", "why": "because"}
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary("/t.T/Nothing")(b"")
        assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_a_deadline_ends_a_call_on_both_sides(server: Server) -> None:
    with server.channel() as channel:
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary("/t.T/Hold")(b"", timeout=0.3)
        assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        assert server.services.gone.acquire(timeout=10)
        assert server.services.held[0].timeout == pytest.approx(0.3, abs=0.05)
        assert channel.unary_unary("/t.T/Echo")(b"on") == b"on"


def test_the_server_keeps_the_deadline_by_itself(server: Server) -> None:
    """A client that never cancels: raw frames, with a timeout nobody but the server watches."""
    block = b"\x83\x86\x44\x09/t.T/Hold\x00\x0ccontent-type\x10application/grpc\x00\x0cgrpc-timeout\x04200m"
    with socket.create_connection(server.address.split(":")) as raw:  # type: ignore[arg-type]  # host and port
        raw.settimeout(10)
        raw.sendall(PREFACE + pack_head(SETTINGS, 0, 0) + pack_head(len(block) << 8 | 1, 5, 1) + block)
        got = b""
        while b"grpc-status" not in got:
            got += raw.recv(65536)
        assert b"grpc-status\x014" in got
    assert server.services.gone.acquire(timeout=10)


def test_a_cancelled_call_is_known_to_its_service(server: Server) -> None:
    with server.channel() as channel:
        future = channel.unary_unary("/t.T/Hold").future(b"")
        assert server.services.begun.acquire(timeout=10)
        future.cancel()
        assert server.services.gone.acquire(timeout=10)
        answers = channel.unary_stream("/t.T/Stream")(b"")
        next(answers)
        answers.cancel()
        assert server.services.gone.acquire(timeout=10)
        assert channel.unary_unary("/t.T/Echo")(b"on") == b"on"


def test_a_client_that_leaves_is_known_to_its_services(server: Server) -> None:
    with server.channel() as channel:
        futures = [channel.unary_unary("/t.T/Hold").future(b"") for _ in range(3)]
        assert all(server.services.begun.acquire(timeout=10) for _ in range(3))
    assert all(server.services.gone.acquire(timeout=10) for _ in range(3))
    assert all(future.done() for future in futures)


def test_a_slow_reader_gets_everything_and_holds_up_nobody(server: Server) -> None:
    with server.channel() as channel:
        slow = channel.unary_stream("/t.T/Stream")(b"", timeout=60)
        assert len(next(slow)) == 100_000
        echo = channel.unary_unary("/t.T/Echo")
        assert all(echo(b"%d" % number, timeout=10) == b"%d" % number for number in range(50))
        assert sum(1 for text in slow if len(text) == 100_000) == 199


def test_keepalive_of_the_client_is_answered(server: Server) -> None:
    options = [
        ("grpc.keepalive_time_ms", 100),
        ("grpc.keepalive_timeout_ms", 1000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
    ]
    with server.channel(*options) as channel:
        future = channel.unary_unary("/t.T/Hold").future(b"", timeout=10)
        assert server.services.begun.acquire(timeout=10)
        time.sleep(1)
        server.answer(b"still here")
        assert future.result() == b"still here"


def test_a_silent_client_that_answers_pings_is_kept() -> None:
    with serving(Http2Limits(ping_after=0.2, ping_timeout=5.0)) as server, server.channel() as channel:
        future = channel.unary_unary("/t.T/Hold").future(b"", timeout=20)
        assert server.services.begun.acquire(timeout=10)
        time.sleep(1.5)
        server.answer(b"x")
        assert future.result() == b"x"


def test_an_idle_connection_is_closed_and_the_client_comes_again() -> None:
    with serving(Http2Limits(idle_timeout=0.2)) as server, server.channel() as channel:
        echo = channel.unary_unary("/t.T/Echo")
        for number in range(3):
            assert echo(b"%d" % number, wait_for_ready=True, timeout=20) == b"%d" % number
            wait_until(lambda: not server.listener.hub.connections)
        assert server.listener.hub.accepted >= 3


def test_a_drain_finishes_open_calls_and_takes_no_new_ones(server: Server) -> None:
    with server.channel() as channel:
        hold = channel.unary_unary("/t.T/Hold")
        futures = [hold.future(b"", timeout=20) for _ in range(3)]
        assert all(server.services.begun.acquire(timeout=10) for _ in range(3))
        drained = threading.Thread(target=server.drain, args=(20.0,))
        drained.start()
        wait_until(lambda: not is_reachable(server.address))
        server.answer(b"done")
        drained.join(20)
        assert not drained.is_alive()
        assert [future.result() for future in futures] == [b"done"] * 3
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary("/t.T/Echo")(b"late", timeout=5)
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE


def test_a_drain_cuts_what_does_not_end(server: Server) -> None:
    with server.channel() as channel:
        future = channel.unary_unary("/t.T/Hold").future(b"", timeout=20)
        assert server.services.begun.acquire(timeout=10)
        server.drain(0.2)
        assert server.services.gone.acquire(timeout=10)
        with pytest.raises(grpc.RpcError) as caught:
            future.result()
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE


def test_tls_with_alpn(tmp_path: Path) -> None:
    context, certificate = self_signed(tmp_path)
    files = str(tmp_path / "certificate.pem"), str(tmp_path / "key.pem")
    with serving(context=context, certificate=files) as server:
        credentials = grpc.ssl_channel_credentials(certificate)
        options = [*UNLIMITED, ("grpc.ssl_target_name_override", "localhost")]
        with grpc.secure_channel(server.address, credentials, options) as channel:
            assert channel.unary_unary("/t.T/Echo")(b"secret", timeout=20) == b"secret"
            assert channel.unary_unary("/t.T/Echo")(bytes(5_000_000), timeout=60) == bytes(5_000_000)
            assert list(channel.stream_stream("/t.T/Talk")(iter([b"a", b"b"]))) == [b"a", b"b"]
        client = ssl.create_default_context(cadata=certificate.decode())
        client.check_hostname = False
        client.set_alpn_protocols(["h2", "http/1.1"])
        host, port = server.address.split(":")
        with socket.create_connection((host, int(port))) as raw, client.wrap_socket(raw) as secure:
            assert secure.selected_alpn_protocol() == "h2"


def test_http_1_is_told_where_it_is(server: Server) -> None:
    host, port = server.address.split(":")
    with socket.create_connection((host, int(port))) as raw:
        raw.settimeout(10)
        raw.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        got = b""
        while piece := raw.recv(65536):
            got += piece
    assert got.startswith(b"HTTP/1.1 400 ")


def test_connections_over_the_limit_are_closed() -> None:
    with serving(Http2Limits(max_connections=1)) as server:
        host, port = server.address.split(":")
        with socket.create_connection((host, int(port))):
            wait_until(lambda: len(server.listener.hub.connections) == 1)
            with socket.create_connection((host, int(port))) as second:
                second.settimeout(10)
                assert second.recv(10) == b""
        assert server.listener.hub.refused == 1


def test_an_address_is_known_while_it_listens(server: Server) -> None:
    assert server.address.startswith("127.0.0.1:")
    assert not server.address.endswith(":0")
    server.drain(1.0)
    with pytest.raises(RuntimeError):
        _ = server.listener.address


def is_reachable(address: str) -> bool:
    host, port = address.split(":")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError:
        return False
    return True


def wait_until(is_true: Callable[[], bool]) -> None:
    for _ in range(1000):
        if is_true():
            return
        time.sleep(0.02)
    raise AssertionError("it did not come true")


def self_signed(folder: Path) -> tuple[ssl.SSLContext, bytes]:
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", *subject]
    subprocess.run([*command, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context, certificate.read_bytes()

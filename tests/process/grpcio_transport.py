"""Services over grpcio: the reference that our own transport is compared with, on the same tests."""

import asyncio
import contextlib
import logging
import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import grpc
import grpc.aio

from shoal.frontend.client import Client
from shoal.frontend.fragments import Fragments
from shoal.frontend.rpc import Code, Service, Services
from shoal.payload import Buffer

log = logging.getLogger("shoal.grpc")
MOST_STREAMS = 1024  # calls at the same time on one connection
MOST_UNSENT = 64 * 1024  # bytes of answers waiting, above which a call is not writable
FAILED = "the server failed on this call; its log says why"


class GrpcioListener:
    """Serves on one address. `start` binds; `drain` ends everything that was started.

    `pem` is a private key and a certificate chain, in PEM form: with it, the port speaks TLS.
    """

    def __init__(
        self, services: Services, *, host: str, port: int, max_message: int, pem: tuple[bytes, bytes] | None = None
    ) -> None:
        self._services = services
        self._host = f"[{host}]" if ":" in host else host
        self._port = port
        self._max_message = max_message
        self._pem = pem
        self._server: Any = None

    @property
    def address(self) -> str:
        """Where it listens, as a client writes it."""
        return f"{self._host}:{self._port}"

    async def start(self) -> None:
        """Bind and accept; OSError where that is not possible."""
        options = [
            ("grpc.max_receive_message_length", self._max_message),
            ("grpc.max_send_message_length", -1),
            ("grpc.max_concurrent_streams", MOST_STREAMS),
            ("grpc.so_reuseport", 0),
        ]
        server = grpc.aio.server(handlers=(_Handlers(self._services),), options=options)
        try:
            if self._pem is None:
                self._port = server.add_insecure_port(self.address)
            else:
                self._port = server.add_secure_port(self.address, grpc.ssl_server_credentials([self._pem]))
        except RuntimeError as error:
            raise OSError(f"cannot listen on {self.address}: {error}") from None
        self._server = server
        await server.start()

    async def drain(self, timeout: float) -> None:
        """Take nothing new, finish what was taken, and cut what is left after `timeout` seconds."""
        if self._server is not None:
            await self._server.stop(timeout)


class _Handlers(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpcio has no types
    """Finds the service of a method. On the wire every call is a stream each way, whatever its kind."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def service(self, details: Any) -> Any:
        """Give the handler of a method, or None where there is no such method."""
        service = self._services.get(details.method)
        if service is None:
            return None

        async def serve(_: Any, context: Any) -> None:
            await GrpcioCall(details.method, context).serve(service)

        return grpc.stream_stream_rpc_method_handler(serve)


class GrpcioCall:
    """One call, as `rpc.Call` says, on top of grpcio's context."""

    def __init__(self, method: str, context: Any) -> None:
        remaining = context.time_remaining()
        self.method = method
        self.metadata: Sequence[tuple[bytes, bytes]] = [
            (_bytes(name), _bytes(value)) for name, value in context.invocation_metadata()
        ]
        self.timeout = math.inf if remaining is None else float(remaining)
        self.peer = str(context.peer())
        self.client = Client(hash(self.peer))
        self.on_message: Callable[[bytes], None] = _ignore
        self.on_pieces: Callable[[Fragments], None] | None = None
        self.on_end: Callable[[], None] = _nothing
        self.on_gone: Callable[[], None] = _nothing
        self._context = context
        self._out: deque[bytes] = deque()
        self._unsent = 0
        self._is_over = False
        self._changed = asyncio.Event()  # something is to be sent, or the call is over
        self._status: tuple[Code, str, Sequence[tuple[bytes, bytes]]] = (Code.OK, "", ())

    @property
    def writable(self) -> bool:
        """Whether more may be sent now."""
        return not self._is_over and self._unsent < MOST_UNSENT

    def send(self, message: bytes, *more: Buffer) -> None:
        """Send one message."""
        if not self._is_over:
            message = b"".join((message, *more))
            self._out.append(message)
            self._unsent += len(message)
            self._changed.set()

    def finish(self, code: Code = Code.OK, message: str = "", trailers: Sequence[tuple[bytes, bytes]] = ()) -> None:
        """End the call."""
        if not self._is_over:
            self._is_over = True
            self._status = (code, message, trailers)
            self._changed.set()
            self._let_go()

    async def serve(self, service: Service) -> None:
        """Run the call to its end; cancelled by grpcio when nobody waits any more."""
        reading: asyncio.Task[None] | None = None
        try:
            self._tell(lambda: service(self))
            reading = asyncio.get_running_loop().create_task(self._read())
            await self._write()
        except asyncio.CancelledError:
            self._leave()
            raise
        finally:
            self._is_over = True
            if reading is not None:
                reading.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await reading

    async def _read(self) -> None:
        try:
            while (message := await self._context.read()) is not grpc.aio.EOF and not self._is_over:
                self._tell(lambda message=message: self.on_message(message))  # type: ignore[misc]
            if not self._is_over:
                self._tell(self.on_end)
        except Exception:  # the connection broke, or a message was over the limit: grpcio has told its client
            self._leave()

    async def _write(self) -> None:
        while True:
            while self._out:
                message = self._out.popleft()
                await self._context.write(message)
                self._unsent -= len(message)
            if self._is_over:
                break
            self._changed.clear()
            await self._changed.wait()
        code, words, trailers = self._status
        if trailers:
            self._context.set_trailing_metadata(tuple((name.decode(), value.decode()) for name, value in trailers))
        if code:
            await self._context.abort(CODES[code], words)

    def _tell(self, callback: Callable[[], None]) -> None:
        try:
            callback()
        except Exception:
            log.exception("the service failed on %s", self.method)
            self._leave(Code.UNKNOWN, FAILED)

    def _leave(self, code: Code = Code.CANCELLED, message: str = "") -> None:
        """Tell the service that nobody waits any more, unless it had ended the call."""
        on_gone = self.on_gone
        if not self._is_over:
            self.finish(code, message)
            on_gone()

    def _let_go(self) -> None:
        self.on_message = _ignore
        self.on_end = self.on_gone = _nothing


CODES = {code: next(known for known in grpc.StatusCode if known.value[0] == code) for code in Code}


def _bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode()


def _ignore(message: bytes) -> None:
    pass


def _nothing() -> None:
    pass

"""A transport without a socket, memory that counts its loans, and a connection between the two."""

import asyncio
from collections.abc import Callable, Iterable, Sequence

from shoal.frontend.exchange import Exchange
from shoal.frontend.http import Application, HttpLimits, HttpProtocol, Hub
from shoal.payload import Block

POST = b"POST /predictions/m?x=1 HTTP/1.1\r\nHost: a\r\n"
GET = b"GET / HTTP/1.1\r\nHost: a\r\n"


def post(body: bytes, *headers: bytes) -> bytes:
    lines = b"".join(h + b"\r\n" for h in headers)
    return POST + lines + b"Content-Length: %d\r\n\r\n" % len(body) + body


def chunked(*pieces: bytes) -> bytes:
    body = b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in pieces)
    return POST + b"Transfer-Encoding: chunked\r\n\r\n" + body + b"0\r\n\r\n"


def never(delay: float, callback: Callable[[], None]) -> None:
    """No timer rings here: what comes after a while is up to the sweep."""


class FakeTransport(asyncio.Transport):
    def __init__(self, extra: dict[str, object] | None = None) -> None:
        super().__init__(extra or {"peername": ("10.0.0.7", 1234)})
        self.written = bytearray()
        self.writes = 0
        self.unsent = 0
        self.is_reading_now = True
        self.closed = self.aborted = self.ended = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.ended, "written after the end"
        self.writes += 1
        self.written += data

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.ended = True

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def pause_reading(self) -> None:
        assert self.is_reading_now
        self.is_reading_now = False

    def resume_reading(self) -> None:
        assert not self.is_reading_now
        self.is_reading_now = True

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True


class Loan:
    def __init__(self, size: int) -> None:
        self.offset = 0
        self.size = size
        self._memory = bytearray(size)
        self.released = 0

    @property
    def view(self) -> memoryview:
        return memoryview(self._memory)

    def release(self) -> None:
        self.released += 1


class Client:
    """A connection, its fake transport, and the exchanges its application was given."""

    def __init__(
        self,
        app: Application | None = None,
        limits: HttpLimits | None = None,
        *,
        hub: Hub | None = None,
        has_memory: bool = True,
        extra: dict[str, object] | None = None,
    ) -> None:
        self.seen: list[Exchange] = []
        self.loans: list[Loan] = []
        self.later: list[Callable[[], None]] = []
        self.hub = hub or Hub(soon=self.later.append, later=never)
        self._app = app
        self._has_memory = has_memory
        self.transport = FakeTransport(extra)
        self.connection = HttpProtocol(self._take, limits or HttpLimits(), self._lend, self.hub)
        self.connection.connection_made(self.transport)

    def _take(self, exchange: Exchange) -> None:
        self.seen.append(exchange)
        if self._app is not None:
            self._app(exchange)

    def _lend(self, size: int) -> Block | None:
        if not self._has_memory:
            return None
        self.loans.append(Loan(size))
        return self.loans[-1]

    def send(self, data: bytes) -> None:
        while data:
            place = self.connection.get_buffer(-1)
            size = min(len(place), len(data))
            place[:size] = data[:size]
            self.connection.buffer_updated(size)
            data = data[size:]

    def turn(self) -> None:
        """One turn of the loop."""
        callbacks = self.later[:]
        self.later.clear()
        for callback in callbacks:
            callback()

    @property
    def answer(self) -> bytes:
        return bytes(self.transport.written)

    @property
    def status(self) -> int:
        assert self.answer, "no answer"
        return int(self.answer.split(b" ", 2)[1])


def bodies(exchanges: Sequence[Exchange]) -> list[bytes]:
    return [e.body if isinstance(e.body, bytes) else bytes(e.body.view) for e in exchanges]


def ok(exchange: Exchange) -> None:
    exchange.respond(200, b"ok")

"""HTTP/1.1: bytes, cut anywhere, to a real connection without a socket."""

import re
from collections.abc import Callable, Hashable
from random import Random

from shoal.frontend.exchange import Exchange
from shoal.frontend.http import HttpLimits, HttpProtocol
from shoal.frontend.hub import Hub
from tests.fuzz.target import Witness, expect
from tests.unit.frontend.http_fakes import FakeTransport, Loan, never

LIMITS = HttpLimits(max_body=2000, max_head=1500, max_headers=12, inline_body=100, max_pipelined=4)
REFUSALS = {400, 408, 413, 414, 417, 431, 501, 503, 505}
SHORTEST = 16  # bytes of a request, each of which may take a turn of the loop
_status_line = re.compile(rb"HTTP/1\.1 (\d{3}) [^\r\n]*\r\n")

GET = b"GET /v2/health/live?x=1 HTTP/1.1\r\nHost: a\r\n\r\n"
POST = b"POST /predictions/m HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"
SEEDS = (
    GET,
    POST,
    GET + POST + GET,
    b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nX: y\r\n\r\n" + GET,
    b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc" + POST,
    b"HEAD http://host/path?q HTTP/1.0\r\nConnection: keep-alive\r\n\r\n" + GET,
    b"OPTIONS * HTTP/1.1\r\nHost: [::1]:80\r\nX-Request-Id: 17\r\nX-Request-Timeout-Ms: 5\r\n\r\n",
    b"POST / HTTP/1.1\r\nhost: a\r\nConnection: close\r\nContent-Length: 150\r\n\r\n" + b"x" * 150,
    b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n" + GET,
)
WORDS = (
    *(b"\r\n", b"\n", b"\r", b"\r\n\r\n", b"\n\n", b": ", b":", b" ", b"\t", b"\0", b"\x7f", b"\xff", b";", b",", b"0"),
    *(b"Content-Length: 0\r\n", b"Content-Length: 5\r\n", b"Content-Length: +5\r\n", b"content-length:5, 5\r\n"),
    *(b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: gzip, chunked\r\n", b"Transfer-Encoding : chunked\r\n"),
    *(b"Connection: close\r\n", b"Connection: keep-alive\r\n", b"Host: b\r\n", b"Expect: 100-continue\r\n"),
    *(
        b"HTTP/1.0",
        b"HTTP/1.1",
        b"HTTP/2.0",
        b"HTTP/0.9",
        b"GET ",
        b"POST ",
        b"HEAD ",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ),
    *(
        b"0\r\n\r\n",
        b"5\r\nhello\r\n",
        b"ffffffffffffffff\r\n",
        b"Upgrade: h2c\r\n",
        b"X-Request-Id: a\r\n",
        b" folded\r\n",
    ),
)


class Http1:
    """One connection for each input. Every other trial gives the same bytes again, cut in other places."""

    name = "http1"
    share = 400
    seeds = SEEDS
    words = WORDS

    def __init__(self) -> None:
        self._witness = Witness("shoal.http")
        self._later: list[Callable[[], None]] = []
        self._hub = Hub(soon=self._later.append, later=never)

    def attempt(self, data: bytes, random: Random) -> Hashable:
        """Feed it whole or in pieces; what is told to the application does not depend on that."""
        if self._hub.connections:  # of a trial that found something
            self._hub = Hub(soon=self._later.append, later=never)
        first = Trial(data, [], self._hub, self._later, is_late=False)
        self._witness.check()
        if random.random() < 0.5:
            cuts = sorted(random.randrange(len(data) + 1) for _ in range(random.randint(1, 5)))
            second = Trial(data, cuts, self._hub, self._later, is_late=random.random() < 0.5)
            self._witness.check()
            expect(second.told == first.told, f"cut at {cuts} it is {second.told}, whole it is {first.told}")
            expect(second.statuses == first.statuses, f"cut at {cuts}: {second.statuses}, whole: {first.statuses}")
        return tuple(sorted(set(first.statuses))), first.ending, min(len(first.told), 4)


class Trial:
    """A connection from its first byte to its end."""

    def __init__(
        self, data: bytes, cuts: list[int], hub: Hub, later: list[Callable[[], None]], *, is_late: bool
    ) -> None:
        self.told: list[tuple[str, bytes, bytes, int]] = []
        self._is_late = is_late
        self._waiting: list[Exchange] = []
        self._loans: list[Loan] = []
        self._later = later
        self._later.clear()
        self._hub = hub
        self._transport = transport = FakeTransport()
        self._connection = HttpProtocol(self._take, LIMITS, self._lend, hub)
        self._connection.connection_made(transport)
        for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
            self._send(data[begin:end])
            self._turn()
        self._settle(64 + len(data) // SHORTEST)
        self.statuses = [int(status) for status in self._answers()]
        self.ending = (transport.ended, transport.closed, transport.aborted, transport.is_reading_now)
        self._check()

    def _take(self, exchange: Exchange) -> None:
        body = exchange.body if isinstance(exchange.body, bytes) else bytes(exchange.body.view)
        exchange.drop_body()
        self.told.append((exchange.method, exchange.target, body, len(exchange.headers)))
        if self._is_late:
            self._waiting.append(exchange)
        else:
            exchange.respond(200, b"ok")

    def _lend(self, size: int) -> Loan:
        self._loans.append(Loan(size))
        return self._loans[-1]

    def _send(self, data: bytes) -> None:
        transport, connection = self._transport, self._connection
        while data and not (transport.closed or transport.aborted):
            place = connection.get_buffer(-1)
            size = min(len(place), len(data))
            place[:size] = data[:size]
            connection.buffer_updated(size)
            data = data[size:]

    def _turn(self) -> None:
        waiting, self._waiting[:] = self._waiting[:], []
        for exchange in waiting:
            exchange.respond(200, b"ok")
        later, self._later[:] = self._later[:], []
        for callback in later:
            callback()

    def _settle(self, turns: int) -> None:
        for _ in range(turns):
            if not (self._later or self._waiting):
                return
            self._turn()
        expect(False, f"the connection is still busy after {turns} turns")

    def _answers(self) -> list[bytes]:
        """Read the answers as a client does; what is left over is no answer."""
        raw, found, at = bytes(self._transport.written), [], 0
        for number in range(len(raw)):
            if at == len(raw):
                break
            line = _status_line.match(raw, at)
            expect(line is not None, f"answer {number} begins with {raw[at : at + 40]!r}")
            assert line is not None
            end = raw.index(b"\r\n\r\n", at) + 4
            head = raw[at:end]
            at = end
            if line[1] == b"100":
                continue
            found.append(line[1])
            is_head = len(found) <= len(self.told) and self.told[len(found) - 1][0] == "HEAD"
            size = re.search(rb"\r\nContent-Length: (\d+)\r\n", head)
            expect(size is not None, f"an answer without a length: {head!r}")
            assert size is not None
            at += 0 if is_head else int(size[1])
        expect(at == len(raw), "an answer is longer or shorter than it says")
        return found

    def _check(self) -> None:
        statuses, transport = self.statuses, self._transport
        expect(500 not in statuses, "a 500")
        expect(len(statuses) in (len(self.told), len(self.told) + 1), f"{len(self.told)} requests, answers {statuses}")
        expect(
            statuses[: len(self.told)] == [200] * len(self.told), f"a request that was taken was refused: {statuses}"
        )
        if len(statuses) > len(self.told):
            expect(statuses[-1] in REFUSALS, f"refused with {statuses[-1]}")
            expect(transport.ended or transport.closed, "a refusal leaves the connection open")
        self._hub.sweep(self._hub.now + 200)
        expect(transport.ended or transport.closed or transport.aborted, "a silent client may stay for ever")
        self._connection.connection_lost(None)
        expect(not self._hub.connections, "the hub still knows the connection")
        expect(self._hub.budget.used == 0, "memory of a body is still owed")
        expect(all(loan.released == 1 for loan in self._loans), "a lent block was not given back once")

"""What the connections of one listener share: limits, the coarse clock, the receive buffer, known heads, the sweep.

Timeouts are stamps on the connections, compared with the clock once per sweep; no request starts a timer. A stamp is
at most one sweep old when it is made, so a limit of t seconds ends between t - period and t + period.
"""

import asyncio
import itertools
import select
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import formatdate
from typing import Final, Protocol

from shoal.frontend.budget import Budget
from shoal.frontend.client import Client
from shoal.frontend.known import Heads

RECEIVE_BUFFER: Final = 64 * 1024
BACKLOG: Final = 65_535  # connections that wait to be accepted: as many as the system allows

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """What a client may ask of a connection. Sizes are bytes, times are seconds."""

    max_body: int = 32 * 2**20
    max_head: int = 64 * 1024  # request line and headers
    max_headers: int = 128
    head_timeout: float = 10.0  # from the first byte of a head to its end
    body_timeout: float = 30.0  # the longest silence in a body; a minimum average rate holds besides
    idle_timeout: float = 75.0  # keep-alive silence
    write_timeout: float = 60.0  # the client does not read
    max_pipelined: int = 16
    inline_body: int = 16 * 1024  # larger bodies go into a lent block
    max_connections: int = 20_000

    @property
    def sweep_period(self) -> float:
        """How often the stamps are compared: once a second, more often when a limit is short."""
        return min(1.0, min(self.head_timeout, self.body_timeout, self.idle_timeout, self.write_timeout) / 4)


class Connection(Protocol):
    """What the hub asks of a connection."""

    deadline: float
    write_deadline: float

    def expire(self, now: float) -> None:
        """A deadline passed."""
        ...

    def finish(self) -> None:
        """Leave as soon as no answer is due."""
        ...

    def abort(self) -> None:
        """Leave now."""
        ...


def _call_soon(callback: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_soon(callback)


def _call_later(delay: float, callback: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_later(delay, callback)


class Hub:
    """The live connections of one listener. `now` only moves when it is swept, and not while the loop stood still.

    `soon` and `later` are the loop's: its next turn, and the turn after so many seconds.
    """

    def __init__(
        self,
        now: float = 0.0,
        soon: Callable[[Callable[[], None]], object] = _call_soon,
        later: Callable[[float, Callable[[], None]], object] = _call_later,
    ) -> None:
        self.now = now
        self.soon = soon
        self.later = later
        self.date = _date_line()
        self.draining = False
        self.connections: set[Connection] = set()
        self.accepted = 0
        self.refused = 0
        self.answers = [0] * 10  # by the first digit of their status
        self.received = bytearray(RECEIVE_BUFFER)  # read by one connection at a time, within one callback
        self.received_view = memoryview(self.received)
        self.heads = Heads()
        self.refusal: Callable[[int, str], tuple[bytes, bytes]] | None = None  # header lines and body, where not plain
        self.budget = Budget()  # of large bodies outside shared memory
        self._empty: asyncio.Future[None] | None = None
        self._stood = 0.0  # seconds for which nobody could be heard

    def join(self, connection: Connection, peername: object = None) -> Client:
        """Take a connection in; its number is unique in the process."""
        self.connections.add(connection)
        self.accepted += 1
        client = Client(next(_numbers))
        if isinstance(peername, tuple) and len(peername) >= 2:
            client.address = str(peername[0])
        return client

    def leave(self, connection: Connection) -> None:
        """Forget a connection that is lost."""
        self.connections.discard(connection)
        if not self.connections and self._empty is not None and not self._empty.done():
            self._empty.set_result(None)

    def sweep(self, now: float, late: float = 0.0) -> None:
        """Move the clock and end what took too long; the seconds by which the sweep itself is `late` count for nobody.

        What came meanwhile lies unread: whoever was ended now would be so for what this process did, or its host.
        """
        self._stood += late
        now -= self._stood
        self.now = now
        self.date = _date_line()
        for connection in [c for c in self.connections if c.deadline <= now or c.write_deadline <= now]:
            connection.expire(now)

    def finish(self) -> None:
        """Begin to drain: idle connections leave, busy ones leave with their answer."""
        self.draining = True
        for connection in list(self.connections):
            connection.finish()

    def abort(self) -> None:
        """Cut every connection that is left."""
        for connection in list(self.connections):
            connection.abort()

    async def emptied(self) -> None:
        """Wait until no connection is left."""
        if self.connections:
            self._empty = asyncio.get_running_loop().create_future()
            await self._empty


def address_of(peername: object) -> str:
    """The text of a remote address: `host:port`, `[v6]:port`, or `unix`."""
    if isinstance(peername, tuple) and len(peername) >= 2:
        host, port = peername[:2]
        return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"
    return "unix"


def hung_up(transport: asyncio.BaseTransport) -> bool:
    """Whether the peer is known to be gone altogether: it was reset, or closed both ways."""
    sock = transport.get_extra_info("socket")
    if sock is None:
        return False
    poll = select.poll()
    poll.register(sock.fileno(), 0)
    return any(events & (select.POLLHUP | select.POLLERR) for _, events in poll.poll(0))


def _date_line() -> bytes:
    return f"Date: {formatdate(usegmt=True)}\r\n".encode()

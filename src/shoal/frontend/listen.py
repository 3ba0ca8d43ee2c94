"""Listening: a TCP port, a Unix socket or both, plain or TLS; the sweep that keeps time; and the drain."""

import asyncio
import contextlib
import os
import socket
import ssl
import stat
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any, Protocol, TypedDict, Unpack

from shoal.clock import stood_still
from shoal.frontend.door import Door
from shoal.frontend.http import Application, HttpLimits, HttpProtocol, Hub, Lend
from shoal.frontend.hub import BACKLOG


class Listening(Protocol):
    """What a server asks of its listeners, whatever they speak and whichever process accepts for them."""

    hub: Hub

    @property
    def address(self) -> str:
        """The first place it listens at."""
        ...

    async def start(self) -> None:
        """Bind and accept."""
        ...

    async def drain(self, timeout: float) -> None:
        """Take nothing new, finish what was taken, and cut what is left after `timeout` seconds."""
        ...


Address = tuple[str, int] | str  # the latter: the path of a Unix socket
Listen = Callable[..., Listening]  # made as a `Listener` is, or as an `Http2Listener` is


class Times(Protocol):
    """What a listener needs of the limits of its connections. Times are seconds."""

    @property
    def head_timeout(self) -> float:
        """How long a client may take to say what it wants; a TLS handshake gets as long."""
        ...

    @property
    def sweep_period(self) -> float:
        """How often the stamps on the connections are compared with the clock."""
        ...


class Where(TypedDict, total=False):
    """Where a listener accepts, and how. `sockets` are bound already; then there is no other address."""

    host: str | None
    port: int | None
    unix_path: str | None
    sockets: Sequence[socket.socket]
    ssl_context: ssl.SSLContext | None
    backlog: int
    hub: Hub | None


class Accepting:
    """What listeners have in common, whatever they speak. `start` binds; `drain` ends everything that was started."""

    def __init__(self, connection: Callable[[], asyncio.BaseProtocol], limits: Times, where: Where) -> None:
        self._period = limits.sweep_period
        self._where = where
        self._ssl = where.get("ssl_context")
        secured: dict[str, Any] = {
            "ssl": self._ssl,
            "ssl_handshake_timeout": limits.head_timeout if self._ssl else None,
        }
        self._options = {**secured, "backlog": where.get("backlog", BACKLOG)}
        self._door = Door(connection, secured)
        self._servers: list[asyncio.Server] = []
        self._timer: asyncio.TimerHandle | None = None
        self.hub = where.get("hub") or Hub()

    @property
    def addresses(self) -> list[Address]:
        """Where it listens: (host, port) of each TCP socket, as bound, and the path of a Unix socket."""
        return [address_of(sock) for server in self._servers for sock in server.sockets]

    @property
    def address(self) -> str:
        """The first place it listens at, as a client writes it: host:port, or the path of a Unix socket."""
        if not self._servers:
            raise RuntimeError("the listener has no address before it is started, or after it is drained")
        return as_written(self.addresses[0])

    async def start(self) -> None:
        """Bind and accept. On failure nothing is left bound."""
        self.hub.sweep(asyncio.get_running_loop().time())
        try:
            async for server in self._bind():
                self._servers.append(server)
                self._door.open(sock.fileno() for sock in server.sockets if not self._is_shared(sock))
        except BaseException:
            self._stop_accepting()
            raise
        self._sweep()

    async def drain(self, timeout: float) -> None:
        """Take nothing new, finish what was taken, and cut what is left after `timeout` seconds."""
        self._stop_accepting()
        self.hub.finish()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.hub.emptied(), timeout)
        self.hub.abort()
        await self.hub.emptied()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _bind(self) -> AsyncIterator[asyncio.Server]:
        loop = asyncio.get_running_loop()
        where, make, options = self._where, self._door, self._options
        if (port := where.get("port")) is not None:
            yield await loop.create_server(make, where.get("host"), port, **options)
        for sock in where.get("sockets", ()):
            create = loop.create_unix_server if sock.family == socket.AF_UNIX else loop.create_server
            yield await create(make, sock=sock, **options)
        if (path := where.get("unix_path")) is not None:
            remove_stale_socket(path)
            yield await loop.create_unix_server(make, path, **options)

    def _is_shared(self, sock: socket.socket) -> bool:
        """Whether other processes accept from it too: a Unix socket that was bound before. They want their share."""
        return sock.family == socket.AF_UNIX and bool(self._where.get("sockets"))

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        now, last = loop.time(), self._timer
        self._timer = loop.call_later(self._period, self._sweep)
        self.hub.sweep(now, stood_still(last.when(), now, self._period) if last is not None else 0.0)

    def _stop_accepting(self) -> None:
        addresses = self.addresses
        self._door.close()
        for server in self._servers:
            server.close()
        self._servers.clear()
        remove_paths(addresses)


class Listener(Accepting):
    """Accepts connections for one application."""

    def __init__(self, app: Application, limits: HttpLimits, lend: Lend, **where: Unpack[Where]) -> None:
        super().__init__(lambda: HttpProtocol(app, limits, lend, self.hub), limits, where)
        self.app = app


def address_of(sock: socket.socket) -> Address:
    """Where a socket is bound: (host, port), or the path of a Unix socket."""
    name = sock.getsockname()
    return name if isinstance(name, str) else (name[0], name[1])


def remove_paths(addresses: Iterable[Address]) -> None:
    """Remove the files of Unix sockets that nobody listens on any more."""
    for address in addresses:
        if isinstance(address, str):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(address)


def as_written(address: Address) -> str:
    """An address as a client writes it: host:port, or the path of a Unix socket."""
    if isinstance(address, str):
        return address
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def remove_stale_socket(path: str) -> None:
    """Remove what a dead server left behind; a living one keeps its socket, and anything else its file."""
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            raise FileExistsError(f"{path} exists and is no socket: the server would have to overwrite it")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
    raise FileExistsError(f"another server listens on {path}")

"""Listening: a TCP port, a Unix socket or both, plain or TLS; the sweep that keeps time; and the drain."""

import asyncio
import contextlib
import os
import socket
import ssl
import stat
from collections.abc import Callable, Sequence
from typing import Protocol

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


Listen = Callable[..., Listening]  # made as a `Listener` is, or as an `Http2Listener` is


class Listener:
    """Accepts connections for one application. `start` binds; `drain` ends everything that was started.

    `sockets` are bound already; then there is no other address.
    """

    def __init__(
        self,
        app: Application,
        limits: HttpLimits,
        lend: Lend,
        *,
        host: str | None = None,
        port: int | None = None,
        unix_path: str | None = None,
        sockets: Sequence[socket.socket] = (),
        ssl_context: ssl.SSLContext | None = None,
        backlog: int = BACKLOG,
        hub: Hub | None = None,
    ) -> None:
        self._app = app
        self._limits = limits
        self._lend = lend
        self._host = host
        self._port = port
        self._unix_path = unix_path
        self._sockets = sockets
        self._ssl = ssl_context
        self._backlog = backlog
        self._servers: list[asyncio.Server] = []
        self._timer: asyncio.TimerHandle | None = None
        self.hub = hub or Hub()

    @property
    def addresses(self) -> list[tuple[str, int] | str]:
        """Where it listens: (host, port) of each TCP socket, as bound, and the path of a Unix socket."""
        names = [sock.getsockname() for server in self._servers for sock in server.sockets]
        return [name if isinstance(name, str) else (name[0], name[1]) for name in names]

    @property
    def address(self) -> str:
        """The first place it listens at, as a client writes it: host:port, or the path of a Unix socket."""
        return as_written(self.addresses[0])

    async def start(self) -> None:
        """Bind and accept. On failure nothing is left bound."""
        loop = asyncio.get_running_loop()
        self.hub.sweep(loop.time())
        handshake = self._limits.head_timeout if self._ssl else None
        try:
            if self._port is not None:
                server = await loop.create_server(
                    self._connection,
                    self._host,
                    self._port,
                    ssl=self._ssl,
                    backlog=self._backlog,
                    ssl_handshake_timeout=handshake,
                )
                self._servers.append(server)
            for sock in self._sockets:
                create = loop.create_unix_server if sock.family == socket.AF_UNIX else loop.create_server
                server = await create(
                    self._connection,
                    sock=sock,
                    ssl=self._ssl,
                    backlog=self._backlog,
                    ssl_handshake_timeout=handshake,
                )
                self._servers.append(server)
            if self._unix_path is not None:
                remove_stale_socket(self._unix_path)
                server = await loop.create_unix_server(
                    self._connection,
                    self._unix_path,
                    ssl=self._ssl,
                    backlog=self._backlog,
                    ssl_handshake_timeout=handshake,
                )
                self._servers.append(server)
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

    def _connection(self) -> HttpProtocol:
        return HttpProtocol(self._app, self._limits, self._lend, self.hub)

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._limits.sweep_period, self._sweep)
        self.hub.sweep(loop.time())

    def _stop_accepting(self) -> None:
        paths = [address for address in self.addresses if isinstance(address, str)]
        for server in self._servers:
            server.close()
        self._servers.clear()
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)


def as_written(address: tuple[str, int] | str) -> str:
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

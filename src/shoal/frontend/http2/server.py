"""Listening for gRPC: a TCP port, plain or TLS; the sweep that keeps time; and the drain."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Sequence

from shoal.frontend.http2.connection import Http2Connection
from shoal.frontend.http2.deadlines import Deadlines
from shoal.frontend.http2.limits import Http2Limits
from shoal.frontend.hub import BACKLOG, Hub
from shoal.frontend.listen import as_written
from shoal.frontend.rpc import Services


class Http2Listener:
    """Accepts connections for the services. `start` binds; `drain` ends everything that was started.

    The TLS context is this listener's own: it is made to offer HTTP/2 and nothing else. `sockets` are bound already;
    then there is no other address.
    """

    def __init__(
        self,
        services: Services,
        limits: Http2Limits,
        *,
        host: str = "",
        port: int = 0,
        sockets: Sequence[socket.socket] = (),
        ssl_context: ssl.SSLContext | None = None,
        backlog: int = BACKLOG,
        hub: Hub | None = None,
    ) -> None:
        self._services = services
        self._limits = limits
        self._host = host
        self._port = port
        self._sockets = sockets
        self._ssl = ssl_context
        self._backlog = backlog
        self._servers: list[asyncio.Server] = []
        self._deadlines: Deadlines | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.hub = hub or Hub()

    @property
    def address(self) -> str:
        """Where it listens, as a client writes it: host:port."""
        if not self._servers:
            raise RuntimeError("the listener has no address before it is started, or after it is drained")
        return as_written(self._servers[0].sockets[0].getsockname()[:2])

    async def start(self) -> None:
        """Bind and accept. On failure nothing is left bound."""
        loop = asyncio.get_running_loop()
        self._deadlines = Deadlines(loop.time, loop.call_at)
        self.hub.sweep(loop.time())
        if self._ssl is not None:
            self._ssl.set_alpn_protocols(["h2"])
        handshake = self._limits.head_timeout if self._ssl else None
        if not self._sockets:
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
            server = await loop.create_server(
                self._connection, sock=sock, ssl=self._ssl, backlog=self._backlog, ssl_handshake_timeout=handshake
            )
            self._servers.append(server)
        self._sweep()

    async def drain(self, timeout: float) -> None:
        """Take nothing new, finish what was taken, and cut what is left after `timeout` seconds."""
        for server in self._servers:
            server.close()
        self._servers.clear()
        self.hub.finish()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.hub.emptied(), timeout)
        self.hub.abort()
        await self.hub.emptied()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._deadlines is not None:
            self._deadlines.stop()

    def _connection(self) -> Http2Connection:
        assert self._deadlines is not None
        return Http2Connection(self._services, self._limits, self.hub, self._deadlines)

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._limits.sweep_period, self._sweep)
        self.hub.sweep(loop.time())

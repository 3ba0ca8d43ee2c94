"""Listening for gRPC: a TCP port, plain or TLS; the clock of the calls' deadlines; and the drain."""

import asyncio
from typing import Unpack

from shoal.frontend.http2.connection import Http2Connection
from shoal.frontend.http2.deadlines import Deadlines
from shoal.frontend.http2.limits import Http2Limits
from shoal.frontend.listen import Accepting, Where
from shoal.frontend.rpc import Services


class Http2Listener(Accepting):
    """Accepts connections for the services.

    The TLS context is this listener's own: it is made to offer HTTP/2 and nothing else.
    """

    def __init__(self, services: Services, limits: Http2Limits, **where: Unpack[Where]) -> None:
        super().__init__(self._make, limits, where)
        self._services = services
        self._limits = limits
        self._deadlines: Deadlines | None = None

    async def start(self) -> None:
        """Bind and accept. On failure nothing is left bound."""
        loop = asyncio.get_running_loop()
        self._deadlines = Deadlines(loop.time, loop.call_at)
        if self._ssl is not None:
            self._ssl.set_alpn_protocols(["h2"])
        await super().start()

    async def drain(self, timeout: float) -> None:
        """Take nothing new, finish what was taken, and cut what is left after `timeout` seconds."""
        await super().drain(timeout)
        if self._deadlines is not None:
            self._deadlines.stop()

    def _make(self) -> Http2Connection:
        assert self._deadlines is not None
        return Http2Connection(self._services, self._limits, self.hub, self._deadlines)

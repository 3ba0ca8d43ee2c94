"""Spread: a listener whose connections are accepted by the front processes; its application stays in the core."""

import socket
from typing import NamedTuple, Protocol

from shoal.frontend.http import Application, HttpLimits, Hub
from shoal.frontend.http2.limits import Http2Limits
from shoal.frontend.listen import Address, address_of, as_written, remove_paths
from shoal.frontend.rpc import Services
from shoal.fronts import bind
from shoal.fronts.messages import CallPlace, HttpPlace


class Where(NamedTuple):
    """Where to listen: a port, the path of a Unix socket, or both."""

    host: str | None
    port: int | None
    unix_path: str | None
    is_tls: bool


class Processes(Protocol):
    """What a listener needs of the crew."""

    count: int

    async def drain(self, place: int, timeout: float) -> None:
        """Have every process finish what a listener took."""
        ...


class Spread:
    """What `Listener` and `Http2Listener` are to one process, for several. `start` binds; `drain` ends it."""

    def __init__(
        self,
        crew: Processes,
        number: int,
        limits: HttpLimits | Http2Limits,
        where: Where,
        *,
        app: Application | None = None,
        services: Services | None = None,
    ) -> None:
        self._crew = crew
        self._number = number
        self._limits = limits
        self._where = where
        self._sockets: list[list[socket.socket]] = []  # by address, by process
        self.app = app
        self.services: Services = services or {}
        self.hub = Hub()

    @property
    def addresses(self) -> list[Address]:
        """Where it listens: (host, port) of each TCP socket, as bound, and the path of a Unix socket."""
        return [address_of(group[0]) for group in self._sockets]

    @property
    def address(self) -> str:
        """The first place it listens at, as a client writes it: host:port, or the path of a Unix socket."""
        return as_written(self.addresses[0])

    async def start(self) -> None:
        """Bind. On failure nothing is left bound."""
        where, count = self._where, self._crew.count
        try:
            if where.port is not None:
                self._sockets += bind.bound(where.host, where.port, count)
            if where.unix_path is not None:
                self._sockets += bind.bound_path(where.unix_path, count)
        except BaseException:
            self._close()
            raise

    async def drain(self, timeout: float) -> None:
        """Take nothing new, finish what was taken, and cut what is left after `timeout` seconds."""
        self.hub.draining = True
        self._close()
        await self._crew.drain(self._number, timeout)

    def place(self, process: int) -> HttpPlace | CallPlace:
        """What a process has to know of it."""
        fds = [group[process].fileno() for group in self._sockets]
        if isinstance(self._limits, HttpLimits):
            return HttpPlace(fds, self._limits, self._where.is_tls)
        return CallPlace(fds, self._limits, self._where.is_tls, list(self.services))

    def _close(self) -> None:
        addresses = self.addresses
        bind.close(self._sockets)
        self._sockets = []
        remove_paths(addresses)

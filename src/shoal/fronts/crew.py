"""Crew: the front processes of a server: started together, replaced when one dies, drained together.

The listening sockets are bound here and stay here beside the processes that accept from them: a connection that waits
in the socket of a dead process is accepted by its successor.
"""

import asyncio
import dataclasses
import logging
import ssl
import sys
from collections.abc import Mapping
from typing import Final

from shoal.config.server import ServerConfig
from shoal.errors import ConfigError, LoadFailed
from shoal.frontend.http import Application, HttpLimits, Lend
from shoal.frontend.http2.limits import Http2Limits
from shoal.frontend.rpc import Services
from shoal.fronts.front import Front
from shoal.fronts.messages import CallPlace, HttpPlace, Setup
from shoal.fronts.spread import Spread, Where
from shoal.wire.memory import Arena

START_TIME: Final = 30.0  # s that the processes get to come up
SHORT_LIFE: Final = 5.0  # s; a process that dies younger is replaced later and later
PAUSES: Final = (0.0, 0.1, 0.5, 2.0, 10.0)
TICK: Final = 1.0  # s between two looks at the clock

log = logging.getLogger("shoal.fronts")


class Crew:
    """The front processes of a server. Listeners are made first, then bound, then `start` brings the processes up.

    `arena` has a part for the core and one for each of the processes.
    """

    def __init__(self, config: ServerConfig, arena: Arena | None) -> None:
        if sys.platform != "linux":
            raise ConfigError(f"frontends is {config.frontends}; more than 1 needs Linux, whose processes share ports")
        self._config = config
        self._arena = arena
        self.count = config.frontends
        self._listeners: list[Spread] = []
        self._fronts: dict[int, Front] = {}
        self._born: dict[int, float] = {}
        self._deaths: dict[int, int] = {}  # in a row, of processes that did not live long
        self._orphans: list[Front] = []  # dead, whose blocks are still read
        self._tasks: set[asyncio.Task[None]] = set()
        self._ticking: asyncio.TimerHandle | None = None
        self._is_stopping = False
        self._refused = 0  # bodies, by processes that are gone

    def http(
        self,
        app: Application,
        limits: HttpLimits,
        lend: Lend,
        *,
        host: str | None,
        port: int | None,
        unix_path: str | None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> Spread:
        """Make a listener of HTTP, as `Listener` is made; the processes lend from memory of their own."""
        share = dataclasses.replace(limits, max_connections=-(-limits.max_connections // self.count))
        where = Where(host, port, unix_path, ssl_context is not None)
        return self._add(Spread(self, len(self._listeners), share, where, app=app))

    def grpc(
        self,
        services: Services,
        limits: Http2Limits,
        *,
        host: str,
        port: int,
        ssl_context: ssl.SSLContext | None = None,
    ) -> Spread:
        """Make a listener of gRPC, as `Http2Listener` is made."""
        share = dataclasses.replace(limits, max_connections=-(-limits.max_connections // self.count))
        where = Where(host, port, None, ssl_context is not None)
        return self._add(Spread(self, len(self._listeners), share, where, services=services))

    @property
    def pids(self) -> list[int]:
        """The processes."""
        return [front.pid for front in self._fronts.values() if front.is_up]

    @property
    def memory(self) -> Mapping[str, int]:
        """Bytes that bodies take in the processes, and how many bodies found no room, by the names of the metrics."""
        fronts = list(self._fronts.values())
        orphans = sum(front.blocks.lent for front in self._orphans if front.blocks is not None)
        return {
            "arena_lent_bytes": sum(front.stats.lent for front in fronts) + orphans,
            "body_memory_bytes": sum(front.stats.bodies for front in fronts),
            "bodies_refused": self._refused + sum(front.bodies_refused for front in fronts),
        }

    async def start(self) -> None:
        """Bring the processes up; they accept connections on return."""
        self._tick()
        for number in range(1, self.count + 1):
            await self._begin(number)
        fronts = list(self._fronts.values())
        try:
            async with asyncio.timeout(START_TIME):
                await asyncio.gather(*(front.ready for front in fronts))
        except TimeoutError:
            raise LoadFailed(f"the front processes did not come up within {START_TIME:g} s") from None
        if not all(front.is_up for front in fronts):
            raise LoadFailed("a front process ended as soon as it was started; its last words are above")

    async def drain(self, place: int, timeout: float) -> None:
        """Have every process finish what a listener took."""
        self._is_stopping = True
        await asyncio.gather(*(front.drain(place, timeout) for front in self._fronts.values()))

    async def stop(self) -> None:
        """End every process."""
        self._is_stopping = True
        if self._ticking is not None:
            self._ticking.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for front in self._fronts.values():
            front.stop()
        self._fronts.clear()

    def _add(self, listener: Spread) -> Spread:
        self._listeners.append(listener)
        return listener

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        self._ticking = loop.call_later(TICK, self._tick)
        for listener in self._listeners:
            listener.hub.sweep(loop.time())

    async def _begin(self, number: int) -> None:
        largest = self._config.max_request_size
        front = self._fronts[number] = Front(number, self._listeners, self._arena, self._lost, largest=largest)
        self._born[number] = asyncio.get_running_loop().time()
        places = [listener.place(number - 1) for listener in self._listeners]
        fds = [fd for place in places for fd in place.sockets]
        if self._arena is not None:
            fds.append(self._arena.fd)
        await front.start(self._setup(number, places), sorted(set(fds)))
        if not any(orphan.number == number for orphan in self._orphans):
            front.allow_memory()

    def _setup(self, number: int, places: list[HttpPlace | CallPlace]) -> Setup:
        arena = self._arena
        return Setup(
            config=self._config,
            places=places,
            body_memory=self._config.body_memory // self.count,
            memory=(arena.fd, self._config.shared_memory, self.count + 1, number) if arena is not None else None,
        )

    def _lost(self, front: Front, reason: str) -> None:
        number = front.number
        front.stop()
        self._refused += front.bodies_refused
        front.bodies_refused = 0
        if front.blocks is not None:
            self._orphans.append(front)
            front.blocks.orphan(lambda: self._is_free(front))
        if self._is_stopping:
            return
        young = asyncio.get_running_loop().time() - self._born[number] < SHORT_LIFE
        self._deaths[number] = self._deaths.get(number, 0) + 1 if young else 0
        pause = PAUSES[min(self._deaths[number], len(PAUSES) - 1)]
        log.warning("front process %d (process %d) is gone and is replaced: %s", number, front.pid, reason)
        self._tasks.add(task := asyncio.get_running_loop().create_task(self._replace(number, pause)))
        task.add_done_callback(self._tasks.discard)

    async def _replace(self, number: int, pause: float) -> None:
        await asyncio.sleep(pause)
        while not self._is_stopping:
            try:
                return await self._begin(number)
            except OSError as error:
                log.error("front process %d cannot be started: %s", number, error)
                await asyncio.sleep(PAUSES[-1])

    def _is_free(self, front: Front) -> None:
        """Nobody reads a dead process's memory any more: its successor may lend there."""
        assert self._arena is not None
        self._orphans.remove(front)
        number = front.number
        if any(orphan.number == number for orphan in self._orphans):
            return
        if not self._is_stopping:
            self._arena.clear(number)
        successor = self._fronts.get(number)
        if successor is not None and successor is not front:
            successor.allow_memory()

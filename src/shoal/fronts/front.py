"""The core's end of one front process: its connections and calls, the memory it lent, and what it counted."""

import asyncio
import logging
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from typing import Final, Protocol

from shoal.errors import ProtocolError
from shoal.frontend.client import Client
from shoal.frontend.http import Application
from shoal.frontend.hub import Hub
from shoal.frontend.rpc import Services
from shoal.fronts import frames
from shoal.fronts.call import RemoteCall
from shoal.fronts.channel import Channel
from shoal.fronts.connection import RemoteConnection
from shoal.fronts.frames import BODY, LAST, LAST_LENT, LENT, count_of
from shoal.fronts.memory import LentBlocks
from shoal.fronts.messages import Setup, Stats, decode_call, decode_request, decode_stats, encode
from shoal.payload import Block
from shoal.wire.memory import Arena

HEADS: Final = 2**20  # bytes that a frame without a body may take, whatever bodies may
PLACE_OF_BLOCK: Final = Struct("<QQ")  # offset and size

log = logging.getLogger("shoal.fronts")


class Target(Protocol):
    """What a listener serves: requests go to `app`, or calls to `services`."""

    hub: Hub

    @property
    def app(self) -> Application | None:
        """What answers requests."""
        ...

    @property
    def services(self) -> Services:
        """What answers calls."""
        ...


class Front:
    """One front process. `on_lost` hears its end once, whatever happened; `largest` is the most bytes of a body."""

    def __init__(
        self,
        number: int,
        targets: Sequence[Target],
        arena: Arena | None,
        on_lost: Callable[["Front", str], None],
        *,
        largest: int,
    ) -> None:
        self.number = number
        self._targets = targets
        self._on_lost = on_lost
        self._process: subprocess.Popen[bytes] | None = None
        self._channel = Channel(self._take, self._lost, self._paced, largest=largest + HEADS)
        self._connections: dict[int, RemoteConnection] = {}
        self._clients: dict[int, Client] = {}  # of calls
        self._calls: dict[int, RemoteCall] = {}
        self._drains: dict[int, asyncio.Future[None]] = {}
        self.blocks = LentBlocks(arena, number, self._give_back) if arena is not None else None
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.stats = Stats([], 0, 0, 0)
        self.bodies_refused = 0
        self.is_up = False  # it has heard what to do, and is not lost
        self._takes: Mapping[int, Callable[[int, bytes], None]] = {
            frames.HEAD: self._take_head,
            frames.LEFT: self._take_left,
            frames.TAKEN: lambda key, payload: self._connections[key].taken(count_of(payload)),
            frames.CALL: self._take_call,
            frames.MESSAGE: self._take_message,
            frames.MESSAGE_END: self._take_last_message,
            frames.END: self._take_end,
            frames.CALL_GONE: self._take_call_gone,
            frames.CALL_TAKEN: self._take_call_taken,
            frames.READY: lambda _, __: self.ready.set_result(None),
            frames.DRAINED: self._take_drained,
            frames.STATS: self._take_stats,
        }

    @property
    def pid(self) -> int:
        """Its process, or -1."""
        return self._process.pid if self._process else -1

    async def start(self, setup: Setup, fds: Sequence[int]) -> None:
        """Start the process and tell it what to do; `ready` is set when it accepts connections."""
        ours, theirs = socket.socketpair()
        try:
            self._process = subprocess.Popen(  # noqa: S603, ASYNC220 - our own module; it is spawned, not waited for
                [sys.executable, "-P", "-X", "faulthandler", "-m", "shoal.fronts.main", str(theirs.fileno())],
                pass_fds=[theirs.fileno(), *fds],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        ours.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: self._channel, sock=ours)
        self._channel.put(frames.SETUP, 0, encode(setup))
        self.is_up = True

    def allow_memory(self) -> None:
        """Nobody reads the blocks of its predecessor any more: it may lend."""
        if self.is_up:
            self._channel.put(frames.MEMORY, 0)

    async def drain(self, place: int, timeout: float) -> None:
        """Have a listener finish what it took; returns when it has, or when the process is gone."""
        if not self.is_up:
            return
        self._drains[place] = asyncio.get_running_loop().create_future()
        for connection in self._connections.values():
            if connection.hub is self._targets[place].hub:
                connection.finish()
        self._channel.put(frames.DRAIN, place, encode(timeout))
        await self._drains[place]

    def stop(self) -> None:
        """End the process, which has nothing left to say."""
        if self._process is not None:
            self._channel.close()
            self._process.kill()
            self._process.wait()

    # What it says

    def _take(self, kind: int, key: int, payload: bytes) -> None:
        if kind == BODY:
            self._connections[key].ask(payload, keep=True)
        elif kind == LENT:
            self._connections[key].ask(self._block(payload), keep=True)
        elif kind == LAST:
            self._connections[key].ask(payload, keep=False)
        elif kind == LAST_LENT:
            self._connections[key].ask(self._block(payload), keep=False)
        else:
            take = self._takes.get(kind)
            if take is None:
                raise ProtocolError(f"there is no frame of kind {kind}")
            take(key, payload)

    def _take_head(self, key: int, payload: bytes) -> None:
        head = decode_request(payload)
        connection = self._connections.get(key)
        if connection is None:
            target = self._targets[head.place]
            if target.app is None:
                raise ProtocolError(f"listener {head.place} has no HTTP")
            client = self._client(key, head.address)
            connection = RemoteConnection(target.app, target.hub, self._channel, key, client)
            self._connections[key] = connection
        connection.learn(head)

    def _take_left(self, key: int, payload: bytes) -> None:
        self._clients.pop(key, None)
        connection = self._connections.pop(key, None)
        if connection is not None:
            connection.lost()

    def _block(self, payload: bytes) -> Block:
        if self.blocks is None:
            raise ProtocolError("a body lies in shared memory, and there is none")
        return self.blocks.take(*PLACE_OF_BLOCK.unpack(payload))

    def _give_back(self, offset: int) -> None:
        self._channel.put(frames.RELEASE, offset)

    def _client(self, key: int, address: str) -> Client:
        """The number of a connection, unique over all processes."""
        client = Client(self.number << 48 | key)
        if address:
            client.address = address
        return client

    def _take_call(self, number: int, payload: bytes) -> None:
        head = decode_call(payload)
        service = self._targets[head.place].services[head.method]
        client = self._clients.get(head.client)
        if client is None:
            client = self._clients[head.client] = self._client(head.client, head.address)
        call = self._calls[number] = RemoteCall(self._channel, number, head, client, self._calls.pop)
        call.begin(service)

    def _take_message(self, number: int, payload: bytes) -> None:
        if call := self._calls.get(number):
            call.hear(payload)

    def _take_last_message(self, number: int, payload: bytes) -> None:
        if call := self._calls.get(number):
            call.hear(payload)
            call.hear_end()

    def _take_end(self, number: int, payload: bytes) -> None:
        if call := self._calls.get(number):
            call.hear_end()

    def _take_call_gone(self, number: int, payload: bytes) -> None:
        if call := self._calls.get(number):
            call.lost()

    def _take_call_taken(self, number: int, payload: bytes) -> None:
        if call := self._calls.get(number):
            call.taken(count_of(payload))

    def _take_drained(self, place: int, payload: bytes) -> None:
        if not self._drains[place].done():  # told twice, it says so twice
            self._drains[place].set_result(None)

    def _take_stats(self, key: int, payload: bytes) -> None:
        self.stats = decode_stats(payload)
        self.bodies_refused += self.stats.bodies_refused
        for target, counts in zip(self._targets, self.stats.answers, strict=True):
            for digit, count in enumerate(counts):
                target.hub.answers[digit] += count

    # Its pace and its end

    def _paced(self, is_blocked: bool) -> None:
        if is_blocked:
            return
        for connection in list(self._connections.values()):
            connection.drained()
        for call in list(self._calls.values()):
            call.drained()

    def _lost(self, reason: str) -> None:
        self.is_up = False
        self.stats = Stats([], 0, 0, 0)
        connections, self._connections = self._connections, {}
        for connection in connections.values():
            connection.lost()
        for call in list(self._calls.values()):
            call.lost()
        for future in (self.ready, *self._drains.values()):
            if not future.done():
                future.set_result(None)
        self._on_lost(self, reason)

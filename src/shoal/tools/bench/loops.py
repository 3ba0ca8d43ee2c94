"""The two loads. Closed: so many connections, each sends when its answer is there. Open: requests come when they
come, and their latency counts from the moment they were due, so that a slow server cannot hide its queue."""

import asyncio
import itertools
import ssl
import time
from collections import deque
from collections.abc import Iterator
from random import Random

from shoal.timer import Timer
from shoal.tools.bench import arrivals
from shoal.tools.bench.connection import Connection
from shoal.tools.bench.messages import Load
from shoal.tools.bench.recorder import Recorder
from shoal.tools.bench.rpc_connection import RpcConnection
from shoal.tools.calls import reason

Link = Connection | RpcConnection
RETRY = 0.05  # s before a connection that failed is tried again
KINDS = {
    "connection refused": "refused",
    "it closed the connection": "reset",
    "no such host": "no such host",
}


class Base:
    """What both have: connections, the requests in turn, and the recorder."""

    def __init__(self, load: Load, recorder: Recorder) -> None:
        self._load = load
        self._recorder = recorder
        self._next_request = itertools.cycle(load.requests).__next__
        self._tls: ssl.SSLContext | None = load.site.tls()
        if self._tls is not None and load.block:
            self._tls.set_alpn_protocols(["h2"])
        self._connections: set[Link] = set()
        self._opening: set[asyncio.Task[None]] = set()
        self._halted = False
        self._watcher: asyncio.Task[None] | None = None
        self._done = asyncio.Event()

    def halt(self) -> None:
        """Send no more; those that wait for an answer may have it."""
        self._halted = True
        self._check_done()

    def give_up(self) -> None:
        """End, whoever still waits for an answer."""
        self._done.set()

    def _in_flight(self) -> int:
        return sum(connection.is_busy for connection in self._connections)

    def _check_done(self) -> None:
        raise NotImplementedError

    def _open(self, delay: float = 0.0) -> None:
        task = asyncio.get_running_loop().create_task(self._connect(delay))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _connect(self, delay: float) -> None:
        if delay:
            await asyncio.sleep(delay)
        if self._halted:
            self._check_done()
            return
        site = self._load.site
        try:
            async with asyncio.timeout(self._load.timeout):
                await asyncio.get_running_loop().create_connection(self._made, site.host, site.port, ssl=self._tls)
        except TimeoutError:
            self._unreachable("timeout")
        except OSError as error:
            said = reason(error)
            self._unreachable(KINDS.get(said, said))

    def _made(self) -> Link:
        return RpcConnection(self, self._load.block) if self._load.block else Connection(self)

    def _unreachable(self, kind: str) -> None:
        raise NotImplementedError

    def ready(self, connection: Link) -> None:
        """A new connection is there."""
        raise NotImplementedError

    def answered(self, connection: Link, status: bytes, head: bytes) -> None:
        """An answer is whole."""
        raise NotImplementedError

    def lost(self, connection: Link, error: BaseException | None) -> None:
        """A connection is gone."""
        raise NotImplementedError

    def _count_lost(self, connection: Link, error: BaseException | None) -> None:
        self._connections.discard(connection)
        if connection.is_busy:
            connection.is_busy = False
            if not (self._halted and not connection.problem and error is None):
                said = connection.problem or (KINDS.get(reason(error), reason(error)) if error else "closed")
                self._recorder.failed(said)

    async def _watch(self) -> None:
        """Give up requests that take too long."""
        limit = self._load.timeout
        while True:
            await asyncio.sleep(min(1.0, limit / 4))
            now = time.monotonic()
            for connection in [c for c in self._connections if c.is_busy and now - c.sent > limit]:
                connection.close("timeout")

    async def abandon(self) -> None:
        """Close everything, whatever is still out."""
        self._halted = True
        tasks = [*self._opening, *([self._watcher] if self._watcher else [])]
        for task in tasks:
            task.cancel()
        for connection in list(self._connections):
            connection.close()
        await asyncio.gather(*tasks, return_exceptions=True)


class Closed(Base):
    """So many connections, each always with one request out."""

    @property
    def waiting(self) -> int:
        """Requests without an answer."""
        return self._in_flight()

    async def run(self) -> None:
        """Load the server until `halt`."""
        await asyncio.sleep(max(0.0, self._load.begin - time.monotonic()))
        for _ in range(self._load.connections):
            self._open()
        self._watcher = asyncio.get_running_loop().create_task(self._watch())
        await self._done.wait()

    def ready(self, connection: Link) -> None:
        """Begin."""
        self._connections.add(connection)
        self._send(connection)

    def answered(self, connection: Link, status: bytes, head: bytes) -> None:
        """Count it, send the next."""
        self._recorder.answered(connection.started, status, head)
        if connection.is_open:
            self._send(connection)

    def lost(self, connection: Link, error: BaseException | None) -> None:
        """Replace it; at once when it was closed in good order."""
        was_answered = not connection.is_busy
        self._count_lost(connection, error)
        if self._halted:
            self._check_done()
        else:
            self._open(0.0 if was_answered else RETRY)

    def _send(self, connection: Link) -> None:
        if self._halted:
            self._check_done()
            return
        now = time.monotonic()
        connection.send(self._next_request(), now, now)

    def _unreachable(self, kind: str) -> None:
        self._recorder.failed(kind)
        self._open(RETRY)

    def _check_done(self) -> None:
        if self._halted and not self._in_flight():
            self._done.set()


class Open(Base):
    """Requests at their own times, over as many connections as it takes, up to a limit."""

    def __init__(self, load: Load, recorder: Recorder) -> None:
        super().__init__(load, recorder)
        self._times = _times(load)
        self._due = next(self._times, None)
        self._idle: list[Link] = []
        self._backlog: deque[float] = deque()  # when each request without a connection was due
        self._timer = Timer(self._on_time)

    @property
    def waiting(self) -> int:
        """Requests without an answer."""
        return self._in_flight() + len(self._backlog)

    async def run(self) -> None:
        """Send what is due until `halt`, or until the times are over and all have ended."""
        self._watcher = asyncio.get_running_loop().create_task(self._watch())
        self._timer.start()
        try:
            self._wind()
            await self._done.wait()
        finally:
            self._timer.stop()

    def halt(self) -> None:
        """Send no more, those that wait for a connection included."""
        self._due = None
        super().halt()

    def ready(self, connection: Link) -> None:
        """Use it for whoever has waited longest."""
        self._connections.add(connection)
        self._use(connection)

    def answered(self, connection: Link, status: bytes, head: bytes) -> None:
        """Count it; the connection is for the next."""
        self._recorder.answered(connection.started, status, head)
        if connection.is_open:
            self._use(connection)
        self._check_done()

    def lost(self, connection: Link, error: BaseException | None) -> None:
        """Forget it; open another when somebody waits for one."""
        self._count_lost(connection, error)
        if connection in self._idle:
            self._idle.remove(connection)
        if self._backlog and not self._halted:
            self._open()
        self._check_done()

    def _on_time(self) -> None:
        now = time.monotonic()
        while self._due is not None and (at := self._load.begin + self._due) <= now:
            self._recorder.due(now - at)
            self._dispatch(at, now)
            self._due = next(self._times, None)
        self._wind()
        self._check_done()

    def _wind(self) -> None:
        if self._due is not None:
            self._timer.at(self._load.begin + self._due)

    def _dispatch(self, at: float, now: float) -> None:
        if self._idle:
            self._idle.pop().send(self._next_request(), at, now)
            return
        self._backlog.append(at)
        if len(self._connections) + len(self._opening) < self._load.connections:
            self._open()

    def _use(self, connection: Link) -> None:
        if self._halted:
            return
        if self._backlog:
            connection.send(self._next_request(), self._backlog.popleft(), time.monotonic())
        else:
            self._idle.append(connection)

    def _unreachable(self, kind: str) -> None:
        if self._backlog:
            self._backlog.popleft()
            self._recorder.failed(kind)
        if self._backlog and not self._halted:
            self._open(RETRY)
        self._check_done()

    def _check_done(self) -> None:
        if self._due is None and not self._in_flight() and (self._halted or not self._backlog):
            self._done.set()


def _times(load: Load) -> Iterator[float]:
    if load.kind == "trace":
        return iter(load.times)
    if load.kind == "constant":
        return arrivals.constant(load.rate, load.burst, first=load.seed % 1024 / 1024 * load.burst / load.rate)
    return arrivals.poisson(load.rate, Random(load.seed), load.burst)

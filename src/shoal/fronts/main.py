"""A front process: accepts, speaks HTTP and gRPC with clients, and hands what they ask to the core.

It has no model, no queue and no code of a user. It lives as long as its channel: when the core is gone, so is it.
"""

import asyncio
import gc
import logging
import os
import socket
import sys
from collections.abc import Callable, Coroutine, Mapping
from functools import partial

import uvloop

from shoal import heap
from shoal.errors import ProtocolError, ServingError
from shoal.frontend.budget import Budget
from shoal.frontend.dialect import dialect_of
from shoal.frontend.http2.connection import Http2Connection
from shoal.frontend.http2.server import Http2Listener
from shoal.frontend.kserve.status import refusal as kserve_refusal
from shoal.frontend.listen import Listener
from shoal.frontend.tls import tls_context
from shoal.fronts import frames
from shoal.fronts.calls import Calls
from shoal.fronts.channel import Channel
from shoal.fronts.messages import HttpPlace, Setup, Stats, decode_setup, decode_timeout, encode
from shoal.fronts.relay import Relay, RelayHub
from shoal.payload import Block
from shoal.telemetry import set_up_logs
from shoal.version import __version__
from shoal.wire.memory import Arena

REPORT_EVERY = 0.5  # s between two looks at what there is to report

log = logging.getLogger("shoal.fronts")


class FrontProcess:
    """The listeners of one process, and their way to the core."""

    def __init__(self) -> None:
        self.left: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.channel = Channel(self._take, self._lost, self._paced)
        self._relay = Relay(self.channel)
        self._calls = Calls(self.channel, self._relay.meet)
        self._listeners: list[Listener | Http2Listener] = []
        self._budget = Budget()
        self._arena: Arena | None = None
        self._may_lend = False
        self._reported: list[list[int]] = []
        self._refused = 0
        self._last = Stats([], 0, 0, 0)
        self._tasks: set[asyncio.Task[None]] = set()
        relay, calls = self._relay, self._calls
        self._takes: Mapping[int, Callable[[int, bytes], None]] = {
            frames.WHOLE: partial(relay.whole, keep=True),
            frames.WHOLE_LAST: partial(relay.whole, keep=False),
            frames.DATA: relay.data,
            frames.ABORT: lambda key, _: relay.abort(key),
            frames.RELEASE: lambda offset, _: relay.release(offset),
            frames.SEND: calls.send,
            frames.SEND_OK: calls.send_last,
            frames.FINISH: calls.finish,
            frames.SETUP: lambda _, payload: self._begin(self._start(decode_setup(payload))),
            frames.MEMORY: self._take_memory,
            frames.DRAIN: lambda place, payload: self._begin(self._drain(place, decode_timeout(payload))),
        }

    def _take(self, kind: int, key: int, payload: bytes) -> None:
        take = self._takes.get(kind)
        if take is None:
            raise ProtocolError(f"there is no frame of kind {kind}")
        take(key, payload)

    def _take_memory(self, key: int, payload: bytes) -> None:
        self._may_lend = True

    def _lost(self, reason: str) -> None:
        if not self.left.done():
            self.left.set_result(reason)

    def _paced(self, is_blocked: bool) -> None:
        """While the core is behind, calls bring no more messages; requests are one to a connection anyway."""
        for listener in self._listeners:
            for connection in listener.hub.connections:
                if isinstance(connection, Http2Connection):
                    connection.hold(is_blocked)

    def _begin(self, work: Coroutine[object, object, None]) -> None:
        self._tasks.add(task := asyncio.get_running_loop().create_task(work))
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a front process cannot go on: %s", error, exc_info=error)
            self.channel.fail(str(error))

    async def _start(self, setup: Setup) -> None:
        config = setup.config
        set_up_logs(config.log_level, config.log_format)
        self._budget = Budget(setup.body_memory)
        if setup.memory is not None:
            fd, limit, parts, part = setup.memory
            self._arena = Arena(limit, parts, fd=fd, part=part)
        refusal = kserve_refusal if config.compat == "triton" else dialect_of(config, __version__).refusal
        for number, place in enumerate(setup.places):
            tls = tls_context(config.certificate_file, config.private_key_file) if place.is_tls else None
            sockets = [socket.socket(fileno=fd) for fd in place.sockets]
            hub = RelayHub(self._relay)
            hub.budget = self._budget
            hub.refusal = refusal
            listener: Listener | Http2Listener
            if isinstance(place, HttpPlace):
                ask = partial(self._relay.ask, number)
                listener = Listener(ask, place.limits, self._lend, sockets=sockets, hub=hub, ssl_context=tls)
            else:
                services = dict.fromkeys(place.methods, partial(self._calls.begin, number))
                listener = Http2Listener(services, place.limits, sockets=sockets, hub=hub, ssl_context=tls)
            self._listeners.append(listener)
            await listener.start()
        self._reported = [[0] * 10 for _ in self._listeners]
        self._report()
        self.channel.put(frames.READY, 0)
        gc.collect()
        gc.freeze()

    async def _drain(self, place: int, timeout: float) -> None:
        await self._listeners[place].drain(timeout)
        self.channel.put(frames.DRAINED, place)

    def _lend(self, size: int) -> Block | None:
        return self._arena.lend(size) if self._may_lend and self._arena is not None else None

    def _report(self) -> None:
        """Tell the core what was counted since, if anything was."""
        asyncio.get_running_loop().call_later(REPORT_EVERY, self._report)
        counts = [list(listener.hub.answers) for listener in self._listeners]
        new = [
            [now - before for now, before in zip(*pair, strict=True)]
            for pair in zip(counts, self._reported, strict=True)
        ]
        lent = self._arena.lent if self._arena is not None else 0
        stats = Stats(new, lent, self._budget.used, self._budget.refused - self._refused)
        if stats != self._last or any(map(any, new)) or stats.bodies_refused:
            self._last = stats
            self._reported, self._refused = counts, self._budget.refused
            self.channel.put(frames.STATS, 0, encode(stats))


async def serve(control: int) -> str:
    """Serve until the channel ends; why it did."""
    process = FrontProcess()
    sock = socket.socket(fileno=control)
    sock.setblocking(False)
    await asyncio.get_running_loop().create_connection(lambda: process.channel, sock=sock)
    return await process.left


def main() -> None:
    """Entry point: CONTROL_FD."""
    heap.keep(heap.FRONT)
    heap.collect_seldom()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            runner.run(serve(int(sys.argv[1])))
        except ServingError as error:
            log.error("%s", error)
        os._exit(0)  # nothing is left to say: the core, or this process's place in it, is gone


if __name__ == "__main__":
    main()

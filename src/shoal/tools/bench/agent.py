"""A load process: does the loads it is told of on its socket, one after the other, and reports slice by slice.

It leaves when the socket ends, so none outlives the tool.
"""

import asyncio
import gc
import signal
import socket
import sys

import msgspec
import uvloop

from shoal.tools.bench.loops import Closed, Open
from shoal.tools.bench.messages import Halted, Load, Ready, decode_order
from shoal.tools.bench.recorder import Recorder
from shoal.wire.channel import FrameReader, frame

GRACE = 1.0  # s that requests get to end after a halt
MOST_REQUEST = 1024 * 1024 * 1024


def main() -> None:
    """Entry point: SOCKET_FD."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sock = socket.socket(fileno=int(sys.argv[1]))
    sock.setblocking(False)
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)  # next to nothing here makes cycles
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(Agent().serve(sock))


class Agent(asyncio.Protocol):
    """Hears orders and does them."""

    def __init__(self) -> None:
        self._frames = FrameReader(max_message=MOST_REQUEST)
        self._transport: asyncio.Transport | None = None
        self._loop: Closed | Open | None = None
        self._task: asyncio.Task[None] | None = None
        self._gone: asyncio.Future[None] | None = None

    async def serve(self, sock: socket.socket) -> None:
        """Do what is asked until the socket ends; a load that fails ends both, for somebody waits for its reports."""
        loop = asyncio.get_running_loop()
        self._gone = loop.create_future()
        transport, _ = await loop.create_connection(lambda: self, sock=sock)
        try:
            await self._gone
        finally:
            transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way back, and say that we are here."""
        self._transport = transport  # type: ignore[assignment]  # a stream's
        self._send(Ready())

    def data_received(self, data: bytes) -> None:
        """Take orders."""
        for message, _ in self._frames.feed(data):
            order = decode_order(message)
            if isinstance(order, Load):
                self._begin(order)
            elif self._loop is not None:
                self._loop.halt()
                asyncio.get_running_loop().call_later(GRACE, self._loop.give_up)

    def connection_lost(self, error: Exception | None) -> None:
        """Leave; there is nobody to report to any more."""
        self._transport = None
        self._leave(None)

    def _begin(self, load: Load) -> None:
        recorder = Recorder(load.begin, load.slice, lambda: loop.waiting, self._send)
        loop = self._loop = (Closed if load.kind == "closed" else Open)(load, recorder)
        self._task = asyncio.get_running_loop().create_task(self._do(loop, recorder))
        self._task.add_done_callback(lambda task: None if task.cancelled() else self._leave(task.exception()))

    async def _do(self, loop: Closed | Open, recorder: Recorder) -> None:
        recorder.start()
        await loop.run()
        unanswered = loop.waiting
        recorder.stop()
        await loop.abandon()
        self._send(Halted(unanswered))

    def _leave(self, error: BaseException | None) -> None:
        if self._gone is None or self._gone.done():
            return
        if error is not None:
            self._gone.set_exception(error)
        elif self._transport is None:
            self._gone.set_result(None)

    def _send(self, message: msgspec.Struct) -> None:
        if self._transport is not None:
            self._transport.write(b"".join(frame(message)))


if __name__ == "__main__":
    main()

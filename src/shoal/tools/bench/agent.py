"""A load process: does the loads it is told of on its socket, one after the other, and reports slice by slice.

It leaves when the socket ends, so none outlives the tool.
"""

import asyncio
import contextlib
import gc
import signal
import socket
import sys

import msgspec
import uvloop

from shoal.tools.bench.loops import Closed, Open
from shoal.tools.bench.messages import Halt, Halted, Load, Ready, decode_order
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
        self._gone = asyncio.Event()
        self._loop: Closed | Open | None = None
        self._task: asyncio.Task[None] | None = None

    async def serve(self, sock: socket.socket) -> None:
        """Do what is asked until the socket ends."""
        await asyncio.get_running_loop().create_connection(lambda: self, sock=sock)
        await self._gone.wait()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way back, and say that we are here."""
        self._transport = transport  # type: ignore[assignment]  # a stream's
        self._send(Ready())

    def data_received(self, data: bytes) -> None:
        """Take orders."""
        for message, _ in self._frames.feed(data):
            order = decode_order(message)
            if isinstance(order, Load):
                self._task = asyncio.get_running_loop().create_task(self._do(order))
            elif isinstance(order, Halt) and self._loop is not None:
                self._loop.halt()
                asyncio.get_running_loop().call_later(GRACE, self._give_up, self._task)

    def connection_lost(self, error: Exception | None) -> None:
        """Leave; there is nobody to report to any more."""
        self._transport = None
        self._gone.set()

    async def _do(self, load: Load) -> None:
        recorder = Recorder(load.begin, load.slice, lambda: loop.waiting, self._send)
        loop = self._loop = (Closed if load.kind == "closed" else Open)(load, recorder)
        recorder.start()
        with contextlib.suppress(asyncio.CancelledError):
            await loop.run()
        unanswered = loop.waiting
        recorder.stop()
        await loop.abandon()
        self._send(Halted(unanswered))

    def _give_up(self, task: "asyncio.Task[None] | None") -> None:
        if task is not None and task is self._task and not task.done():
            task.cancel()

    def _send(self, message: msgspec.Struct) -> None:
        if self._transport is not None:
            self._transport.write(b"".join(frame(message)))


if __name__ == "__main__":
    main()

"""A closed-loop load for benchmarks: N keep-alive connections, each sends the next request when its answer is there."""

import asyncio
import math
import re
import statistics
import time
from dataclasses import dataclass

import uvloop

LENGTH = re.compile(rb"(?i)\r\ncontent-length: (\d+)").search


@dataclass(frozen=True)
class Figures:
    """What a run gave."""

    rps: float
    p50_ms: float
    p99_ms: float
    mean_ms: float
    errors: int


class Client(asyncio.Protocol):
    """One connection."""

    def __init__(self, request: bytes, run: "Run") -> None:
        self._request = request
        self._run = run
        self._buffer = b""
        self._sent = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first request."""
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]  # a stream's
        self._send()

    def data_received(self, data: bytes) -> None:
        """Note the time when an answer is whole; send the next."""
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        found = LENGTH(self._buffer, 0, end + 2)
        size = end + 4 + (int(found[1]) if found else 0)
        if len(self._buffer) < size:
            return
        self._run.note(time.perf_counter() - self._sent, self._buffer.startswith(b"HTTP/1.1 200"))
        self._buffer = self._buffer[size:]
        self._send()

    def _send(self) -> None:
        self._sent = time.perf_counter()
        if self._sent < self._run.until:
            self._transport.write(self._request)
        else:
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        """Count those that are done."""
        self._run.left()


class Run:
    """All connections of one measurement."""

    def __init__(self, connections: int, seconds: float, warm: float) -> None:
        self._open = connections
        self._from = time.perf_counter() + warm
        self.until = self._from + seconds
        self._seconds = seconds
        self._times: list[float] = []
        self._errors = 0
        self.done = asyncio.get_running_loop().create_future()

    def note(self, taken: float, is_good: bool) -> None:
        """Count an answer that came in the time that is measured."""
        if self._from <= time.perf_counter() <= self.until:
            if is_good:
                self._times.append(taken)
            else:
                self._errors += 1

    def left(self) -> None:
        """One connection is closed."""
        self._open -= 1
        if not self._open and not self.done.done():
            self.done.set_result(None)

    def figures(self) -> Figures:
        """Put the run together."""
        times = sorted(self._times) or [math.inf]
        return Figures(
            rps=len(self._times) / self._seconds,
            p50_ms=1000 * statistics.median(times),
            p99_ms=1000 * times[min(len(times) - 1, int(0.99 * len(times)))],
            mean_ms=1000 * statistics.fmean(times),
            errors=self._errors,
        )


def closed_loop(
    port: int,
    path: str,
    body: bytes,
    connections: int,
    *,
    seconds: float,
    warm: float = 1.0,
    content_type: str = "application/octet-stream",
) -> Figures:
    """Load a server on this machine for so long."""
    head = f"POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
    request = head.encode() + body

    async def load() -> Figures:
        run = Run(connections, seconds, warm)
        loop = asyncio.get_running_loop()
        for _ in range(connections):
            await loop.create_connection(lambda: Client(request, run), "127.0.0.1", port)
        await run.done
        return run.figures()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(load())

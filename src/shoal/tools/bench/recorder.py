"""Recorder: counts what comes back, slice of time after slice of time, and reports each."""

import asyncio
import math
import time
from collections.abc import Callable

from shoal.tools.bench import timing
from shoal.tools.bench.connection import timing_of
from shoal.tools.bench.messages import Slice

SAMPLED = 200  # answers of a slice whose Server-Timing is kept


class Recorder:
    """The slice at hand of one load process."""

    def __init__(self, begin: float, length: float, waiting: Callable[[], int], send: Callable[[Slice], None]) -> None:
        self._length = length
        self._waiting = waiting
        self._send = send
        self._ends = begin + length
        self._timer: asyncio.TimerHandle | None = None
        self._stride = 1  # one in so many answers is sampled
        self._heads: list[bytes] = []
        self._spent = time.process_time()
        self._slice = Slice(0)

    def start(self) -> None:
        """Report from now on."""
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(max(0.0, self._ends - time.monotonic()), self._tick)

    def answered(self, started: float, status: bytes, head: bytes) -> None:
        """Count an answer."""
        now = time.monotonic()
        if now >= self._ends:
            self._roll(now)
        current = self._slice
        if status[:1] != b"2":
            self._fail(status.decode("latin-1"))
            return
        current.answered += 1
        current.latencies.add(now - started)
        if not current.answered % self._stride:
            self._heads.append(head)

    def failed(self, kind: str) -> None:
        """Count a request that got no answer."""
        if (now := time.monotonic()) >= self._ends:
            self._roll(now)
        self._fail(kind)

    def due(self, lag: float) -> None:
        """Count a request whose time came, and how late we were."""
        self._slice.due += 1
        if lag > self._slice.lag:
            self._slice.lag = lag

    def stop(self) -> None:
        """Report what is left; nothing is reported after that."""
        if self._timer is not None:
            self._timer.cancel()
        self._report()
        self._ends = math.inf

    def _fail(self, kind: str) -> None:
        errors = self._slice.errors
        errors[kind] = errors.get(kind, 0) + 1

    def _tick(self) -> None:
        now = time.monotonic()
        if now >= self._ends:
            self._roll(now)
        self.start()

    def _roll(self, now: float) -> None:
        while now >= self._ends:
            self._report()
            self._ends += self._length

    def _report(self) -> None:
        current = self._slice
        for head in self._heads:
            if told := timing_of(head):
                timing.note(current.split, told)
        spent = time.process_time()
        current.waiting, current.cpu = self._waiting(), spent - self._spent
        self._spent = spent
        self._send(current)
        self._heads = []
        self._stride = max(1, current.answered // SAMPLED)
        self._slice = Slice(current.number + 1)

"""Signals: a server runs until it is told to stop, then drains; told again, it stops at once."""

import asyncio
import logging
import signal
from collections.abc import Callable
from typing import Protocol, TypeVar

log = logging.getLogger("shoal")
SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stoppable(Protocol):
    """A server, as far as signals are concerned."""

    async def start(self) -> None:
        """Bring it up; what fails undoes the rest and is raised."""
        ...

    async def drain(self, within: float | None = None) -> None:
        """Finish what was admitted, take nothing new, end every process."""
        ...


S = TypeVar("S", bound=Stoppable)


async def serve_until_told(build: Callable[[], S], on_started: Callable[[S], None]) -> int:
    """Serve until SIGTERM or SIGINT, then drain; a second signal ends what is left. The exit code."""
    told = _Told()
    app = build()
    starting = asyncio.get_running_loop().create_task(app.start())
    is_told = await told.first(starting)
    if not starting.done():  # told to stop while models were loading
        starting.cancel()
        await asyncio.wait({starting})
        return 0
    starting.result()
    if not is_told:
        on_started(app)
        await told.event.wait()
    log.info("draining")
    draining = asyncio.get_running_loop().create_task(app.drain())
    told.event.clear()
    if await told.first(draining):
        log.warning("told again to stop: what is not answered yet is given up")
        draining.cancel()
        await asyncio.wait({draining})
        await app.drain(0.0)
        return 128 + told.number
    draining.result()
    log.info("stopped")
    return 0


class _Told:
    """The signals that came."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.number = 0
        for number in SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self._hear, number)

    def _hear(self, number: int) -> None:
        self.number = number
        self.event.set()

    async def first(self, task: "asyncio.Task[None]") -> bool:
        """Wait for a signal or the task's end; whether it was the signal."""
        waiting = asyncio.get_running_loop().create_task(self.event.wait())
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        return self.event.is_set()

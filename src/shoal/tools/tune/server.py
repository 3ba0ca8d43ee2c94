"""Real servers for trials: on free ports, started within a time limit, a few of them kept for another look."""

import asyncio
import contextlib
import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO

from shoal.errors import LoadFailed
from shoal.tools.bench.target import LISTENS, WITHIN, command
from shoal.tools.machine import available_memory
from shoal.tools.tune.hosts import Host, Served
from shoal.tools.tune.setting import Setting

POLL = 0.02  # s between two looks at what it says
KEPT = 5  # servers that wait for another look


class Servers:
    """Serves a model with any setting; those used last stay, for starting one takes longer than a look at it."""

    def __init__(self, host: Host, within: float) -> None:
        self._host = host
        self._within = within
        self._kept: dict[Setting, tuple[contextlib.AsyncExitStack, Served]] = {}  # in the order of their use
        self._most = 0  # bytes that a start took, at most

    def has(self, setting: Setting) -> bool:
        """Whether it is served now."""
        return setting in self._kept

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._kept)

    async def at(self, setting: Setting) -> Served:
        """Tell where a setting is served, starting it where it is not. LoadFailed tells why it could not be."""
        if setting in self._kept:
            self._kept[setting] = self._kept.pop(setting)
            return self._kept[setting][1]
        while self._kept and (len(self._kept) >= KEPT or available_memory() < 2 * self._most):
            await self.end(next(iter(self._kept)))
        before = available_memory()
        stack = contextlib.AsyncExitStack()
        served = await stack.enter_async_context(serving(self._host, setting, self._within))
        self._kept[setting] = stack, served
        self._most = max(self._most, before - available_memory())
        return served

    async def end(self, setting: Setting) -> None:
        """Stop one, if it is there."""
        if found := self._kept.pop(setting, None):
            await found[0].aclose()

    async def end_all(self) -> None:
        """Stop all, at once."""
        stacks = [stack for stack, _ in self._kept.values()]
        self._kept.clear()
        await asyncio.gather(*(stack.aclose() for stack in stacks))


@contextlib.asynccontextmanager
async def serving(host: Host, setting: Setting, within: float) -> AsyncIterator[Served]:
    """Serve a model with a setting. LoadFailed tells why it could not."""
    with tempfile.TemporaryDirectory(prefix="shoal-tune-") as folder, tempfile.TemporaryFile("w+") as log:
        process = await asyncio.create_subprocess_exec(
            *command(*host.arguments(setting, Path(folder))),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=log,
            env={name: value for name, value in os.environ.items() if not LISTENS(name)},
            start_new_session=True,  # Ctrl-C is ours to act on
        )
        try:
            yield await _started(process, host, log, within)
        finally:
            await _end(process)


async def _started(process: asyncio.subprocess.Process, host: Host, log: IO[str], within: float) -> Served:
    try:
        async with asyncio.timeout(within):
            while (found := host.address(_said(log))) is None:
                if process.returncode is not None:
                    raise LoadFailed(f"no server could be started: {_last_line(log)}")
                await asyncio.sleep(POLL)
            return found
    except TimeoutError:
        raise LoadFailed(f"no server could be started within {within:g} s: {_last_line(log)}") from None


async def _end(process: asyncio.subprocess.Process) -> None:
    """Let it end by itself for a while, whatever else is being given up."""
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(WITHIN):
            await process.wait()
    except (TimeoutError, asyncio.CancelledError):
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def _said(log: IO[str]) -> str:
    """What it has written so far; it writes to the same file, whose end it finds by itself."""
    return os.pread(log.fileno(), 1 << 20, 0).decode(errors="replace")


def _last_line(log: IO[str]) -> str:
    lines = [line.strip() for line in _said(log).splitlines() if line.strip()]
    return lines[-1].removeprefix("error: ") if lines else "it said nothing"

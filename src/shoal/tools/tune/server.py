"""A real server for one trial: on free ports, started within a time limit, gone when the block is left."""

import asyncio
import contextlib
import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO

from shoal.errors import LoadFailed
from shoal.tools.bench.target import LISTENS, WITHIN, command
from shoal.tools.tune.hosts import Host, Served
from shoal.tools.tune.setting import Setting

POLL = 0.02  # s between two looks at what it says


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

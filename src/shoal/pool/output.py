"""What a handler prints: read from the worker's pipes, logged line by line with the model and the worker on each."""

import asyncio
import contextlib
import logging
import os

log = logging.getLogger("shoal.handler")
LONGEST = 16 * 1024
LAST_WORDS = 1.0  # seconds to read what a process that is gone printed last


class LinePipe(asyncio.Protocol):
    """Cuts a stream into log lines; a line without end is cut at `LONGEST`."""

    def __init__(self, level: int, fields: dict[str, str]) -> None:
        self._level = level
        self._fields = fields
        self._rest = b""
        self._ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember what to close."""
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        """Nothing more will come."""
        if not self._ended.done():
            self._ended.set_result(None)

    async def finish(self) -> None:
        """The process is gone: read to the end, but do not wait for whoever else may hold the pipe open."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._ended), LAST_WORDS)
        self._transport.close()
        await self._ended

    def data_received(self, data: bytes) -> None:
        """Log every complete line."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        while len(self._rest) > LONGEST:
            lines.append(self._rest[:LONGEST])
            self._rest = self._rest[LONGEST:]
        for line in lines:
            self._log(line)

    def eof_received(self) -> None:
        """Log what was printed without a line's end."""
        if self._rest:
            self._log(self._rest)
            self._rest = b""

    def _log(self, line: bytes) -> None:
        log.log(self._level, "%s", line.decode("utf-8", "replace").rstrip("\r"), extra={"fields": self._fields})


async def listen(level: int, fields: dict[str, str]) -> tuple[int, LinePipe]:
    """Make a pipe whose lines are logged; gives the end to write to and the reader."""
    read, write = os.pipe2(os.O_CLOEXEC)
    connecting = asyncio.get_running_loop().create_task(_connect(read, level, fields))
    try:
        # Never cancelled half-way: uvloop would close the file, and its Python object close that number once more
        # when it is collected, whoever has it by then. A reader that nobody waits for ends with its pipe.
        return write, await asyncio.shield(connecting)
    except BaseException:
        os.close(write)
        raise


async def _connect(read: int, level: int, fields: dict[str, str]) -> LinePipe:
    loop = asyncio.get_running_loop()
    _, reader = await loop.connect_read_pipe(lambda: LinePipe(level, fields), os.fdopen(read, "rb", 0))
    return reader

"""Forge: the front process's side of a model's template process; it asks for workers and hears of their ends."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Sequence

from shoal.errors import LoadFailed
from shoal.wire.memory import Arena
from shoal.wire.messages import Exited, Fork, Forked, Warmed, decode_template_word, encode

log = logging.getLogger("shoal.pool")


class Forge:
    """One template process: started when first needed, replaced when it has died."""

    def __init__(
        self,
        python: str,
        files: Sequence[str],
        environment: dict[str, str],
        arena: Arena | None,
        on_exit: Callable[[int, int], None],
    ) -> None:
        self._python = python
        self._files = files
        self._environment = environment
        self._arena = arena
        self._on_exit = on_exit
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._forks: dict[str, asyncio.Future[int]] = {}
        self._warm: asyncio.Future[None] | None = None

    @property
    def pid(self) -> int:
        """The template's process, or -1."""
        return self._process.pid if self._process else -1

    @property
    def shares_memory(self) -> bool:
        """Whether workers and the front process share memory."""
        return self._arena is not None

    async def fork(self, worker: str, fds: Sequence[int], within: float) -> int:
        """Have a worker forked that owns these: its socket, standard output, standard error, and its tray if any.

        Gives its process.
        """
        if self._control is None:
            self._start()
        assert self._control is not None and self._warm is not None
        async with asyncio.timeout(within):
            await asyncio.shield(self._warm)
            future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            self._forks[worker] = future
            try:
                socket.send_fds(self._control, [encode(Fork(worker))], list(fds))
                return await future
            finally:
                self._forks.pop(worker, None)

    def stop(self) -> None:
        """End the template, and with it every worker that is left."""
        self._close("the template was stopped")

    def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        arena_fd = self._arena.fd if self._arena else -1
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own module
                [
                    self._python,
                    "-P",  # no module of the folder we happen to be in poses as one of ours
                    *("-X", "faulthandler"),  # a crash in native code says where it was
                    "-m",
                    "shoal.worker.template",
                    *map(str, (theirs.fileno(), arena_fd, os.getpid())),
                    *self._files,
                ],
                pass_fds=[fd for fd in (theirs.fileno(), arena_fd) if fd >= 0],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        finally:
            theirs.close()
        ours.setblocking(False)
        self._control = ours
        loop = asyncio.get_running_loop()
        self._warm = loop.create_future()
        self._warm.add_done_callback(lambda future: future.cancelled() or future.exception())  # never unretrieved
        loop.add_reader(ours.fileno(), self._hear)

    def _hear(self) -> None:
        assert self._control is not None and self._warm is not None
        try:
            message = self._control.recv(64 * 1024)
        except BlockingIOError:
            return
        except OSError as error:
            message = b""
            log.warning("template lost: %s", error)
        if not message:
            self._close("the template process died")
            return
        match decode_template_word(message):
            case Warmed(failed):
                if failed:
                    log.debug("not imported ahead: %s", ", ".join(failed))
                if not self._warm.done():
                    self._warm.set_result(None)
            case Forked(worker, pid):
                if (future := self._forks.get(worker)) and not future.done():
                    future.set_result(pid)
            case Exited(pid, status):
                self._on_exit(pid, status)

    def _close(self, why: str) -> None:
        if self._control is None:
            return
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._control.fileno())
        self._control.close()
        self._control = None
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None
        for future in (*self._forks.values(), self._warm):
            if future is not None and not future.done():
                future.set_exception(LoadFailed(why))
        self._forks.clear()

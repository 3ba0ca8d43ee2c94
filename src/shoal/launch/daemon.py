"""A server in the background: the file that says which process it is, the start that waits for it, the stop.

The pid file is locked by the server for as long as it lives. The lock, not the number in the file, tells a running
server from one that is gone: a number may by now belong to another program.
"""

import contextlib
import fcntl
import os
import select
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from shoal.errors import ConfigError

PID_FILE = ".model_server.pid"
PATIENCE = 60.0  # s that a start, and a stop, is waited for
GLANCE = 0.05  # s between two looks


def pid_file() -> Path:
    """Give the place of the pid file: the temporary folder, as upstream has it."""
    return Path(tempfile.gettempdir(), PID_FILE)


def running(path: Path) -> int:
    """Give the process id of the server that holds the file; 0 where none does."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}; set TMPDIR to a folder of your own") from None
    try:
        return _holder(fd)
    finally:
        os.close(fd)


def remove_orphan(path: Path) -> bool:
    """Remove a file that no server holds; whether there was one."""
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    return True


@contextlib.contextmanager
def holding(path: Path) -> Iterator[None]:
    """Be the server: write the file, hold its lock, and remove it at the end."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}; set TMPDIR to a folder of your own") from None
    try:
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigError(f"another server was started just now: it holds {path}") from None
        os.ftruncate(fd, 0)
        os.write(fd, str(os.getpid()).encode())
        try:
            yield
        finally:
            with contextlib.suppress(FileNotFoundError):
                if os.stat(path).st_ino == os.fstat(fd).st_ino:
                    path.unlink()
    finally:
        os.close(fd)


def start_in_background(serve: Callable[[Callable[[], None]], int]) -> int:
    """Run `serve` in a process of its own, and return when it says that it has started, or has failed.

    `serve` is given what to call once it has started. It goes on writing to the same standard output. To be called
    before the process has threads or an event loop.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    read, write = os.pipe()
    child = os.fork()
    if child:
        os.close(write)
        with open(read, "rb", 0) as reports:
            return _await_start(child, reports.fileno())
    os.close(read)
    os.setsid()  # what stops the terminal's programs does not stop it
    with open(os.devnull, "rb") as null:
        os.dup2(null.fileno(), 0)
    return serve(lambda: _report(write))


def stop(pid: int, path: Path, patience: float = PATIENCE) -> bool:
    """Ask a server to stop and wait until it is gone; whether it is."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    end = time.monotonic() + patience
    while running(path) == pid:
        if time.monotonic() > end:
            return False
        time.sleep(GLANCE)
    return True


def _holder(fd: int) -> int:
    while True:
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            text = os.pread(fd, 32, 0).strip()
            if text.isdigit():
                return int(text)
            time.sleep(GLANCE)  # it has the lock and is about to write its number
        else:
            return 0


def _await_start(child: int, reports: int) -> int:
    end = time.monotonic() + PATIENCE
    try:
        while time.monotonic() < end:
            if select.select([reports], [], [], GLANCE)[0]:
                if os.read(reports, 1):
                    return 0
                time.sleep(GLANCE)  # it has closed its end, and is about to end itself
            done, status = os.waitpid(child, os.WNOHANG)
            if done:  # before it had started
                code = os.waitstatus_to_exitcode(status)
                return code if code > 0 else 1
    except KeyboardInterrupt:
        os.kill(child, signal.SIGTERM)
        raise
    return 0  # still loading; it says on standard output how it goes on


def _report(write: int) -> None:
    with contextlib.suppress(OSError):  # nobody waits any more
        os.write(write, b"1")
    os.close(write)

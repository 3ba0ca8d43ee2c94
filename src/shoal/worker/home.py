"""Home: the one thread that a user's model runs on, from its import to finalize: the main thread of its worker.

As long as nobody needs the commands read while the model runs, that thread reads them too, so a batch crosses no
thread. Once somebody does, another thread reads them (`main.Loop.read_apart`), and jobs come from there.
"""

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

_log = logging.getLogger("shoal.worker")
Done = SimpleQueue[tuple[Any, BaseException | None]]
Job = tuple[Callable[..., Any], tuple[Any, ...], Done | None]


def nothing() -> None:
    """What is done where nothing waits anywhere else."""


class Home:
    """The jobs of the thread that made it. `pull` lets what has come for the model join them."""

    def __init__(self) -> None:
        self.pull: Callable[[], None] = nothing
        self._owner = threading.get_ident()
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._is_running = False
        self._is_left = False

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run it there and give its result, or raise what it raised; who is there already runs it at once."""
        if threading.get_ident() == self._owner:
            return function(*arguments)
        done: Done = SimpleQueue()
        self._jobs.put((function, arguments, done))
        result, error = done.get()
        if error is not None:
            raise error
        return result

    def put(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Run it there, once what was put before is through."""
        self._jobs.put((function, arguments, None))

    def start(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Run it there, once all that has come before is through: now, where a batch runs there without a server."""
        self.pull()
        self.put(function, *arguments)
        if not self._is_running and threading.get_ident() == self._owner:
            self.run()

    def run(self) -> None:
        """Run what there is to run."""
        while not self._is_left and not self._jobs.empty():
            self._run_next()

    def serve(self) -> None:
        """Run what comes, until `leave`."""
        while not self._is_left:
            self._run_next()

    def leave(self) -> None:
        """End `run` and `serve`, once what was put before is through."""
        self._jobs.put(None)

    def _run_next(self) -> None:
        """Wait for a job and run it; nothing of it is held once it is through."""
        if (job := self._jobs.get()) is None:
            self._is_left = True
            return
        self._is_running = True
        try:
            self._run_one(*job)
        finally:
            self._is_running = False

    def _run_one(self, function: Callable[..., Any], arguments: tuple[Any, ...], done: Done | None) -> None:
        try:
            result, error = function(*arguments), None
        except BaseException as problem:  # SystemExit too: user code does not end the thread
            result, error = None, problem
        if done is not None:
            done.put((result, error))
        elif error is not None:
            _log.error("a batch could not be started", exc_info=error)

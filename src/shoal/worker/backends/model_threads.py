"""The threads that a user's model runs on: one for plain calls, one for its coroutines."""

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

_log = logging.getLogger("shoal.worker")


class ModelThread:
    """The one thread that everything of the user's runs on, from initialize to finalize."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[tuple[Callable[..., Any], tuple[Any, ...], SimpleQueue[Any] | None]] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="model", daemon=True)
        self._thread.start()

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run it there and give its result, or raise what it raised; who is there already runs it at once."""
        if threading.get_ident() == self._thread.ident:
            return function(*arguments)
        done: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        self._jobs.put((function, arguments, done))
        result, error = done.get()
        if error is not None:
            raise error
        return result

    def start(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Run it there, once what came before is through."""
        self._jobs.put((function, arguments, None))

    def _run(self) -> None:
        while True:
            self._run_one(*self._jobs.get())

    def _run_one(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], done: "SimpleQueue[Any] | None"
    ) -> None:
        """Run one; nothing of it is held once it is through."""
        try:
            result, error = function(*arguments), None
        except BaseException as problem:  # SystemExit too: user code does not end the thread
            result, error = None, problem
        if done is not None:
            done.put((result, error))
        elif error is not None:
            _log.error("a batch could not be started", exc_info=error)


class ModelLoop:
    """The event loop of a model whose execute is a coroutine function; it runs on a thread of its own."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, result: Any) -> "Future[Any]":
        """Run what execute gave."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._loop.run_forever, name="model-loop", daemon=True).start()
        return asyncio.run_coroutine_threadsafe(_wait_for(result), self._loop)


async def _wait_for(result: Any) -> Any:
    return await result

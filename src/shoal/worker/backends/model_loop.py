"""The event loop that coroutines of a user's model run on."""

import asyncio
import threading
from concurrent.futures import Future
from typing import Any


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

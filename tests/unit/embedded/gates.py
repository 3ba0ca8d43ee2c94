"""A function that runs only when its test lets it, and a wait for what is bound to happen."""

import threading
import time
from collections.abc import Callable
from typing import Any

PATIENCE = 20.0  # seconds; only a failing test waits that long


class Gated:
    """Doubles its items, each batch once it is let through."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.entered = threading.Semaphore(0)
        self._open = threading.Semaphore(0)

    def double(self, items: list[int]) -> list[int]:
        self.batches.append(list(items))
        self.entered.release()
        assert self._open.acquire(timeout=PATIENCE), "the test never let this batch through"
        return [2 * item for item in items]

    def let(self, batches: int = 1) -> None:
        self._open.release(batches)

    def wait_inside(self) -> None:
        assert self.entered.acquire(timeout=PATIENCE), "no batch came"


class Caller(threading.Thread):
    """One call in a thread of its own, and how it ended."""

    def __init__(self, call: Callable[..., Any], item: object, **options: Any) -> None:
        super().__init__(daemon=True)
        self._call = call
        self._item = item
        self._options = options
        self.ended: Any = None
        self.has_raised = False
        self.start()

    def run(self) -> None:
        try:
            self.ended = self._call(self._item, **self._options)
        except BaseException as error:
            self.ended = error
            self.has_raised = True

    def result(self) -> Any:
        self.join(PATIENCE)
        assert not self.is_alive(), "the call never came back"
        return self.ended


def eventually(claim: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not claim():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.001)


def wait_for_queue(batched: Any, waiting: int) -> None:
    """Come back when that many calls wait."""
    eventually(lambda: batched.describe()["waiting"] == waiting)

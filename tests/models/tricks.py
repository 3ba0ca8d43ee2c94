"""A handler that does whatever its items say: for tests of what happens then."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

import shoal


def predict(items: list[Any]) -> list[Any]:
    return [act(item) for item in items]


def act(item: Any) -> Any:
    if not isinstance(item, dict):
        return item
    match item.get("do"):
        case "pid":
            return os.getpid()
        case "sleep":
            time.sleep(item["seconds"])
            return "slept"
        case "crash":
            os._exit(7)
        case "fault":
            signal.raise_signal(signal.SIGSEGV)
        case "fail":
            return shoal.HandlerFailed(item["message"], status=item.get("status"))
        case "raise":
            raise RuntimeError(item["message"])
        case "print":
            print(item["text"])
            print(item["text"], file=sys.stderr)
            return "printed"
        case "big":
            return b"x" * item["size"]
        case "count":
            return (f"{number}\n" for number in range(item["to"]))
        case "endless":
            return endless(item["path"])
        case "touch":
            with open(item["path"], "a") as file:
                file.write("x")
            return "touched"
    return item


def endless(path: str) -> Iterator[str]:
    """Yield until nobody listens, then leave a mark."""
    try:
        while True:
            yield "x" * 1000
    finally:
        with open(path, "w") as file:
            file.write("closed")

"""Kinds of settings: plain values made into them, from any thread.

msgspec reads the fields of a kind when it first meets it, and whoever comes meanwhile is shown the kind half read: of
two threads that convert to one kind for the first time, one crashes the process. So here one thread alone reads it.
"""

import threading
from typing import TypeVar

import msgspec

T = TypeVar("T")
_read: set[object] = set()
_reading = threading.Lock()


def convert(values: object, kind: type[T], *, strict: bool = True) -> T:
    """Make plain values into a kind; msgspec.ValidationError says what is wrong with them."""
    if kind not in _read:
        with _reading:
            msgspec.json.Decoder(kind)  # has the fields read
            _read.add(kind)
    return msgspec.convert(values, kind, strict=strict)  # noqa: TID251 - the one place

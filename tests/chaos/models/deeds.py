"""A handler that does what each item says, and whose right answer can be computed from the item alone.

An item is `TOKEN DEED ARGUMENT` on a line, then data. The answer names the token, so that none can pass for another.
"""

import os
import signal
import time
from collections.abc import Iterator, Sequence
from typing import Any
from zlib import crc32

Item = tuple[str, str, str, bytes]  # token, deed, argument, data


class Staged:
    """Three stages on threads of their own: a worker holds one batch running and one on its way."""

    def initialize(self, context: Any) -> None:
        self._context = context

    def decode(self, item: Any) -> Item:
        return read(item)

    def inference(self, items: Sequence[Item]) -> list[Any]:
        return answers(items, self._context)

    def encode(self, output: Any) -> Any:
        return output


def plain(items: Sequence[Any], context: Any) -> list[Any]:
    """All in one stage."""
    return answers([read(item) for item in items], context)


def slowly(items: Sequence[Any], context: Any) -> list[Any]:
    """The same, but slowly enough for somebody to be under way whenever something is done to it."""
    time.sleep(0.02)
    return plain(items, context)


def answers(items: Sequence[Item], context: Any) -> list[Any]:
    """Note who is run where that matters, and do it."""
    if ledger := context.parameters.get("ledger"):
        note(ledger, [token for token, *_ in items])
    time.sleep(float(context.parameters.get("seconds", 0.001)))
    version = context.manifest["model"]["modelVersion"]
    return [act(item, version) for item in items]


def read(item: Any) -> Item:
    """Take an item apart: one body, or a form of a head and data."""
    if isinstance(item, dict):
        head, data = bytes(item["head"]), bytes(item["data"])
    else:
        head, _, data = bytes(item).partition(b"\n")
    token, deed, argument = head.decode().split(" ")
    return token, deed, argument, data


def act(item: Item, version: str) -> Any:
    """Do what the item says."""
    token, deed, argument, data = item
    match deed:
        case "raise":
            raise RuntimeError(f"{token} is poison")
        case "memory":
            return bytearray(1 << 60)
        case "segv":
            signal.raise_signal(signal.SIGSEGV)
        case "hang":
            time.sleep(3600)
        case "sleep":
            time.sleep(float(argument))
        case "big":
            return f"{token} ".encode() * int(argument)
        case "stream":
            return pieces(token, int(argument), data)
    return f"{token} {crc32(data):08x} {len(data)} {version}".encode()


def pieces(token: str, count: int, data: bytes) -> Iterator[bytes]:
    """Yield an answer slowly enough for something to happen meanwhile."""
    for number in range(count):
        time.sleep(0.002)
        yield f"{token} {number} {crc32(data):08x}\n".encode()


def note(path: str, tokens: Sequence[str]) -> None:
    """Append who is about to be run, and when; one write, so that lines of several workers do not mix."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, "".join(f"{token} {time.monotonic()}\n" for token in tokens).encode())
    finally:
        os.close(file)

"""A request of tensors as it came: its inputs where they lie, and what it says besides them."""

from typing import Any, NamedTuple

import msgspec

from shoal.wire.messages import Item

HEADER = b"v2"  # where a request's own words travel


class Asked(msgspec.Struct, frozen=True):
    """What a request says besides its tensors."""

    id: str = ""
    parameters: dict[str, Any] = {}
    outputs: list[str] = []  # the names of those it wants; empty: all
    sequence: dict[str, Any] = {}
    timeout: int = 0  # microseconds


class Seat(NamedTuple):
    """Where the state of a request's sequence is kept, and which turn of that place the request is."""

    place: tuple[int, int]  # an instance, and a slot of it
    turn: int


class Received(NamedTuple):
    """An input as it came: its bytes are valid until the batch has ended."""

    datatype: str
    shape: tuple[int, ...]
    data: memoryview


NOTHING_SAID = Asked()
_read_asked = msgspec.msgpack.Decoder(Asked).decode


def asked_of(item: Item) -> Asked:
    """Read what a request says besides its tensors."""
    for key, value in item.headers:
        if key == HEADER:
            return _read_asked(value)
    return NOTHING_SAID

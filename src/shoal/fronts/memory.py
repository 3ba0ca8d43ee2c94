"""Memory: the core's look at the blocks that a front process lent to its requests, and when they went back."""

import sys
from collections.abc import Callable

from shoal.config.server import ServerConfig
from shoal.errors import ProtocolError
from shoal.wire.memory import Arena, room_of


class LentBlock:
    """A block that a front process lent; released, it goes back there."""

    __slots__ = ("_blocks", "offset", "size")

    def __init__(self, blocks: "LentBlocks", offset: int, size: int) -> None:
        self._blocks: LentBlocks | None = blocks
        self.offset = offset
        self.size = size

    @property
    def view(self) -> memoryview:
        """The bytes themselves; not to be used after release."""
        assert self._blocks is not None, "a block is not read after it was given back"
        return self._blocks.arena.view(self.offset, self.size)

    def release(self) -> None:
        """Give the block back; again does nothing."""
        blocks, self._blocks = self._blocks, None
        if blocks is not None:
            blocks.take_back(self.offset, self.size)


class LentBlocks:
    """The blocks of one front process that the core has. `on_back` hears each offset; `on_empty` that a dead one's
    are all back, so that its part may be lent from anew."""

    def __init__(self, arena: Arena, part: int, on_back: Callable[[int], None]) -> None:
        self.arena = arena
        self._part = part
        self._on_back = on_back
        self._offsets: set[int] = set()
        self._on_empty: Callable[[], None] | None = None
        self.lent = 0

    def take(self, offset: int, size: int) -> LentBlock:
        """Have a block that was handed over."""
        _, start, room = self.arena.part(self._part)
        if offset < start or size <= 0 or offset + size > start + room or offset in self._offsets:
            raise ProtocolError(f"no block of {size} bytes can be lent at {offset}")
        self._offsets.add(offset)
        self.lent += room_of(size)
        return LentBlock(self, offset, size)

    def take_back(self, offset: int, size: int) -> None:
        """Nobody reads the block any more."""
        self._offsets.discard(offset)
        self.lent -= room_of(size)
        if self._on_empty is None:
            self._on_back(offset)
        elif not self._offsets:
            self._on_empty()

    def orphan(self, on_empty: Callable[[], None]) -> None:
        """The process that lent them is gone."""
        self._on_empty = on_empty
        if not self._offsets:
            on_empty()


def arena_of(config: ServerConfig) -> Arena | None:
    """Make a server's shared memory; where there are front processes, the first part of it is the core's."""
    if sys.platform != "linux" or not config.shared_memory:
        return None
    return Arena(config.shared_memory, config.frontends + 1 if config.frontends > 1 else 1)

"""Shared memory for large request bodies: blocks are lent, read by a worker in place, and come back.

One anonymous file holds all of them. It has no name, so nothing is left behind whatever dies; pages are taken when
they are first written and given back when many blocks lie idle. Only the front process lends; workers read. Where there
are several front processes the file has a part for each, and offsets count from its beginning for all.
"""

import contextlib
import mmap
import os
from typing import Final, NamedTuple

from shoal.errors import ProtocolError

SMALLEST: Final = 16 * 1024
SPREAD: Final = 8  # address space kept per lendable byte, so that sizes do not fight over it
KEEP: Final = 64 * 2**20  # bytes whose pages stay in any case, ready for the next body
FORGET: Final = 12  # the most that was lent is forgotten by its 2**-12 with each block that comes back


class ArenaBlock:
    """A lent piece of the arena."""

    __slots__ = ("_arena", "_order", "offset", "size")

    def __init__(self, arena: "Arena", order: int, offset: int, size: int) -> None:
        self._arena: Arena | None = arena
        self._order = order
        self.offset = offset
        self.size = size

    @property
    def view(self) -> memoryview:
        """The bytes themselves; not to be used after release."""
        assert self._arena is not None, "a block is not read after it was given back"
        return self._arena.view(self.offset, self.size)

    def release(self) -> None:
        """Give the block back; again does nothing."""
        arena, self._arena = self._arena, None
        if arena is not None:
            arena.take_back(self._order, self.offset)


class ArenaPart(NamedTuple):
    """A piece of the file that one process lends from."""

    limit: int  # bytes that may be lent
    start: int
    size: int


class Arena:
    """The blocks of one process, lent in sizes of powers of two. `limit` is that of all `parts` together.

    Whoever makes the file has its first part; `fd` is the file where another process made it.
    """

    def __init__(self, limit: int, parts: int = 1, *, fd: int = -1, part: int = 0) -> None:
        self._parts = parts_of(limit, parts)
        self.limit, self._next, self.size = self._parts[part]
        self._end = self._next + self.size
        self.fd = os.memfd_create("shoal") if fd < 0 else fd
        if fd < 0:
            os.ftruncate(self.fd, parts * self.size)
        self._map = mmap.mmap(self.fd, parts * self.size)
        self._view = memoryview(self._map)
        self._free: dict[int, list[int]] = {}
        self._cold: dict[int, list[int]] = {}  # free, pages given back
        self._kept = 0
        self._peak = 0  # the most that was lent lately: as much stays ready
        self.lent = 0

    def lend(self, size: int) -> ArenaBlock | None:
        """Lend `size` bytes, or None when as much is lent as may be."""
        order = max(SMALLEST, size) - 1
        order = order.bit_length()
        room = 1 << order
        if size <= 0 or self.lent + room > self.limit:
            return None
        if warm := self._free.get(order):
            offset = warm.pop()
            self._kept -= room
        elif cold := self._cold.get(order):
            offset = cold.pop()
        elif self._next + room <= self._end:
            offset = self._next
            self._next += room
        else:
            return None
        self.lent += room
        if self.lent > self._peak:
            self._peak = self.lent
        return ArenaBlock(self, order, offset, size)

    def take_back(self, order: int, offset: int) -> None:
        """Keep the block for the next; beyond what was in use lately its pages go back to the system."""
        if self._map.closed:
            return
        room = 1 << order
        self.lent -= room
        self._peak -= self._peak >> FORGET
        if self._kept + room <= max(KEEP, self._peak - self.lent):
            self._kept += room
            self._free.setdefault(order, []).append(offset)
        else:
            self._cool(order, offset)
        if not self.lent and self._kept > KEEP:
            self._rest()

    def _rest(self) -> None:
        """Nothing is lent any more: keep little."""
        self._peak = 0
        for order, offsets in self._free.items():
            while offsets and self._kept > KEEP:
                self._kept -= 1 << order
                self._cool(order, offsets.pop())

    def _cool(self, order: int, offset: int) -> None:
        self._map.madvise(mmap.MADV_REMOVE, offset, 1 << order)
        self._cold.setdefault(order, []).append(offset)

    def view(self, offset: int, size: int) -> memoryview:
        """Look at a piece of it."""
        return self._view[offset : offset + size]

    @property
    def total(self) -> int:
        """What all processes together may lend."""
        return sum(part.limit for part in self._parts)

    def part(self, number: int) -> ArenaPart:
        """Where the blocks of another process lie."""
        return self._parts[number]

    def clear(self, number: int) -> None:
        """Give the pages of a part back whose process is gone; nobody may read there any more."""
        part = self._parts[number]
        self._map.madvise(mmap.MADV_REMOVE, part.start, part.size)

    def close(self) -> None:
        """Give everything back; blocks still lent are dead."""
        self._view.release()
        with contextlib.suppress(BufferError):  # somebody still looks at a block: the map goes with that view
            self._map.close()
        os.close(self.fd)


def room_of(size: int) -> int:
    """How much is lent for that many bytes."""
    return 1 << (max(SMALLEST, size) - 1).bit_length()


def parts_of(limit: int, count: int) -> list[ArenaPart]:
    """Cut what may be lent into equal parts; several are cut at multiples of the smallest block."""
    share = limit if count == 1 else limit // count // SMALLEST * SMALLEST
    return [ArenaPart(share, number * share * SPREAD, share * SPREAD) for number in range(count)]


class ArenaReader:
    """A worker's look at the arena: read only."""

    def __init__(self, fd: int) -> None:
        self._map = mmap.mmap(fd, os.fstat(fd).st_size, prot=mmap.PROT_READ)
        self._view = memoryview(self._map)

    def read(self, offset: int, size: int) -> memoryview:
        """Look at a block; valid until the batch it came with has ended."""
        if offset < 0 or size < 0 or offset + size > len(self._view):
            raise ProtocolError(f"no block of {size} bytes lies at {offset}")
        return self._view[offset : offset + size]

"""Shared memory for the large answers of one worker: it lays them down, and the front process sends them from there.

The front process makes the memory, of a size that nobody can change any more, so that no worker can take it away while
it is read. The worker decides what lies where; a place is its own again once the front process has said so.
"""

import ctypes
import fcntl
import mmap
import os
import threading
import weakref
from collections.abc import Sequence
from typing import Final

from shoal.errors import ProtocolError
from shoal.payload import Buffer

SIZE: Final = 256 * 2**20  # pages are taken when they are first written
LARGE: Final = 64 * 1024  # bytes from which an answer is better laid down than sent
KEEP: Final = 64 * 2**20  # bytes of free places whose pages stay, ready for the next answer
_ROOMS: Final = {order: ctypes.c_char * (1 << order) for order in range(16, SIZE.bit_length())}


def order_of(size: int) -> int:
    """Say which power of two a place of this size has."""
    return (max(LARGE, size) - 1).bit_length()


class Tray:
    """The front process's end. `fd` is for the worker; whoever sends it there closes it."""

    def __init__(self, size: int = SIZE) -> None:
        self.fd = os.memfd_create("shoal-answers", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, size)
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        self._size = size
        self._map = mmap.mmap(self.fd, size)
        self._looks: dict[int, weakref.ref[ctypes.Array[ctypes.c_char]]] = {}  # places that somebody still looks at
        self._freed: list[int] = []

    def read(self, offset: int, size: int) -> memoryview:
        """Look at an answer; its place is given back when the last look at it is gone."""
        order = order_of(size)
        if offset < 0 or size < 0 or offset + (1 << order) > self._size or offset in self._looks:
            raise ProtocolError(f"no answer of {size} bytes lies at {offset}")
        place = _ROOMS[order].from_buffer(self._map, offset)
        looks, freed = self._looks, self._freed

        def free(_: object) -> None:
            del looks[offset]
            freed.append(offset)

        looks[offset] = weakref.ref(place, free)
        return memoryview(place).cast("B")[:size].toreadonly()

    def take_freed(self) -> list[int]:
        """Give the places that nobody looks at any more, once."""
        freed = self._freed[:]
        self._freed.clear()
        return freed


class Laid:
    """An answer that lies in the tray; given back with its last reference, unless it was handed over."""

    __slots__ = ("_tray", "offset", "size")

    def __init__(self, tray: "TrayWriter", offset: int, size: int) -> None:
        self._tray: TrayWriter | None = tray
        self.offset = offset
        self.size = size

    def __len__(self) -> int:
        return self.size

    @property
    def view(self) -> memoryview:
        """The bytes themselves; not to be used after it was handed over."""
        assert self._tray is not None, "an answer is not read after it was handed over"
        return self._tray.look(self.offset, self.size)

    def hand_over(self) -> int:
        """Let the front process have it; says where it lies."""
        self._tray = None
        return self.offset

    def __del__(self) -> None:
        if self._tray is not None:
            self._tray.take_back([self.offset])


class TrayWriter:
    """A worker's end; for any thread."""

    def __init__(self, fd: int) -> None:
        self._size = os.fstat(fd).st_size
        self._map = mmap.mmap(fd, self._size)
        self._view = memoryview(self._map)
        self._lock = threading.RLock()  # an answer may be given up by the collector, anywhere
        self._orders: dict[int, int] = {}  # of the places that are in use
        self._free: dict[int, list[int]] = {}
        self._next = 0
        self._kept = 0

    def lay(self, buffers: Sequence[Buffer], size: int) -> Laid | None:
        """Copy these one after the other; None where there is no room."""
        order = order_of(size)
        with self._lock:
            free = self._free.get(order)
            if free:
                offset = free.pop()
                self._kept -= 1 << order
            elif self._next + (1 << order) <= self._size:
                offset = self._next
                self._next += 1 << order
            else:
                return None
            self._orders[offset] = order
        at, view = offset, self._view
        for buffer in buffers:
            end = at + len(buffer)
            view[at:end] = buffer
            at = end
        return Laid(self, offset, size)

    def look(self, offset: int, size: int) -> memoryview:
        """Look at a piece of it."""
        return self._view[offset : offset + size]

    def take_back(self, offsets: Sequence[int]) -> None:
        """Have places back; more idle ones than are worth keeping give their pages to the system."""
        with self._lock:
            for offset in offsets:
                order = self._orders.pop(offset, None)
                if order is None:
                    raise ProtocolError(f"no answer lies at {offset}")
                if self._kept >= KEEP:
                    self._map.madvise(mmap.MADV_REMOVE, offset, 1 << order)
                self._kept += 1 << order
                self._free.setdefault(order, []).append(offset)

"""Shared memory that clients on the same machine register: inputs are read from it, outputs are written into it.

Objects below /dev/shm only, opened without following links. They are read and written by calls, not mapped: a client
that shortens its object while it is in use must not be able to end the server with a bus error.
"""

import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from shoal.errors import InvalidInput, ServingError
from shoal.frontend.kserve.status import AlreadyThere, NotThere, Unsupported
from shoal.payload import Block, Buffer

FOLDER = Path("/dev/shm")  # noqa: S108  # where POSIX shared memory lives, not a temporary file
MOST_REGIONS: Final = 4096
LONGEST_NAME: Final = 255
RESERVED: Final = "triton_python_backend_shm_region_"
LARGEST: Final = 2**63 - 1
INLINE: Final = 16 * 1024  # bytes of an input up to which it travels with its batch
OFF: Final = "the client shared memory APIs are off on this server"
Lend = Callable[[int], Block | None]


class Region:
    """A registered piece of an object. It is closed once it is unregistered and nobody writes into it any more."""

    __slots__ = ("_fd", "_users", "key", "name", "offset", "size")

    def __init__(self, name: str, key: str, fd: int, offset: int, size: int) -> None:
        self.name = name
        self.key = key
        self.offset = offset
        self.size = size
        self._fd = fd
        self._users = 1

    def hold(self) -> None:
        """Keep it open."""
        self._users += 1

    def let_go(self) -> None:
        """It is needed once less."""
        self._users -= 1
        if not self._users:
            os.close(self._fd)

    def read(self, into: memoryview, at: int) -> None:
        """Copy from it."""
        done = 0
        while done < len(into):
            count = os.preadv(self._fd, [into[done:]], self.offset + at + done)
            if not count:
                raise InvalidInput(
                    f"the object of shared memory region '{self.name}' is shorter than it was registered"
                )
            done += count

    def write(self, data: memoryview, at: int) -> None:
        """Copy into it; an object that was shortened is not made longer again."""
        if os.fstat(self._fd).st_size < self.offset + at + len(data):
            raise InvalidInput(f"the object of shared memory region '{self.name}' is shorter than it was registered")
        done = 0
        while done < len(data):
            done += os.pwrite(self._fd, data[done:], self.offset + at + done)


class Window:
    """The part of a region that one output may fill."""

    __slots__ = ("_at", "_region", "_size")

    def __init__(self, region: Region, at: int, size: int) -> None:
        region.hold()
        self._region: Region | None = region
        self._at = at
        self._size = size

    def write(self, name: str, data: memoryview) -> None:
        """Put an output there."""
        assert self._region is not None, "nothing is written once the window was let go"
        if len(data) > self._size:
            raise ServingError(
                f"shared memory size specified with the request for output '{name}' ({self._size} bytes) should be at "
                f"least {len(data)} bytes to hold the results"
            )
        self._region.write(data, self._at)

    def let_go(self) -> None:
        """Nothing will be written any more; again does nothing."""
        region, self._region = self._region, None
        if region is not None:
            region.let_go()


class Regions:
    """The regions of one server, by name."""

    def __init__(self, *, is_on: bool, lend: Lend, largest: int, folder: Path = FOLDER) -> None:
        self._is_on = is_on
        self._lend = lend
        self._largest = largest  # bytes of one input
        self._folder = folder
        self._regions: dict[str, Region] = {}

    def register(self, name: str, key: Any, offset: Any, size: Any) -> None:
        """Take a client's object in."""
        if not self._is_on:
            raise Unsupported(OFF)
        if name in self._regions:
            raise AlreadyThere(f"shared memory region '{name}' already in manager")
        if len(self._regions) >= MOST_REGIONS:
            raise InvalidInput(f"{MOST_REGIONS} shared memory regions are registered already; that is the most")
        for field, value in (("offset", offset), ("byte_size", size)):
            if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= LARGEST:
                raise InvalidInput(f"'{field}' of a shared memory region is a whole number of bytes, got {value!r}")
        fd = self._open(key)
        if offset + size > os.fstat(fd).st_size:
            os.close(fd)
            raise InvalidInput(
                f"failed to register shared memory region '{name}': invalid args: offset {offset} and size {size} are "
                f"beyond the end of '{key}'"
            )
        self._regions[name] = Region(name, key, fd, offset, size)

    def unregister(self, name: str = "") -> None:
        """Forget a region, or all of them; one that is not there is forgotten already."""
        if not self._is_on:
            raise Unsupported(OFF)
        for found in [name] if name else list(self._regions):
            region = self._regions.pop(found, None)
            if region is not None:
                region.let_go()

    def status(self, name: str = "") -> list[dict[str, Any]]:
        """Tell of a region, or of all."""
        if name and name not in self._regions:
            raise NotThere(f"Unable to find system shared memory region: '{name}'")
        found = [self._regions[name]] if name else list(self._regions.values())
        return [
            {"name": region.name, "key": region.key, "offset": region.offset, "byte_size": region.size}
            for region in found
        ]

    def read(self, name: str, at: int, size: int) -> Buffer | Block:
        """Give the bytes of an input, in memory that its worker can read."""
        region = self._find(name, at, size)
        if size > self._largest:
            raise InvalidInput(f"an input may have {self._largest} bytes, got {size} in shared memory region '{name}'")
        block = self._lend(size)
        if block is None:
            own = bytearray(size)
            region.read(memoryview(own), at)
            return own
        try:
            region.read(block.view[:size], at)
        except BaseException:
            block.release()
            raise
        return block

    def keep(self, data: Buffer) -> Buffer | Block:
        """Put a large input where its worker reads it in place; a small one travels as it is."""
        size = len(data)
        if size <= INLINE or (block := self._lend(size)) is None:
            return data
        block.view[:size] = data
        return block

    def gather(self, pieces: Sequence[Buffer], size: int) -> Buffer | Block:
        """Do the same with an input that comes in pieces."""
        if size <= INLINE or (block := self._lend(size)) is None:
            return b"".join(pieces)
        view, at = block.view, 0
        for piece in pieces:
            end = at + len(piece)
            view[at:end] = piece
            at = end
        return block

    def window(self, name: str, at: int, size: int) -> Window:
        """Give the place for an output."""
        return Window(self._find(name, at, size), at, size)

    def close(self) -> None:
        """Let go of everything."""
        for region in self._regions.values():
            region.let_go()
        self._regions.clear()

    def _find(self, name: str, at: int, size: int) -> Region:
        region = self._regions.get(name)
        if region is None:
            raise NotThere(f"Unable to find shared memory region: '{name}'")
        if at > region.size or (at == region.size and size):
            raise InvalidInput(f"Invalid offset for shared memory region: '{name}'")
        if at + size > region.size:
            raise InvalidInput(f"Invalid offset + byte size for shared memory region: '{name}'")
        return region

    def _open(self, key: Any) -> int:
        """Open an object by its name: one segment, no link, a plain file."""
        if not isinstance(key, str):
            raise InvalidInput(f"'key' of a shared memory region is a string, got {key!r}")
        name = key.lstrip("/")
        if not name or "/" in name or "\0" in name or name in (".", "..") or len(name.encode()) > LONGEST_NAME:
            raise InvalidInput(f"'{key}' names no shared memory object: it is a '/' and one name")
        if name.startswith(RESERVED):
            raise InvalidInput(f"'{key}' is a name that models' own shared memory has")
        try:
            fd = os.open(self._folder / name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except (OSError, ValueError):
            raise ServingError(f"Unable to open shared memory region: '{key}'") from None
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise ServingError(f"Unable to open shared memory region: '{key}'")
        return fd

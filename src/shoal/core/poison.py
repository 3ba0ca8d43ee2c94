"""Poison: the content of requests that took workers down, remembered for a while and refused at once.

Nothing is hashed unless a worker died under one request alone, or an arrival is as large as one that is remembered.
"""

from hashlib import blake2b
from typing import Final, NamedTuple

from shoal.core.request import Request
from shoal.errors import Poisoned
from shoal.payload import Payload

MOST: Final = 1024  # contents remembered; the one that came first is forgotten first
BUFFERS: Final = (bytes, bytearray, memoryview)


class Blame(NamedTuple):
    """What is held against one content."""

    deaths: int
    size: int
    until: float


class Poison:
    """What one model's workers did not survive. `after` deaths make a content refused for `keep` seconds; 0: never."""

    def __init__(self, after: int = 0, keep: float = 600.0) -> None:
        self.after = after
        self.keep = keep
        self.refused = 0
        self.blamed: dict[bytes, Blame] = {}  # by digest, in the order in which they are forgotten
        self._sizes: dict[int, int] = {}  # how many of each size

    def __len__(self) -> int:
        return len(self.blamed)

    def blame(self, digest: bytes, size: int, deaths: int, now: float) -> bool:
        """Hold so many deaths against a content; True when it will be refused from now on."""
        if not self.after:
            return False
        self._forget_old(now)
        if (before := self.blamed.get(digest)) is not None:
            deaths += before.deaths
            self._forget(digest)
        elif len(self.blamed) >= MOST:
            self._forget(next(iter(self.blamed)))
        self.blamed[digest] = Blame(deaths, size, now + self.keep)
        self._sizes[size] = self._sizes.get(size, 0) + 1
        return deaths >= self.after

    def check(self, request: Request, now: float) -> None:
        """Raise Poisoned for a request whose content is known to take workers down."""
        self._forget_old(now)
        if size_of(request.payload) not in self._sizes:
            return
        blame = self.blamed.get(digest_of(request.payload))
        if blame is not None and blame.deaths >= self.after:
            self.refused += 1
            raise Poisoned(
                f"a request with this content took down its worker {blame.deaths} times; it is refused for another "
                f"{blame.until - now:.0f} s"
            )

    def _forget_old(self, now: float) -> None:
        while self.blamed:
            digest = next(iter(self.blamed))
            if self.blamed[digest].until > now:
                return
            self._forget(digest)

    def _forget(self, digest: bytes) -> None:
        size = self.blamed.pop(digest).size
        self._sizes[size] -= 1
        if not self._sizes[size]:
            del self._sizes[size]


def size_of(payload: Payload) -> int:
    """How many bytes a payload's parts have; nothing of them is read."""
    return sum(len(part.data) if isinstance(part.data, BUFFERS) else part.data.size for part in payload.parts)


def digest_of(payload: Payload) -> bytes:
    """Name a payload by its content: the parts, each with its name and type. Headers do not count."""
    digest = blake2b(digest_size=16)
    for part in payload.parts:
        data = part.data if isinstance(part.data, BUFFERS) else part.data.view[: part.data.size]
        digest.update(f"{part.name}\0{part.content_type}\0{len(data)}\0".encode())
        digest.update(data)
    return digest.digest()

"""ResponseCache: answers kept in memory for requests that are asked again, the least recently used let go first.

The key is everything that an answer depends on. Requested outputs and parameters are part of it, so nobody gets the
outputs that another client had asked for.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec

T = TypeVar("T")
OVERHEAD = 256  # bytes that an entry takes besides its answer
Tensor = tuple[str, str, Sequence[int], bytes | bytearray | memoryview]  # name, datatype, shape, contents


def cache_key(
    model: str,
    version: str,
    inputs: Iterable[Tensor],
    outputs: Sequence[str] = (),
    parameters: Mapping[str, Any] | None = None,
) -> bytes:
    """Give the key of a request; the order of its inputs and outputs does not matter, everything else does."""
    tensors = sorted(inputs, key=lambda tensor: tensor[0])
    heads = [(name, datatype, list(shape), len(memoryview(data).cast("B"))) for name, datatype, shape, data in tensors]
    options = sorted((parameters or {}).items())
    hashed = hashlib.blake2b(digest_size=32)
    hashed.update(msgspec.msgpack.encode((model, version, heads, sorted(set(outputs)), options)))
    for *_, data in tensors:
        hashed.update(data)
    return hashed.digest()


class ResponseCache(Generic[T]):
    """Answers by key, within `size` bytes."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.used = 0
        self.hits = 0
        self.misses = 0
        self.evictions = 0
        self.looked_up = 0.0  # s spent on that
        self.inserted = 0.0
        self._entries: OrderedDict[bytes, tuple[T, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: bytes) -> T | None:
        """Find an answer, and keep it for longer; None: nobody asked this before, or it was let go."""
        found = self._entries.get(key)
        if found is None:
            self.misses += 1
            return None
        self.hits += 1
        self._entries.move_to_end(key)
        return found[0]

    def fits(self, size: int) -> bool:
        """Say whether an answer of this many bytes could be kept."""
        return size + OVERHEAD <= self.size

    def put(self, key: bytes, answer: T, size: int) -> bool:
        """Keep an answer of this many bytes; False: it is larger than the whole cache. The first to come stays."""
        if not self.fits(size):
            return False
        size += OVERHEAD
        if key in self._entries:
            self._entries.move_to_end(key)
            return True
        self._entries[key] = (answer, size)
        self.used += size
        while self.used > self.size:
            _, (_, freed) = self._entries.popitem(last=False)
            self.used -= freed
            self.evictions += 1
        return True

    def clear(self) -> None:
        """Let everything go."""
        self._entries.clear()
        self.used = 0

    def gauges(self) -> list[tuple[str, str, float]]:
        """Give what can be said of the whole cache: name, words, value."""
        looked_up, inserted = round(1e6 * self.looked_up), round(1e6 * self.inserted)
        return [
            ("nv_cache_util", "Cache utilization [0.0 - 1.0]", self.used / self.size),
            ("nv_cache_num_entries", "Number of responses stored in response cache", len(self)),
            ("nv_cache_num_hits", "Number of cache hits in response cache", self.hits),
            ("nv_cache_num_misses", "Number of cache misses in response cache", self.misses),
            ("nv_cache_num_lookups", "Number of cache lookups in response cache", self.hits + self.misses),
            ("nv_cache_num_evictions", "Number of cache evictions in response cache", self.evictions),
            ("nv_cache_lookup_duration", "Total cache lookup duration (hit and miss), in microseconds", looked_up),
            ("nv_cache_insertion_duration", "Total cache insertion duration, in microseconds", inserted),
        ]

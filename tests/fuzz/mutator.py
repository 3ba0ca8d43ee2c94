"""Mutator: makes inputs out of a few good ones, by small changes, by words of the format, and by crossing two."""

import re
from collections.abc import Sequence
from random import Random

BYTES = (0x00, 0x01, 0x09, 0x0A, 0x0D, 0x20, 0x7F, 0x80, 0xFE, 0xFF)
NUMBERS = (b"0", b"1", b"-1", b"255", b"256", b"65536", b"2147483647", b"4294967296", b"9223372036854775808", b"1e309")
LARGEST = 64 * 1024  # bytes of an input
LONGEST = 1024  # bytes of one that is gone on from
_number = re.compile(rb"\d+")


class Mutator:
    """Inputs from seeds; what was found worth keeping becomes a seed too."""

    def __init__(self, random: Random, seeds: Sequence[bytes], words: Sequence[bytes], most: int = 400) -> None:
        self._random = random
        self._given = len(seeds)
        self._seeds = list(seeds)
        self._words = words
        self._most = most

    def keep(self, data: bytes) -> None:
        """Go on from this one too; an earlier one that was found makes room."""
        if len(data) > LONGEST:
            return
        if len(self._seeds) < self._most:
            self._seeds.append(data)
        else:
            self._seeds[self._random.randrange(self._given, self._most)] = data

    def make(self) -> bytes:
        """Give the next input."""
        random = self._random
        data = bytearray(random.choice(self._seeds))
        for _ in range(1 + min(int(random.expovariate(0.6)), 12)):
            self._change(data)
        return bytes(data[:LARGEST])

    def _change(self, data: bytearray) -> None:
        random = self._random
        at = random.randrange(len(data) + 1)
        match random.randrange(10):
            case 0 if at < len(data):
                data[at] ^= 1 << random.randrange(8)
            case 1 if at < len(data):
                data[at] = random.choice(BYTES)
            case 2:
                data[at:at] = random.randbytes(random.randint(1, 4))
            case 3:
                del data[at : at + random.choice((1, 1, 2, 4, 16))]
            case 4 | 5 if self._words:
                data[at : at + random.choice((0, 0, 1, 4))] = random.choice(self._words)
            case 6:
                piece = data[at : at + random.choice((1, 2, 8, 32))]
                data[at:at] = piece * random.choice((1, 1, 2, 5, 50))
            case 7:
                other = random.choice(self._seeds)
                begin = random.randrange(len(other) + 1)
                data[at:] = other[begin:]
            case 8:
                found = _number.search(data, at)
                if found is not None:
                    data[found.start() : found.end()] = random.choice(NUMBERS)
            case _:
                other = random.choice(self._seeds)
                begin = random.randrange(len(other) + 1)
                data[at:at] = other[begin : begin + random.choice((4, 16, 64))]

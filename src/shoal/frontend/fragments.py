"""Fragments: a large message in the pieces it came in, for whoever copies it elsewhere and need not have it joined."""

from bisect import bisect_right
from itertools import accumulate


class Fragments:
    """One message. Its pieces are not changed while somebody has it."""

    __slots__ = ("_parts", "_starts")

    def __init__(self, parts: list[bytes | memoryview]) -> None:
        self._parts = parts
        self._starts = [0, *accumulate(map(len, parts))]  # of each piece, and where the last ends

    def __len__(self) -> int:
        return self._starts[-1]

    def startswith(self, text: bytes, at: int) -> bool:
        """Whether this text stands there."""
        return b"".join(self.cut(at, at + len(text))) == text

    def cut(self, start: int, end: int) -> list[memoryview]:
        """Give the bytes between two places, in pieces."""
        found: list[memoryview] = []
        index = bisect_right(self._starts, start) - 1
        while start < end and index < len(self._parts):
            here = self._starts[index]
            piece = memoryview(self._parts[index])[start - here : end - here]
            found.append(piece)
            start += len(piece)
            index += 1
        return found

    def joined(self) -> bytes:
        """Give it in one piece."""
        return b"".join(self._parts)

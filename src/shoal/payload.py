"""What a request carries and what comes back, as the protocols and the workers see it; the core never looks inside.

A payload is made at the edge, travels through the core untouched, and is read again in the worker. Large data lives in
a block of shared memory that was lent to the request and is given back by `release`.
"""

from collections.abc import Sequence
from typing import Protocol

Buffer = bytes | bytearray | memoryview
Headers = Sequence[tuple[bytes, bytes]]


def total(buffers: Sequence[Buffer]) -> int:
    """Give the bytes of all of them; for few, where to find `sum` and `map` takes longer than to count."""
    size = 0
    for buffer in buffers:
        size += len(buffer)
    return size


class Block(Protocol):
    """A piece of lent shared memory."""

    offset: int
    size: int

    @property
    def view(self) -> memoryview:
        """The bytes themselves."""
        ...

    def release(self) -> None:
        """Give it back; calling it again does nothing."""
        ...


class Part:
    """One named value of a request: the whole body, or one field of a form."""

    __slots__ = ("content_type", "data", "name")

    def __init__(self, name: str, content_type: str, data: Buffer | Block) -> None:
        self.name = name
        self.content_type = content_type
        self.data = data


class Payload:
    """The headers and parts of one request."""

    __slots__ = ("headers", "parts")

    def __init__(self, parts: Sequence[Part], headers: Headers = ()) -> None:
        self.parts = parts
        self.headers = headers

    def release(self) -> None:
        """Give lent memory back. Whoever ends the request calls it once no worker can read it any more."""
        for part in self.parts:
            if not isinstance(part.data, (bytes, bytearray, memoryview)):  # a tuple is twice as fast as a union
                part.data.release()


class Result:
    """One piece of an answer: bytes ready to send, and what the handler said about them."""

    __slots__ = ("body", "content_type", "headers", "reason", "status")

    def __init__(
        self,
        body: Buffer,
        content_type: str = "",
        status: int = 200,
        headers: Sequence[tuple[str, str]] = (),
        reason: str = "",
    ) -> None:
        self.body = body
        self.content_type = content_type
        self.status = status
        self.headers = headers
        self.reason = reason

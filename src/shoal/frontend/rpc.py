"""Remote calls as services see them: messages of bytes in, messages of bytes out, a status at the end.

A transport makes a Call for each request it has read the head of and hands it to the service registered for its
method. Nothing here knows HTTP/2; nothing in a service knows a socket. Everything happens on the event loop by
callbacks: no task, no future.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Protocol

from shoal.frontend.client import Client
from shoal.frontend.fragments import Fragments
from shoal.payload import Buffer


class Code(IntEnum):
    """The status codes of gRPC."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class Call(Protocol):
    """One call. The service sets `on_message`, `on_end` and `on_gone` before it returns from being called."""

    method: str  # /package.Service/Method
    metadata: Sequence[tuple[bytes, bytes]]  # the client's, names in lower case, without the protocol's own
    timeout: float  # seconds the client gives it, counted from its arrival; infinity when it said nothing
    peer: str
    client: Client  # the connection
    on_message: Callable[[bytes], None]  # hears each message of the client,
    on_pieces: Callable[[Fragments], None] | None  # unless it is large and came in several, and the service wants it so
    on_end: Callable[[], None]  # hears that the client will send no more
    on_gone: Callable[[], None]  # hears that nobody waits any more: cancelled, reset, past its deadline, disconnected

    @property
    def writable(self) -> bool:
        """Whether more may be sent now; False while the client reads too slowly, and once the call is over."""
        ...

    def send(self, message: bytes, *more: Buffer) -> None:
        """Send one message, which may come in several pieces; nothing once the call is over."""
        ...

    def finish(self, code: Code = Code.OK, message: str = "", trailers: Sequence[tuple[bytes, bytes]] = ()) -> None:
        """End the call; nothing if it is over."""
        ...


Service = Callable[[Call], None]
Services = Mapping[str, Service]  # by method

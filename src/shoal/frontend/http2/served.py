"""A call as its service has it, whichever process speaks with the client: what was asked, and who hears what."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from shoal.frontend.client import Client
from shoal.frontend.fragments import Fragments
from shoal.frontend.http2.hpack import Field
from shoal.frontend.rpc import Code

FAILED: Final = "the server failed on this call; its log says why"

log = logging.getLogger("shoal.http2")


class Asked(Protocol):
    """What the head of a call says."""

    @property
    def method(self) -> str:
        """/package.Service/Method."""
        ...

    @property
    def metadata(self) -> Sequence[Field]:
        """The client's own fields."""
        ...

    @property
    def timeout(self) -> float:
        """Seconds the client gives it."""
        ...


class ServedCall(ABC):
    """The half of `rpc.Call` that does not depend on the way to the client."""

    __slots__ = (
        *("client", "is_over", "metadata", "method", "on_drained", "on_end", "on_gone", "on_message", "on_pieces"),
        *("peer", "timeout"),
    )

    def __init__(self, head: Asked, client: Client, peer: str) -> None:
        self.method = head.method
        self.metadata = head.metadata
        self.timeout = head.timeout
        self.client = client
        self.peer = peer
        self.is_over = False
        self.on_message: Callable[[bytes], None] = _ignore
        self.on_pieces: Callable[[Fragments], None] | None = None
        self.on_end: Callable[[], None] = _nothing
        self.on_gone: Callable[[], None] = _nothing
        self.on_drained: Callable[[], None] = _nothing

    @abstractmethod
    def finish(self, code: Code = Code.OK, message: str = "", trailers: Sequence[Field] = ()) -> None:
        """End the call; nothing if it is over."""

    def fail(self, code: Code, message: str) -> None:
        """End the call by the transport's own decision, and tell the service."""
        if self.is_over:
            return
        on_gone = self.on_gone
        self.finish(code, message)
        run(on_gone)

    def crash(self) -> None:
        """The service raised."""
        log.exception("the service failed on %s", self.method)
        self.fail(Code.UNKNOWN, FAILED)

    def deafen(self) -> None:
        """It is over, and its service hears no more of it."""
        self.is_over = True
        self.on_message = _ignore
        self.on_pieces = None
        self.on_end = self.on_gone = self.on_drained = _nothing


def run(callback: Callable[[], None]) -> None:
    """Tell a service; what it raises is its own."""
    try:
        callback()
    except Exception:
        log.exception("a callback of a service failed")


def _ignore(message: bytes) -> None:
    pass


def _nothing() -> None:
    pass

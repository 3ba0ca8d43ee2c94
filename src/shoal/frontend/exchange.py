"""One HTTP request and the place for its answer.

An exchange is filled by the connection that parsed it, handed to the application once, and answered through `respond`
or through `start`, `write`, `end`. What bytes an answer becomes is decided here; when the socket takes them, and
whether it stays open, is the connection's business (`http.py`).
"""

import re
from collections.abc import Callable, Iterable, Sequence
from http import HTTPStatus
from typing import Final, Protocol

from shoal.core.batch import Made
from shoal.frontend.client import Client
from shoal.payload import Block, Buffer, total

JOINED: Final = 32 * 1024  # a body up to this size travels in one piece with its head: a copy is cheaper than a vector
STATUS_LINES: Final = {s.value: f"HTTP/1.1 {s.value} {s.phrase}\r\n".encode() for s in HTTPStatus}
BARE_LINES: Final = {s.value: f"HTTP/1.1 {s.value} \r\n".encode() for s in HTTPStatus}  # without a phrase
SMALL: Final = 2048  # a body below this size has its length line ready, and may leave with other answers
LENGTHS: Final = tuple(b"Content-Length: %d\r\n\r\n" % n for n in range(SMALL))
BODILESS: Final = frozenset({*range(100, 200), 204, 304})

_WAITING: Final = 0
_STREAMING: Final = 1
_DONE: Final = 2
_CONTROLS: Final = bytes(0x20 if c < 0x20 or c == 0x7F else c for c in range(256))  # a translation: controls to blanks
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def header_line(name: str, value: str) -> bytes:
    """One header line for `head`; CR, LF, NUL and other controls in the value become blanks, a bad name is refused."""
    if not _TOKEN.fullmatch(name):
        raise ValueError(f"{name!r} is no header name: letters, digits and !#$%&'*+.^_`|~- are allowed")
    return b"%b: %b\r\n" % (name.encode(), value.encode("latin-1", "replace").translate(_CONTROLS).strip())


class Shared(Protocol):
    """What all connections of a listener share: the `Date` line, and how many answers of each class there were."""

    date: bytes
    answers: list[int]  # by the first digit of their status


class Link(Protocol):
    """What an exchange needs of its connection."""

    @property
    def hub(self) -> Shared:
        """What it shares with others."""
        ...

    @property
    def blocked(self) -> bool:
        """Whether the client reads too slowly for more."""
        ...

    def send(self, data: bytes, /) -> None:
        """Send bytes of the answer."""
        ...

    def send_all(self, parts: Iterable[Buffer], /) -> None:
        """Send several pieces of it."""
        ...

    def answered(self, keep: bool) -> None:
        """The answer is complete; the connection waits for the next request or closes."""
        ...

    def abort(self) -> None:
        """Cut the connection."""
        ...


class Exchange:
    """One request, complete, and the way back to its client.

    A `Block` in `body` belongs to the application, which releases it. After the client has left, answering does
    nothing; answering twice is a mistake of the caller and raises `RuntimeError`.
    """

    __slots__ = (
        "_chunked",
        "_is_head",
        "_keep",
        "_link",
        "_made",
        "_old",
        "_state",
        "body",
        "client",
        "close_after",
        "content_type",
        "headers",
        "method",
        "on_drained",
        "on_gone",
        "on_head",
        "peer",
        "request_id",
        "target",
        "timeout",
    )

    def __init__(self, link: Link, client: Client, peer: str, target: bytes) -> None:
        self._link: Link | None = link
        self._state = _WAITING
        self._keep = True  # the client would take another answer on this connection
        self._old = False  # the client speaks HTTP/1.0
        self._is_head = False
        self._chunked = False
        self._made = b""  # the answer, whole, until it leaves with others
        self.method = ""
        self.target = target
        self.headers: list[tuple[bytes, bytes]] = []
        self.content_type = b""
        self.request_id = b""
        self.timeout = b""  # of x-request-timeout-ms
        self.body: bytes | Block = b""
        self.client = client
        self.peer = peer
        self.on_gone: Callable[[], None] | None = None
        self.on_drained: Callable[[], None] | None = None
        self.on_head: Callable[[Exchange, int], None] | None = None  # hears the status when the answer begins
        self.close_after = False

    @property
    def path(self) -> bytes:
        """The target up to its query; an absolute-form target loses its scheme and host."""
        return self._split()[0]

    @property
    def query(self) -> bytes:
        """What follows the first `?` of the target."""
        return self._split()[2]

    @property
    def writable(self) -> bool:
        """Whether more may be streamed now; False while the client reads too slowly, and once it left."""
        return self._link is not None and not self._link.blocked

    @property
    def is_answered(self) -> bool:
        """Whether an answer was begun."""
        return self._state != _WAITING

    @property
    def is_streaming(self) -> bool:
        """Whether an answer was begun that its client still waits for the end of."""
        return self._state == _STREAMING and self._link is not None

    def header(self, lower_name: bytes) -> bytes | None:
        """The first value of a header, looked up by its lower-case name."""
        for name, value in self.headers:
            if name.lower() == lower_name:
                return value.strip()
        return None

    def drop_body(self) -> None:
        """Give back the memory of a body that nobody will read."""
        if not isinstance(self.body, bytes):
            self.body.release()
            self.body = b""

    def respond(
        self,
        status: int,
        body: Buffer = b"",
        head: bytes = b"",
        reason: bytes | None = b"",
        together: list[Made] | None = None,
    ) -> None:
        """Send the whole answer; a small one joins those that are sent `together`, if there are any.

        `head` is ready header lines, each ending in CRLF (see `header_line`); the length, date and connection lines
        are added. `reason` is the phrase after the status: the usual one where it is empty, none at all for None. A
        large `bytes` body is sent without a copy; a view is copied, so its memory is free on return.
        """
        link = self._link
        if link is None:
            return
        if self._state:
            raise RuntimeError("this exchange is already answered")
        size = len(body) if body.__class__ is not memoryview else body.nbytes
        keep = self._keep and not self.close_after
        top = self._top(status, reason, head, keep)
        self._state = _DONE
        if status in BODILESS:
            link.send(top + (b"\r\n" if status != 304 else _length(size)))
        elif self._is_head:
            link.send(top + _length(size))
        elif size < SMALL:
            made = b"".join((top, LENGTHS[size], body))
            if together is not None:
                self._made, self._keep = made, keep
                together.append(self)
                return
            link.send(made)
        elif size <= JOINED or body.__class__ is not bytes:
            link.send(b"".join((top, _length(size), body)))
        else:
            link.send_all((top + _length(size), body))
        link.answered(keep)

    def leave(self) -> None:
        """Send the answer that was made to be sent with others; nothing if the client has left since."""
        link = self._link
        if link is not None:
            link.send(self._made)
            link.answered(self._keep)

    def respond_parts(
        self,
        status: int,
        parts: Sequence[Buffer],
        head: bytes = b"",
        reason: bytes | None = b"",
        together: list[Made] | None = None,
    ) -> None:
        """Send the whole answer in its parts. Large ones are not copied: what they look at stays as it is meanwhile."""
        link = self._link
        size = total(parts)
        if link is None or size <= JOINED or self._is_head or status in BODILESS or self._state:
            self.respond(status, b"".join(parts), head, reason, together)
            return
        keep = self._keep and not self.close_after
        self._state = _DONE
        link.send_all((self._top(status, reason, head, keep) + _length(size), *parts))
        link.answered(keep)

    def start(self, status: int, head: bytes = b"", reason: bytes | None = b"") -> None:
        """Begin an answer whose length is not known yet."""
        link = self._link
        if link is None:
            return
        if self._state:
            raise RuntimeError("this exchange is already answered")
        bodiless = status in BODILESS
        self._keep = self._keep and not self.close_after and (bodiless or self._is_head or not self._old)
        top = self._top(status, reason, head, self._keep)
        self._state = _STREAMING
        self._chunked = not self._old and not bodiless
        self._is_head = self._is_head or bodiless  # from here on: whether what is written is dropped
        link.send(top + (b"Transfer-Encoding: chunked\r\n\r\n" if self._chunked else b"\r\n"))

    def write(self, data: Buffer) -> None:
        """Send one piece of a started answer; an empty piece is nothing."""
        link = self._link
        if link is None:
            return
        if self._state != _STREAMING:
            raise RuntimeError("write needs a started answer that has not ended")
        size = len(data) if data.__class__ is not memoryview else data.nbytes
        if size and not self._is_head:
            link.send(b"".join((b"%x\r\n" % size, data, b"\r\n")) if self._chunked else bytes(data))

    def end(self) -> None:
        """Complete a started answer."""
        link = self._link
        if link is None:
            return
        if self._state != _STREAMING:
            raise RuntimeError("end needs a started answer that has not ended")
        self._state = _DONE
        if self._chunked and not self._is_head:
            link.send(b"0\r\n\r\n")
        link.answered(self._keep and not self.close_after)

    def forward(self, data: bytes) -> None:
        """Send bytes of an answer that was made elsewhere."""
        if self._link is not None:
            self._state = _STREAMING
            self._link.send(data)

    def forward_last(self, data: bytes, keep: bool) -> None:
        """Send the last bytes of an answer that was made elsewhere, and whether it leaves the connection open."""
        link = self._link
        if link is not None:
            self._state = _DONE
            if data:
                link.send(data)
            link.answered(keep and self._keep)

    def abort(self) -> None:
        """Cut the connection: the only way to tell a client that a started answer will not be completed."""
        link, self._link = self._link, None
        self.on_gone = None
        if link is not None:
            link.abort()

    def _top(self, status: int, reason: bytes | None, head: bytes, keep: bool) -> bytes:
        """Everything above the framing lines. Checks `head`, so that a missing CRLF cannot merge it with ours."""
        # `in` would raise and catch an exception for every answer, to see that this is no number
        if head and (head[-2:] != b"\r\n" or head.find(b"\r\n\r\n") >= 0):
            raise ValueError("head is header lines, each ending in CRLF, without an empty one: use header_line")
        assert self._link is not None
        line = STATUS_LINES.get(status) if reason is not None else BARE_LINES.get(status)
        if line is None or reason:
            line = b"HTTP/1.1 %d %b\r\n" % (status, (reason or b"").translate(_CONTROLS))
        if self.on_head is not None:
            self.on_head(self, status)
        hub = self._link.hub
        hub.answers[status // 100] += 1
        if keep and not self._old:
            return line + hub.date + head
        return line + hub.date + head + (b"Connection: keep-alive\r\n" if keep else b"Connection: close\r\n")

    def _split(self) -> tuple[bytes, bytes, bytes]:
        target = self.target
        if target[:1] not in b"/*":
            _, _, rest = target.partition(b"://")
            authority = re.match(rb"[^/?]*", rest)
            target = rest[authority.end() :] if authority else rest
            target = target if target[:1] == b"/" else b"/" + target
        path, mark, query = target.partition(b"?")
        return path, mark, query


def _length(size: int) -> bytes:
    return b"Content-Length: %d\r\n\r\n" % size

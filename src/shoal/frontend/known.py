"""Known: a head that was parsed and judged before, and those that the connections of a listener share."""

from typing import Final

from shoal.frontend.exchange import Exchange

LENGTH: Final = b"\r\ncontent-length: "
MOST_DIGITS: Final = 18
LONGEST: Final = 2048  # bytes of a head that is remembered
MOST_SHARED: Final = 256
BLANK_LINE: Final = b"\r\n\r\n"
PRIVATE: Final = frozenset({b"authorization", b"proxy-authorization", b"cookie"})  # outlives no connection


class Known:
    """A head that was parsed and judged before, byte for byte: what follows from it need not be found out again.

    A client sends the same head over and over, up to the length of its body. Only plain requests are remembered:
    HTTP/1.1, a body of known length or none, nothing said about the connection but that it is kept, no expectation.
    """

    __slots__ = (
        "_after",
        "_at",
        "_before",
        "_place",
        "content_type",
        "head",
        "headers",
        "is_shared",
        "length",
        "method",
        "request_id",
        "size",
        "target",
        "timeout",
    )

    def __init__(self, head: bytes, length: int, exchange: Exchange) -> None:
        self.head = head
        self.size = len(head)
        self.length = length
        self.method = exchange.method
        self.target = exchange.target
        self.headers = exchange.headers
        self.content_type = exchange.content_type
        self.request_id = exchange.request_id
        self.timeout = exchange.timeout
        at = head.lower().find(LENGTH)
        self._at = at + len(LENGTH) if at >= 0 else 0  # where the digits of the length are
        self._before = head[: self._at]
        self._after = head[head.find(b"\r", self._at) :]
        names = [name.lower() for name, _ in self.headers]
        self._place = names.index(b"content-length") if at >= 0 else 0  # and the header that says it
        self.is_shared = False

    @property
    def may_be_shared(self) -> bool:
        """Whether others may send the same, and nobody's secret is in it; one with an id of its own comes once."""
        return not self.request_id and PRIVATE.isdisjoint([name.lower() for name, _ in self.headers])

    def leads(self, raw: bytes | bytearray, start: int, size: int) -> bool:
        """Whether this head is there, whole; where one's own differs in its length alone, that is the known one now."""
        if start + self.size <= size and raw.startswith(self.head, start):
            return True
        return self._at > 0 and not self.is_shared and start + self._at < size and self._follow(raw, start, size)

    def _follow(self, raw: bytes | bytearray, start: int, size: int) -> bool:
        first = start + self._at
        last = raw.find(b"\r", first, min(size, first + MOST_DIGITS))
        if last < 0 or last + len(self._after) > size:
            return False
        if not (raw.startswith(self._before, start) and raw.startswith(self._after, last)):
            return False
        digits = bytes(raw[first:last])
        if not digits.isdigit() or digits[0] == 48:  # a zero in front is for the parser to judge
            return False
        self.head = self._before + digits + self._after
        self.size = len(self.head)
        self.length = int(digits)
        headers = list(self.headers)
        headers[self._place] = (headers[self._place][0], digits)
        self.headers = headers
        return True


class Heads:
    """The first heads of connections: what many clients send alike is kept once, near, and judged once."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[bytes, Known] = {}

    def __len__(self) -> int:
        return len(self._known)

    def at(self, raw: bytes | bytearray, start: int, size: int) -> Known | None:
        """Give the known head that is there, whole."""
        if not self._known:
            return None
        end = raw.find(BLANK_LINE, start, min(size, start + LONGEST))
        return self._known.get(bytes(raw[start : end + len(BLANK_LINE)])) if end >= 0 else None

    def share(self, known: Known) -> Known:
        """Let other connections have this one too, if they may; it stays as it is from now on."""
        if known.may_be_shared:
            if len(self._known) >= MOST_SHARED:
                self._known.clear()
            known.is_shared = True
            self._known[known.head] = known
        return known

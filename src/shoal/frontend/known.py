"""Known: a head that was parsed and judged before."""

from shoal.frontend.exchange import Exchange


class Known:
    """A head that was parsed and judged before, byte for byte: what follows from it need not be found out again.

    Clients with bodies of one size send the same head over and over. Only plain requests are remembered: HTTP/1.1, a
    small body of known length or none, nothing said about the connection, no expectation.
    """

    __slots__ = ("content_type", "head", "headers", "length", "method", "request_id", "size", "target", "timeout")

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

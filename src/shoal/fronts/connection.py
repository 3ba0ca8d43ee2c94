"""The core's end of an HTTP connection that a front process has: its exchanges are answered through frames."""

from collections.abc import Iterable

from shoal.errors import ProtocolError
from shoal.frontend.client import Client
from shoal.frontend.exchange import Exchange
from shoal.frontend.http import Application
from shoal.frontend.hub import Hub
from shoal.frontend.refusals import answer_for_defect, tell
from shoal.fronts.channel import Channel
from shoal.fronts.frames import ABORT, DATA, WHOLE, WHOLE_LAST, WINDOW
from shoal.fronts.messages import RequestHead
from shoal.payload import Block, Buffer


class RemoteConnection:
    """One connection, from its first request on; a `Link` to its exchanges."""

    __slots__ = ("_app", "_channel", "_client", "_exchange", "_head", "_key", "_under_way", "hub")

    def __init__(self, app: Application, hub: Hub, channel: Channel, key: int, client: Client) -> None:
        self._app = app
        self.hub = hub
        self._channel = channel
        self._key = key
        self._client = client
        self._head: RequestHead | None = None
        self._exchange: Exchange | None = None
        self._under_way = 0  # bytes of an answer that the client has not taken

    # The front process's side

    def learn(self, head: RequestHead) -> None:
        """Note the head of the requests to come."""
        self._head = head

    def ask(self, body: bytes | Block, *, keep: bool) -> None:
        """Hand a request to the application."""
        head = self._head
        if head is None or self._exchange is not None:
            raise ProtocolError("a request came without a head, or before the answer to the last")
        exchange = self._exchange = Exchange(self, self._client, head.peer, head.target)
        exchange.method = head.method
        exchange.headers = head.headers
        exchange.content_type = head.content_type
        exchange.request_id = head.request_id
        exchange.timeout = head.timeout
        exchange.body = body
        exchange._keep = keep
        if head.is_old or head.is_head:
            exchange._old = head.is_old
            exchange._is_head = head.is_head
        try:
            self._app(exchange)
        except Exception:
            answer_for_defect(exchange, exchange.abort)

    def taken(self, size: int) -> None:
        """The client took so many bytes."""
        was_blocked = self.blocked
        self._under_way = max(0, self._under_way - size)
        if was_blocked:
            self.drained()

    def drained(self) -> None:
        """Somebody caught up: tell the application where more may be streamed now."""
        if self._exchange is not None and not self.blocked:
            tell(self._exchange.on_drained)

    def finish(self) -> None:
        """The connection is not kept after the answer that is due."""
        if self._exchange is not None:
            self._exchange._keep = False

    def lost(self) -> None:
        """The client is gone; so is whatever it asked for."""
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange._link = None
            on_gone, exchange.on_gone, exchange.on_drained = exchange.on_gone, None, None
            tell(on_gone)

    # The exchange's side

    @property
    def blocked(self) -> bool:
        """Whether the client, or the process that has it, is behind."""
        return self._under_way > WINDOW or self._channel.blocked

    def send(self, data: bytes) -> None:
        """Send bytes of the answer."""
        self._under_way += len(data)
        self._channel.put(DATA, self._key, data)

    def send_all(self, parts: Iterable[Buffer]) -> None:
        """Send several pieces."""
        parts = tuple(parts)
        self._under_way += sum(map(len, parts))
        self._channel.put(DATA, self._key, *parts)

    def answered(self, keep: bool) -> None:
        """The answer is complete."""
        self._exchange = None
        self._under_way = 0
        self._channel.end(self._key, DATA, WHOLE if keep else WHOLE_LAST)

    def abort(self) -> None:
        """Cut the connection."""
        self._exchange = None
        self._channel.put(ABORT, self._key)

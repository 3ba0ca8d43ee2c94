"""Relay: what a front process has in the place of an application: requests go to the core, answers come back."""

from functools import partial
from struct import Struct
from typing import Final

from shoal.frontend.client import Client
from shoal.frontend.exchange import Exchange
from shoal.frontend.http2.connection import Http2Connection
from shoal.frontend.hub import Connection, Hub
from shoal.fronts import frames
from shoal.fronts.channel import Channel
from shoal.fronts.frames import BODY, HEAD, LAST, LAST_LENT, LENT, STEP, pack_count
from shoal.fronts.messages import Field, RequestHead, encode
from shoal.payload import Block

_place_of_block: Final = Struct("<QQ").pack  # offset and size


class Relay:
    """The requests that are with the core, by the number of their connection: each has one at a time."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._waiting: dict[int, Exchange] = {}
        self._heads: dict[int, list[Field]] = {}  # of connections that the core knows: what it was told last
        self._passed: dict[int, int] = {}  # bytes of streamed answers that the core was not told of
        self._lent: dict[int, Block] = {}  # by their offsets

    @property
    def is_blocked(self) -> bool:
        """Whether the core is behind."""
        return self._channel.blocked

    # The connections' side

    def ask(self, place: int, exchange: Exchange) -> None:
        """Hand a request to the core; a head that is the last one again is not told again."""
        key = exchange.client
        put = self._channel.put
        if self._heads.get(key) is not exchange.headers:
            self._heads[key] = exchange.headers
            put(HEAD, key, encode(_head(place, exchange)))
        self._waiting[key] = exchange
        body = exchange.body
        if body.__class__ is bytes:
            put(BODY if exchange._keep else LAST, key, body)
            return
        assert not isinstance(body, bytes)
        self._lent[body.offset] = body
        put(LENT if exchange._keep else LAST_LENT, key, _place_of_block(body.offset, body.size))

    def meet(self, key: int) -> None:
        """The core knows this connection by a call."""
        self._heads.setdefault(key, [])

    def left(self, key: int) -> None:
        """A connection is gone."""
        self._waiting.pop(key, None)
        self._passed.pop(key, None)
        if self._heads.pop(key, None) is not None:
            self._channel.put(frames.LEFT, key)

    # The core's side

    def data(self, key: int, data: bytes) -> None:
        """Pass on a piece of an answer, and tell the core of it when the client can take more."""
        exchange = self._waiting.get(key)
        if exchange is None:
            return
        if key not in self._passed:
            exchange.on_drained = partial(self._tell, key)
        passed = self._passed[key] = self._passed.get(key, 0) + len(data)
        exchange.forward(data)
        if passed >= STEP and exchange.writable:
            self._tell(key)

    def _tell(self, key: int) -> None:
        if passed := self._passed.get(key):
            self._passed[key] = 0
            self._channel.put(frames.TAKEN, key, pack_count(passed))

    def whole(self, key: int, data: bytes, *, keep: bool) -> None:
        """Pass on the end of an answer."""
        if exchange := self._waiting.pop(key, None):
            if self._passed:
                self._passed.pop(key, None)
            exchange.forward_last(data, keep)

    def abort(self, key: int) -> None:
        """Cut a connection."""
        if exchange := self._waiting.pop(key, None):
            exchange.abort()

    def release(self, offset: int) -> None:
        """A block is free again."""
        self._lent.pop(offset).release()


class RelayHub(Hub):
    """The connections of one listener; the relay hears of those that leave."""

    def __init__(self, relay: Relay) -> None:
        super().__init__()
        self._relay = relay
        self._clients: dict[Connection, Client] = {}

    def join(self, connection: Connection, peername: object = None) -> Client:
        """Take a connection in."""
        client = self._clients[connection] = super().join(connection, peername)
        if self._relay.is_blocked and isinstance(connection, Http2Connection):
            connection.hold(True)
        return client

    def leave(self, connection: Connection) -> None:
        """Forget a connection that is lost."""
        super().leave(connection)
        client = self._clients.pop(connection, None)
        if client is not None:
            self._relay.left(client)


def _head(place: int, exchange: Exchange) -> RequestHead:
    return RequestHead(
        place,
        exchange.peer,
        getattr(exchange.client, "address", ""),
        exchange.method,
        exchange.target,
        exchange.headers,
        exchange.content_type,
        exchange.request_id,
        exchange.timeout,
        exchange._old,
        exchange._is_head,
    )

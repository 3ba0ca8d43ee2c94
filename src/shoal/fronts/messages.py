"""What the core and its front processes tell each other beside bodies and answers. Both come from one install."""

import msgspec

from shoal.config.server import ServerConfig
from shoal.frontend.http2.limits import Http2Limits
from shoal.frontend.hub import HttpLimits

Field = tuple[bytes, bytes]


class Told(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """What all messages share: fields by position, nothing unknown."""


class HttpPlace(Told, frozen=True, tag="http"):
    """A listener of HTTP: its sockets, already bound, as descriptors."""

    sockets: list[int]
    limits: HttpLimits
    is_tls: bool


class CallPlace(Told, frozen=True, tag="calls"):
    """A listener of gRPC, and the methods that the core has services for."""

    sockets: list[int]
    limits: Http2Limits
    is_tls: bool
    methods: list[str]


class Setup(Told, frozen=True):
    """The first words of the core: all that a front process must know."""

    config: ServerConfig
    places: list[HttpPlace | CallPlace]
    body_memory: int
    memory: tuple[int, int, int, int] | None  # descriptor, limit, parts, and which of them it lends from


class RequestHead(Told, frozen=True):
    """Everything of a request but its body."""

    place: int
    peer: str
    address: str  # the host it comes from; empty where it has none
    method: str
    target: bytes
    headers: list[Field]
    content_type: bytes
    request_id: bytes
    timeout: bytes
    is_old: bool
    is_head: bool


class CallHead(Told, frozen=True):
    """Everything of a call but its messages."""

    place: int
    client: int
    peer: str
    address: str
    method: str
    metadata: tuple[Field, ...]
    timeout: float


class Finish(Told, frozen=True):
    """The status of a call."""

    code: int
    message: str
    trailers: list[Field]


class Stats(Told, frozen=True):
    """What a front process counted: of answers of its own, what is new; of memory, what is taken now."""

    answers: list[list[int]]  # by place, by the first digit of their status
    lent: int
    bodies: int
    bodies_refused: int  # new ones


encode = msgspec.msgpack.Encoder().encode
decode_setup = msgspec.msgpack.Decoder(Setup).decode
decode_request = msgspec.msgpack.Decoder(RequestHead).decode
decode_call = msgspec.msgpack.Decoder(CallHead).decode
decode_finish = msgspec.msgpack.Decoder(Finish).decode
decode_timeout = msgspec.msgpack.Decoder(float).decode
decode_stats = msgspec.msgpack.Decoder(Stats).decode

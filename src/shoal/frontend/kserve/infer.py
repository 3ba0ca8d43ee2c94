"""Where inference over HTTP begins: the framing of a body, its unpacking, and the call that takes it to its model."""

import asyncio
import math
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from shoal.core.request import Request
from shoal.errors import InvalidInput, ServingError
from shoal.frontend.exchange import Exchange
from shoal.frontend.kserve.access import OPEN, Access
from shoal.frontend.kserve.asked import Asked
from shoal.frontend.kserve.calls import Call, GenerateCall, InferCall, StreamCall, refuse
from shoal.frontend.kserve.desk import Desk
from shoal.frontend.kserve.encodings import choose, read_encoding, unpack
from shoal.frontend.kserve.generate import read_generation
from shoal.frontend.kserve.plan import Plan
from shoal.frontend.kserve.requests import read_request
from shoal.frontend.kserve.status import Unsupported
from shoal.frontend.timing import seconds_of
from shoal.payload import Block, Headers

DECOUPLED: Final = "HTTP end point doesn't support models with decoupled transaction policy"
UNPACKED_AT_ONCE: Final = 4096  # bytes of a packed body; larger ones are unpacked by a thread


class Framing(NamedTuple):
    """What the headers say of a body and of its answer."""

    head_size: int | None = None
    packed: bytes = b""
    accepts: bytes = b""


def read_framing(headers: Headers) -> Framing:
    """Find the three headers that matter."""
    head_size, packed, accepts = None, b"", b""
    for name, value in headers:
        size = len(name)
        if size == 31 and name.lower() == b"inference-header-content-length":
            head_size = _number(value.strip())
        elif size == 16 and name.lower() == b"content-encoding":
            packed = value
        elif size == 15 and name.lower() == b"accept-encoding":
            accepts = value
    return Framing(head_size, packed, accepts)


class Infer:
    """Takes exchanges to the models they name."""

    def __init__(self, desk: Desk, *, largest: int, access: Access = OPEN) -> None:
        self._desk = desk
        self._access = access
        self._largest = largest  # bytes of a body once it is unpacked

    def begin(self, exchange: Exchange, plan: Plan) -> None:
        """Run an inference."""
        try:
            framing = read_framing(exchange.headers)
            if plan.interface.is_decoupled:
                raise Unsupported(DECOUPLED)
            encoding = read_encoding(framing.packed) if framing.packed else None
        except ServingError as error:
            exchange.drop_body()
            refuse(exchange, error)
            return
        if encoding is None:
            self._infer(exchange, plan, framing, exchange.body)
            return
        packed = exchange.body if isinstance(exchange.body, bytes) else bytes(exchange.body.view)
        exchange.drop_body()
        work = partial(unpack, packed, encoding, self._largest)
        if len(packed) <= UNPACKED_AT_ONCE:
            self._unpacked(exchange, plan, framing, work)
        else:
            done = asyncio.get_running_loop().run_in_executor(None, work)
            done.add_done_callback(lambda done: self._unpacked(exchange, plan, framing, done.result))

    def generate(self, exchange: Exchange, plan: Plan, *, stream: bool) -> None:
        """Run a generation."""
        body = exchange.body
        try:
            if exchange.header(b"content-encoding") not in (None, b"", b"identity"):
                raise InvalidInput("Unsupported content-encoding, only 'identity' is supported.")
            asked = read_generation(body if isinstance(body, bytes) else body.view, plan)
        except ServingError as error:
            exchange.drop_body()
            refuse(exchange, error)
            return
        exchange.drop_body()
        self._submit(exchange, plan, asked, (StreamCall if stream else GenerateCall)(exchange, plan, asked))

    def _unpacked(self, exchange: Exchange, plan: Plan, framing: Framing, unpack: Callable[[], bytes]) -> None:
        try:
            body = unpack()
        except ServingError as error:
            refuse(exchange, error)
            return
        self._infer(exchange, plan, framing, body)

    def _infer(self, exchange: Exchange, plan: Plan, framing: Framing, body: bytes | Block) -> None:
        try:
            asked = read_request(body, framing.head_size, plan, self._desk.regions)
            self._access.forward(asked, exchange.headers)
        except ServingError as error:
            refuse(exchange, error)
            return
        packing = choose(framing.accepts) if framing.accepts else None
        self._submit(exchange, plan, asked, InferCall(exchange, plan, asked, packing))

    def _submit(self, exchange: Exchange, plan: Plan, asked: Asked, call: Call) -> None:
        exchange.on_gone = call.gone
        desk = self._desk
        try:
            call.request = self._send(exchange, plan, asked, call, desk)
        except ServingError as error:
            exchange.on_gone = None
            refuse(exchange, error, asked.id)

    def _send(self, exchange: Exchange, plan: Plan, asked: Asked, call: Call, desk: Desk) -> Request:
        deadline = math.inf
        if exchange.timeout:
            try:
                deadline = desk.now() + seconds_of(exchange.timeout)
            except InvalidInput:
                asked.release()
                raise
        return desk.submit(plan, asked, call.answer, client=exchange.client, deadline=deadline)


def _number(text: bytes) -> int:
    digits = text.removeprefix(b"-")
    if not digits.isdigit() or len(digits) > 18:
        raise InvalidInput(f"Unable to parse Inference-Header-Content-Length, got: {text[:80].decode('latin-1')}")
    return int(text)

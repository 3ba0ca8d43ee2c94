"""What the services share: who may call, one message in, and a prediction on its way to its client."""

import logging
import os
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, Final, Literal, NamedTuple

from google.protobuf.message import DecodeError

from shoal.clock import Clock
from shoal.core.model import Model
from shoal.core.repository import Repository
from shoal.core.request import OnAnswer, Outcome, Request
from shoal.errors import HandlerFailed, ServingError, TooLarge
from shoal.frontend.fragments import Fragments
from shoal.frontend.grpc.codes import DescribeError, Malformed, Missing, Refusal, end, of_inference
from shoal.frontend.rpc import Call, Code, Service
from shoal.payload import Headers, Part, Payload, Result

Api = Literal["inference", "management"]
Authorise = Callable[[Sequence[tuple[bytes, bytes]], Api], None]  # of a call's metadata; raises Unauthorised

log = logging.getLogger("shoal.grpc")
MOST_BEHIND: Final = 8 * 2**20  # bytes of a stream kept for a client that does not read
MOST_PARTS: Final = 1024  # of one request
TOO_SLOW = Refusal(Code.RESOURCE_EXHAUSTED, f"the client fell more than {MOST_BEHIND} bytes behind the model's answers")


class Asked(NamedTuple):
    """What a client wants predicted."""

    model: str
    version: str
    parts: Sequence[Part]
    headers: Headers = ()


class Pending(NamedTuple):
    """A request that has not ended."""

    model: Model
    request: Request

    def withdraw(self) -> None:
        """Nobody waits for it any more."""
        self.model.withdraw(self.request)


class Desk:
    """Takes what clients ask for to the models."""

    def __init__(self, repository: Repository, clock: Clock, describe_error: DescribeError) -> None:
        self.repository = repository
        self.now = clock.now
        self._describe_error = describe_error
        self._names = count(1)
        self._prefix = os.urandom(6).hex().encode()

    def submit(self, call: Call, asked: Asked, deadline: float, on_answer: OnAnswer) -> Pending:
        """Give a request to its model, or raise why not."""
        if not asked.model:
            raise Missing("model_name")
        if len(asked.parts) > MOST_PARTS:
            raise TooLarge(f"a request has at most {MOST_PARTS} inputs, got {len(asked.parts)}")
        model = self.repository.pick(asked.model, asked.version, call.client)
        id = b"%b-%x" % (self._prefix, next(self._names))
        payload = Payload(asked.parts, asked.headers)
        request = Request(payload, on_answer, self.now(), id=id, client=call.client, deadline=deadline)
        model.submit(request)
        return Pending(model, request)

    def refusal(self, error: ServingError, asked: Asked | None = None) -> Refusal:
        """Say how an error is told; where user code failed, the log has the rest."""
        model, version = asked[:2] if asked else ("", "")
        if isinstance(error, HandlerFailed) and error.traceback:
            log.error("%s", error, extra={"fields": {"model": model, "traceback": error.traceback}})
        return of_inference(error, self._describe_error, model, version)


class Prediction:
    """A call of one message: `read` says what it asks for, `write` makes a message of each piece of the answer.

    Where the method has one answer, the first piece is it, and the rest of a stream is not computed.
    """

    __slots__ = ("_asked", "_behind", "_call", "_deadline", "_desk", "_is_stream", "_pending", "_read", "_write")

    def __init__(
        self, call: Call, desk: Desk, read: Callable[[bytes], Asked], write: Callable[[Result], bytes], *, stream: bool
    ) -> None:
        self._call = call
        self._desk = desk
        self._read = read
        self._write = write
        self._is_stream = stream
        self._deadline = desk.now() + call.timeout
        self._behind = 0
        self._asked: Asked | None = None
        self._pending: Pending | None = None
        one_message(call, self._ask)

    def _ask(self, message: bytes) -> None:
        self._call.on_gone = self._gone
        try:
            asked = self._asked = self._read(message)
            self._pending = self._desk.submit(self._call, asked, self._deadline, self._answer)
        except ServingError as error:
            end(self._call, self._desk.refusal(error, self._asked))

    def _answer(self, request: Request, outcome: Outcome, is_last: bool) -> None:
        call = self._call
        if isinstance(outcome, ServingError):
            self._pending = None
            end(call, self._desk.refusal(outcome, self._asked))
            return
        if is_only_the_end(request, outcome, is_last):
            self._pending = None
            call.finish()
            return
        try:
            message = self._write(outcome)
        except ServingError as error:
            self._gone()
            end(call, self._desk.refusal(error, self._asked))
            return
        self._behind = 0 if call.writable else self._behind + len(message)
        if self._behind > MOST_BEHIND and self._is_stream:
            self._gone()
            end(call, TOO_SLOW)
            return
        call.send(message)
        if is_last or not self._is_stream:
            self._gone()
            call.finish()

    def _gone(self) -> None:
        pending, self._pending = self._pending, None
        if pending is not None and not pending.request.has_ended:
            pending.withdraw()


def is_only_the_end(request: Request, result: Result, is_last: bool) -> bool:
    """Whether a piece only says that the stream before it has ended: no message is sent for it."""
    return is_last and request.pieces > 1 and not result.body


def one_message(
    call: Call, hear: Callable[[bytes], None], in_pieces: Callable[[Fragments], None] | None = None
) -> None:
    """Hear the one message of a call whose method takes one; none, or another, ends the call."""
    has_come = False

    def on_message(message: bytes | Fragments) -> None:
        nonlocal has_come
        if has_come:
            call.on_gone()
            end(call, Refusal(Code.INTERNAL, f"{call.method} takes one message, and another came"))
            return
        has_come = True
        if isinstance(message, bytes):
            hear(message)
        elif in_pieces is not None:
            in_pieces(message)

    def on_end() -> None:
        if not has_come:
            end(call, Refusal(Code.INTERNAL, f"{call.method} takes one message, and none came"))

    call.on_message = on_message
    if in_pieces is not None:
        call.on_pieces = on_message
    call.on_end = on_end
    call.on_gone = nothing


def parse(kind: Any, message: bytes) -> Any:
    """Read a message of one kind; raises Malformed."""
    try:
        return kind.FromString(message)
    except (DecodeError, ValueError):  # the slow form of protobuf raises the second for text that is none
        raise Malformed(f"the {len(message)} bytes are no {kind.DESCRIPTOR.full_name}") from None


def encode(message: Any) -> bytes:
    """Write a message."""
    written: bytes = message.SerializeToString()
    return written


def guarded(service: Service, authorise: Authorise, api: Api) -> Service:
    """Serve only who may call."""

    def serve(call: Call) -> None:
        try:
            authorise(call.metadata, api)
        except ServingError as error:
            turn_away(call, Refusal(Code.PERMISSION_DENIED, str(error)))
            return
        service(call)

    return serve


def turn_away(call: Call, why: Refusal) -> None:
    """End a call whatever its client sends."""
    call.on_message = _ignore
    call.on_end = call.on_gone = nothing
    end(call, why)


def nothing() -> None:
    """Stands where nobody needs to hear."""


def _ignore(message: bytes) -> None:
    pass

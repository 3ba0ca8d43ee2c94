"""Inference over HTTP on its way: what a call hears from its model, and what its client is sent. Callbacks only."""

import asyncio
import logging
from functools import partial
from typing import Final

from shoal.core.request import Outcome, Request
from shoal.errors import HandlerFailed, ServingError
from shoal.frontend.exchange import Exchange
from shoal.frontend.kserve import answers
from shoal.frontend.kserve.asked import Asked
from shoal.frontend.kserve.encodings import Encoding, UnknownEncoding, pack
from shoal.frontend.kserve.plan import Plan
from shoal.frontend.kserve.status import error_body, explain
from shoal.frontend.status import JSON, error_head
from shoal.frontend.timing import milliseconds, note_of
from shoal.payload import Result

log = logging.getLogger("shoal.inference")
MOST_BEHIND: Final = 8 * 2**20  # bytes of a stream kept for a client that does not read
PACKED_AT_ONCE: Final = 64 * 1024  # bytes of an answer; larger ones are packed by a thread
BYTES: Final = b"Content-Type: application/octet-stream\r\nInference-Header-Content-Length: %d\r\n"
EVENTS: Final = b"Content-Type: text/event-stream; charset=utf-8\r\n"
NOT_ONE: Final = (
    "generate expects model to produce exactly 1 response, use generate stream for model that generates various number "
    "of responses"
)


def refuse(exchange: Exchange, error: ServingError, id: str | None = None) -> None:
    """Answer with an error."""
    status, _, message = explain(error, id)
    head = error_head(error)
    if isinstance(error, UnknownEncoding):
        head += b"Accept-Encoding: gzip, deflate\r\n"
    exchange.respond(status, error_body(message), head)


def report(error: ServingError, plan: Plan, id: str) -> None:
    """Log where a model's own code failed."""
    if isinstance(error, HandlerFailed) and error.traceback:
        fields = {"model": plan.model.name, "request": id, "traceback": error.traceback}
        log.error("%s", error, extra={"fields": fields})


def timing(request: Request) -> bytes:
    """Say where the time went."""
    queue, batch = milliseconds(request.batched - request.arrived), request.batch
    if batch is None:  # its answer waited for those before it, and the batch is no more
        return b"Server-Timing: queue;dur=%b\r\n" % queue
    return b"Server-Timing: queue;dur=%b, %b\r\n" % (queue, batch.note or note_of(batch))


class Call:
    """What all calls share: a request that may be withdrawn, and memory that is let go at the end."""

    __slots__ = ("_asked", "_exchange", "_plan", "request")

    def __init__(self, exchange: Exchange, plan: Plan, asked: Asked) -> None:
        self._exchange = exchange
        self._plan = plan
        self._asked = asked
        self.request: Request | None = None

    def answer(self, request: Request, outcome: Outcome, is_last: bool) -> None:
        """Hear one piece of the answer."""
        if is_last:
            self._exchange.on_gone = self.request = None  # nothing to withdraw any more, and no cycle left behind
        if isinstance(outcome, ServingError):
            report(outcome, self._plan, self._asked.id)
        self._hear(request, outcome, is_last)
        if is_last:
            self._asked.let_go()

    def gone(self) -> None:
        """Nobody waits for the rest."""
        request, self.request = self.request, None
        self._exchange.on_gone = None
        if request is not None:
            self._plan.model.withdraw(request)
            self._asked.let_go()

    def _hear(self, request: Request, outcome: Outcome, is_last: bool) -> None:
        raise NotImplementedError


class InferCall(Call):
    """A plain inference: one answer, as JSON or as JSON and bytes."""

    __slots__ = ("_packing",)

    def __init__(self, exchange: Exchange, plan: Plan, asked: Asked, packing: Encoding | None) -> None:
        super().__init__(exchange, plan, asked)
        self._packing = packing

    def _hear(self, request: Request, outcome: Outcome, is_last: bool) -> None:
        exchange = self._exchange
        if exchange.is_answered:
            return
        try:
            if isinstance(outcome, ServingError):
                raise outcome
            pieces, head_size = answers.write(self._plan, self._asked, outcome)
        except ServingError as error:
            self.gone()
            refuse(exchange, error, self._asked.id)
            return
        head = (BYTES % head_size if head_size else JSON) + timing(request)
        self.gone()
        if self._packing is None:
            exchange.respond_parts(200, pieces, head, together=request.batch.together if request.batch else None)
            return
        body = b"".join(pieces)
        head += b"Content-Encoding: %b\r\n" % self._packing.encode()
        if len(body) <= PACKED_AT_ONCE:
            exchange.respond(200, pack(bytes(body), self._packing), head)
            return
        packing = asyncio.get_running_loop().run_in_executor(None, pack, bytes(body), self._packing)
        packing.add_done_callback(partial(_send_packed, exchange, head))


class GenerateCall(Call):
    """A generation with one answer; a model that gives another number of them is told so to its client."""

    __slots__ = ("_answer", "_pieces")

    def __init__(self, exchange: Exchange, plan: Plan, asked: Asked) -> None:
        super().__init__(exchange, plan, asked)
        self._answer: Result | ServingError | None = None
        self._pieces = 0

    def _hear(self, request: Request, outcome: Outcome, is_last: bool) -> None:
        exchange = self._exchange
        if exchange.is_answered:
            return
        if isinstance(outcome, ServingError) or outcome.body:
            self._pieces += 1
            self._answer = outcome
        if not is_last and self._pieces < 2:
            return
        answer = self._answer
        try:
            if isinstance(answer, ServingError):
                raise answer
            if self._pieces != 1 or answer is None:
                body = error_body(NOT_ONE)
            else:
                body = answers.write_generated(self._plan, self._asked, answer)
        except ServingError as error:
            refuse(exchange, error, self._asked.id)
        else:
            exchange.respond(200, body, JSON + timing(request))
        self.gone()


class StreamCall(Call):
    """A generation whose answers are sent as they come, each an event."""

    __slots__ = ("_behind",)

    def __init__(self, exchange: Exchange, plan: Plan, asked: Asked) -> None:
        super().__init__(exchange, plan, asked)
        self._behind = 0

    def _hear(self, request: Request, outcome: Outcome, is_last: bool) -> None:
        status, text = 200, b""
        try:
            if isinstance(outcome, ServingError):
                raise outcome
            if outcome.body:
                text = answers.write_generated(self._plan, self._asked, outcome)
        except ServingError as error:
            status, _, message = explain(error, self._asked.id)
            text = error_body(message)
        if text or is_last:
            self._write(status, text)
        if is_last:
            self._exchange.end()

    def _write(self, status: int, text: bytes) -> None:
        exchange = self._exchange
        if not exchange.is_answered:
            exchange.start(status, EVENTS)
        self._behind = 0 if exchange.writable else self._behind + len(text)
        if self._behind > MOST_BEHIND:
            self.gone()
            exchange.abort()
        elif text:
            exchange.write(b"data: %b\n\n" % text)


def _send_packed(exchange: Exchange, head: bytes, packing: "asyncio.Future[bytes]") -> None:
    exchange.respond(200, packing.result(), head)

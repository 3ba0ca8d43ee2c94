"""Inference over HTTP in TorchServe's and MMS's form: `/predictions/{model}[/{version}]` and `/ping`.

A call lives from the last byte of its request to the last of its answer. No task, no future: callbacks only.
"""

import logging
import math
import os
from itertools import count

from shoal.clock import Clock
from shoal.core.batch import Batch
from shoal.core.model import Model
from shoal.core.repository import Repository
from shoal.core.request import Outcome, Request
from shoal.errors import HandlerFailed, InvalidInput, ServingError
from shoal.frontend.exchange import Exchange, header_line
from shoal.frontend.forms import form_parts, is_form
from shoal.frontend.status import JSON, error_body, error_head, http_status, json_body
from shoal.payload import Part, Payload, Result

log = logging.getLogger("shoal.inference")
PREDICTIONS = b"/predictions/"
MOST_ROUTES = 1024  # targets remembered
MOST_TYPES = 256  # content types remembered
MOST_BEHIND = 8 * 2**20  # bytes of a stream kept for a client that does not read


class Inference:
    """The inference routes: answers what is its own, says so when it is not."""

    def __init__(self, repository: Repository, clock: Clock, *, development: bool) -> None:
        self._repository = repository
        self._development = development
        self._targets: dict[bytes, Model] = {}
        self._seen = -1
        self._names = count(1)
        self._prefix = os.urandom(6).hex().encode()
        self._now = clock.now
        self._types: dict[bytes, str] = {}  # content types of bodies that are one value, as text

    def predict(self, exchange: Exchange) -> bool:
        """Run a prediction if the target is one; False when it is somebody else's."""
        model = self._targets.get(exchange.target) if self._seen == self._repository.changes else None
        if model is None:
            if not exchange.target.startswith(PREDICTIONS):
                return False
            try:
                model = self._route(exchange)
            except ServingError as error:
                refuse(exchange, error, development=self._development)
                return True
        if exchange.method == "OPTIONS":
            exchange.respond(204, b"", b"Allow: GET, HEAD, POST, PUT, DELETE, OPTIONS\r\n")
            return True
        self._call(exchange, model)
        return True

    def ping(self, exchange: Exchange) -> None:
        """Say whether every model that should answer can."""
        is_healthy = all(model.is_ready or not model.pool.size for model in self._repository)
        exchange.respond(
            200 if is_healthy else 500, json_body({"status": "Healthy" if is_healthy else "Unhealthy"}), JSON
        )

    def _call(self, exchange: Exchange, model: Model) -> None:
        now = self._now()
        id = exchange.request_id or b"%b-%x" % (self._prefix, next(self._names))
        call = Call(exchange, model, id, self._development)
        kind = self._types.get(exchange.content_type)
        try:
            parts = self._take_apart(exchange) if kind is None else [Part("body", kind, exchange.body)]
            deadline = _deadline(exchange.timeout, now) if exchange.timeout else math.inf
        except ServingError as error:
            if not isinstance(exchange.body, bytes):
                exchange.body.release()
            call.refuse(error)
            return
        payload = Payload(parts, exchange.headers)
        request = Request(payload, call.answer, now, id=id, client=exchange.client, deadline=deadline)
        call.request = request
        exchange.on_gone = call.gone
        try:
            model.submit(request)
        except ServingError as error:
            payload.release()
            call.refuse(error)

    def _take_apart(self, exchange: Exchange) -> list[Part]:
        """Make the parts of a request whose content type is a form's, or was not seen yet."""
        content_type, body = exchange.content_type, exchange.body
        if not is_form(content_type):
            if len(self._types) >= MOST_TYPES:
                self._types.clear()
            kind = self._types[content_type] = content_type.decode("latin-1")
            return [Part("body", kind, body)]
        if isinstance(body, bytes):
            return form_parts(content_type, body)
        parts = form_parts(content_type, bytes(body.view))
        body.release()  # its bytes are in the parts now
        return parts

    def _route(self, exchange: Exchange) -> Model:
        segments = [part for part in exchange.path.decode("ascii", "replace").split("/") if part]
        if len(segments) < 2:
            raise InvalidInput("the path names no model: /predictions/{model}[/{version}]")
        model = self._repository.find(segments[1], segments[2] if len(segments) > 2 else "")
        if self._seen != self._repository.changes or len(self._targets) >= MOST_ROUTES:
            self._targets.clear()
            self._seen = self._repository.changes
        self._targets[exchange.target] = model
        return model


class Call:
    """One prediction on its way: hears the answers and writes them out."""

    __slots__ = ("_behind", "_development", "_exchange", "_has_started", "_id", "_model", "request")

    def __init__(self, exchange: Exchange, model: Model, id: bytes, development: bool) -> None:
        self._exchange = exchange
        self._model = model
        self._id = id
        self._development = development
        self._has_started = False
        self._behind = 0
        self.request: Request | None = None

    def answer(self, request: Request, outcome: Outcome, is_last: bool) -> None:
        """Write one piece; a plain answer is one piece, written at once."""
        exchange = self._exchange
        if is_last:
            exchange.on_gone = self.request = None  # nothing to withdraw any more, and no cycle left behind
        if isinstance(outcome, ServingError):
            self.refuse(outcome)
        elif is_last and not self._has_started:
            exchange.respond(
                outcome.status, outcome.body, self._head(request, outcome), outcome.reason.encode("latin-1", "replace")
            )
        else:
            self._stream(request, outcome, is_last)

    def refuse(self, error: ServingError) -> None:
        """Write an error; inside a stream the connection is cut, so that it cannot pass for an end."""
        if isinstance(error, HandlerFailed) and error.traceback:
            log.error(
                "%s",
                error,
                extra={
                    "fields": {
                        "model": self._model.name,
                        "request": self._id.decode("latin-1"),
                        "traceback": error.traceback,
                    }
                },
            )
        if self._has_started:
            self._exchange.abort()
        else:
            refuse(self._exchange, error, development=self._development, id=self._id)

    def gone(self) -> None:
        """The client left before its answer was complete."""
        if self.request is not None:
            self._model.withdraw(self.request)

    def _stream(self, request: Request, result: Result, is_last: bool) -> None:
        exchange = self._exchange
        if not self._has_started:
            self._has_started = True
            exchange.start(result.status, self._head(request, result))
        if exchange.writable:
            self._behind = 0
        else:  # the client reads more slowly than the model writes: it may fall behind only so far
            self._behind += len(result.body)
            if self._behind > MOST_BEHIND:
                self.gone()
                exchange.abort()
                return
        exchange.write(result.body)
        if is_last:
            exchange.end()

    def _head(self, request: Request, result: Result) -> bytes:
        batch = request.batch
        assert batch is not None
        kind = result.content_type
        head = b"%bx-request-id: %b\r\nServer-Timing: queue;dur=%.3f, %b\r\n" % (
            (CONTENT_TYPES.get(kind) or header_line("Content-Type", kind)) if kind else b"",
            self._id,
            1000 * (request.batched - request.arrived),
            batch.note or _note(batch),
        )
        if result.headers:
            head += b"".join(header_line(name, value) for name, value in result.headers)
        return head


CONTENT_TYPES = {"application/json": JSON}  # those that need no check


def refuse(exchange: Exchange, error: ServingError, *, development: bool = False, id: bytes = b"") -> None:
    """Answer with an error."""
    status, kind = http_status(error)
    traceback = getattr(error, "traceback", "") if development else ""
    head = error_head(error) + (b"x-request-id: %b\r\n" % id if id else b"")
    exchange.respond(status, error_body(status, kind, str(error), traceback), head)


def _note(batch: Batch) -> bytes:
    """Say once for the whole batch how it was made and where its time went."""
    why = b'batch;desc="%d %b"' % (batch.rows, batch.reason.encode())
    stages = batch.stages
    if stages is None:
        return why  # still running: a stream's head
    batch.note = b"preprocess;dur=%.3f, inference;dur=%.3f, postprocess;dur=%.3f, %b" % (
        1000 * stages.preprocess,
        1000 * stages.inference,
        1000 * stages.postprocess,
        why,
    )
    return batch.note


def _deadline(text: bytes, now: float) -> float:
    try:
        milliseconds = float(text)
    except ValueError:
        milliseconds = math.nan
    if not 0 < milliseconds < math.inf:
        raise InvalidInput(f"X-Request-Timeout-Ms is a number of milliseconds above 0, got {text.decode('latin-1')!r}")
    return now + milliseconds / 1000

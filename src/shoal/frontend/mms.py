"""Inference over HTTP in TorchServe's and MMS's form: predictions, explanations, invocations, and `/ping`.

A call lives from the last byte of its request to the last of its answer. No task, no future: callbacks only.
"""

import logging
import math
from collections.abc import Callable
from typing import Any, Final

from shoal.clock import Clock
from shoal.core.batch import Batch
from shoal.core.repository import Repository
from shoal.core.request import Outcome, Request
from shoal.errors import HandlerFailed, InvalidInput, ServingError
from shoal.frontend.dialect import Dialect
from shoal.frontend.exchange import Exchange, header_line
from shoal.frontend.forms import form_parts, is_form, last_of_each, query_parts
from shoal.frontend.openapi import describe_model
from shoal.frontend.routes import Route, Wanted, segments_of, wanted
from shoal.frontend.status import JSON, json_body
from shoal.frontend.timing import milliseconds, note_of, seconds_of
from shoal.payload import Headers, Part, Payload, Result

log = logging.getLogger("shoal.inference")
MOST_ROUTES: Final = 1024  # targets remembered
MOST_TYPES: Final = 256  # content types remembered,
LONGEST_TYPE: Final = 256  # and bytes of the lines that answers have of them
MOST_BEHIND: Final = 8 * 2**20  # bytes of a stream kept for a client that does not read
METHODS: Final = b"Allow: GET, HEAD, POST, PUT, DELETE, OPTIONS\r\n"
FRAMING: Final = frozenset({b"content-length", b"transfer-encoding", b"connection"})  # no handler's business
Authorise = Callable[[Exchange], None]  # raises Unauthorised


class Inference:
    """The inference routes: answers what is its own, says so when it is not."""

    def __init__(
        self,
        repository: Repository,
        clock: Clock,
        dialect: Dialect,
        *,
        open_inference: bool = False,
        authorise: Authorise | None = None,
    ) -> None:
        self._repository = repository
        self._dialect = dialect
        self._open_inference = open_inference
        self._authorise = authorise
        self._targets: dict[bytes, Route] = {}
        self._seen = -1
        self._new_id = dialect.new_id
        self._keeps_ids = dialect.keeps_ids
        self._now = clock.now
        self._types: dict[bytes, str] = {}  # content types of bodies that are one value, as text

    def predict(self, exchange: Exchange) -> bool:
        """Run a prediction if the target is one; False when it is somebody else's."""
        route = self._targets.get(exchange.target) if self._seen == self._repository.changes else None
        try:
            if route is None:
                asked = self._wanted(exchange)
                if asked is None:
                    return False
                if self._authorise is not None:
                    self._authorise(exchange)
                route = self._route(exchange, asked)
            elif self._authorise is not None:
                self._authorise(exchange)
        except ServingError as error:
            exchange.drop_body()
            self._dialect.refuse(exchange, error)
            return True
        if exchange.method == "OPTIONS":
            exchange.drop_body()
            self._dialect.respond(exchange, 200, json_body(describe_model(route.model.name)), JSON + METHODS)
            return True
        self._call(exchange, route)
        return True

    def others(self, exchange: Exchange) -> bool:
        """Answer the routes beside predictions: health, and what the open inference protocol asks of a server."""
        segments = segments_of(exchange.path)
        found: tuple[int, Any] | None = None
        if segments == ["ping"]:
            status, word = self._dialect.health(self._repository)
            found = status, {"status": word}
        elif self._open_inference and segments[:1] == ["v2"]:
            found = self._open_answer(segments[1:])
        if found is None:
            return False
        exchange.drop_body()
        try:
            if self._authorise is not None:
                self._authorise(exchange)
        except ServingError as error:
            self._dialect.refuse(exchange, error)
        else:
            self._dialect.say(exchange, *found)
        return True

    def _open_answer(self, rest: list[str]) -> tuple[int, Any] | None:
        if len(rest) > 3 and "versions" in rest:
            return 501, {"error": "Model versioning is not yet supported."}
        match rest:
            case []:
                names = ["kserve", "kubeflow"]
                about = {"name": self._dialect.product, "version": self._dialect.version}
                return 200, {**about, "extenstion": names, "extensions": names}  # the first spelling is upstream's
            case ["health", "live" | "ready" as what]:
                return 200, {what: True}
        return None

    def _wanted(self, exchange: Exchange) -> Wanted | None:
        dialect = self._dialect
        return wanted(
            segments_of(exchange.path), has_versions=dialect.has_versions, has_explanations=dialect.has_explanations
        )

    def _route(self, exchange: Exchange, asked: Wanted) -> Route:
        """Find the model, and remember the target where it alone decides that."""
        parts = query_parts(exchange.query) if asked.takes_query else []
        name, is_lasting = asked.name, True
        if not name:
            name = next((_text(part) for part in parts if part.name == "model_name"), "") or self._only_model()
            if not name:
                name, is_lasting = self._named_in_form(exchange), False
        route = Route(self._repository.pick(name, asked.version, exchange.client), asked, parts)
        if is_lasting and (asked.version or self._repository.split_of(name) is None):
            if self._seen != self._repository.changes or len(self._targets) >= MOST_ROUTES:
                self._targets.clear()
                self._seen = self._repository.changes
            self._targets[exchange.target] = route
        return route

    def _only_model(self) -> str:
        names = {model.name for model in self._repository if model.config.loaded_at_startup}
        return names.pop() if len(names) == 1 else ""

    def _named_in_form(self, exchange: Exchange) -> str:
        body = exchange.body if isinstance(exchange.body, bytes) else bytes(exchange.body.view)
        if self._dialect.form_names_model and is_form(exchange.content_type):
            for part in form_parts(exchange.content_type, body, is_lenient=self._dialect.is_lenient):
                if part.name == "model_name":
                    return _text(part)
        raise InvalidInput("Parameter model_name is required.")

    def _call(self, exchange: Exchange, route: Route) -> None:
        now = self._now()
        id = (self._keeps_ids and exchange.request_id) or self._new_id()
        call = Prediction(exchange, route, id, self._dialect)
        kind = self._types.get(exchange.content_type)
        try:
            parts = self._take_apart(exchange) if kind is None else [Part("body", kind, exchange.body)]
            deadline = now + seconds_of(exchange.timeout) if exchange.timeout else math.inf
        except ServingError as error:
            exchange.drop_body()
            call.refuse(error)
            return
        headers: Headers = exchange.headers
        if route.adds:
            parts = last_of_each((*route.parts, *parts)) if route.parts else parts
            headers = _headers(exchange, route.headers) if route.headers or not exchange.body else headers
        elif not exchange.body and self._dialect.name:
            headers = _headers(exchange, ())
        payload = Payload(parts, headers)
        request = Request(
            payload, call.answer, now, id=id, group=route.group, client=exchange.client, deadline=deadline
        )
        call.request = request
        exchange.on_gone = call.gone
        try:
            route.model.submit(request)
        except ServingError as error:
            exchange.on_gone = call.request = None  # nobody took it: no cycle is left behind
            payload.release()
            call.refuse(error)

    def _take_apart(self, exchange: Exchange) -> list[Part]:
        """Make the parts of a request whose content type is a form's, or was not seen yet."""
        content_type, body = exchange.content_type, exchange.body
        if not is_form(content_type, is_lenient=self._dialect.is_lenient):
            if len(self._types) >= MOST_TYPES:
                self._types.clear()
            kind = self._types[content_type] = content_type.decode("latin-1")
            return [Part("body", kind, body)]
        if isinstance(body, bytes):
            return form_parts(content_type, body, is_lenient=self._dialect.is_lenient)
        parts = form_parts(content_type, bytes(body.view), is_lenient=self._dialect.is_lenient)
        body.release()  # its bytes are in the parts now
        return parts


class Prediction:
    """One prediction on its way: hears the answers and writes them out."""

    __slots__ = ("_behind", "_dialect", "_exchange", "_has_started", "_id", "_route", "request")

    def __init__(self, exchange: Exchange, route: Route, id: bytes, dialect: Dialect) -> None:
        self._exchange = exchange
        self._route = route
        self._id = id
        self._dialect = dialect
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
            batch = request.batch
            assert batch is not None
            head = self._head(batch, request, outcome)
            reason = outcome.reason.encode("latin-1", "replace") if outcome.reason else self._dialect.phrase
            if type(outcome.body) is memoryview:  # large, and nobody else's: it is sent from where it lies
                exchange.respond_parts(outcome.status, (outcome.body,), head, reason)
            else:
                exchange.respond(outcome.status, outcome.body, head, reason, batch.together)
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
                        "model": self._route.model.name,
                        "request": self._id.decode("latin-1"),
                        "traceback": error.traceback,
                    }
                },
            )
        if self._has_started:
            self._exchange.abort()
        else:
            route = self._route
            self._dialect.refuse(self._exchange, error, model=route.model.name, version=route.version, id=self._id)

    def gone(self) -> None:
        """The client left before its answer was complete."""
        if self.request is not None:
            self._route.model.withdraw(self.request)

    def _stream(self, request: Request, result: Result, is_last: bool) -> None:
        exchange = self._exchange
        if not self._has_started:
            self._has_started = True
            assert request.batch is not None
            exchange.start(result.status, self._head(request.batch, request, result), self._dialect.phrase)
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

    def _head(self, batch: Batch, request: Request, result: Result) -> bytes:
        kind = result.content_type
        head = b"%bx-request-id: %b\r\nServer-Timing: queue;dur=%b, %b\r\n%b" % (
            (CONTENT_TYPES.get(kind) or _type_line(kind)) if kind else b"",
            self._id,
            milliseconds(request.batched - request.arrived),
            batch.note or note_of(batch),
            self._dialect.lines,
        )
        return _with_own(head, [header_line(*pair) for pair in result.headers]) if result.headers else head


CONTENT_TYPES: Final = {"application/json": JSON}  # the lines of those that were written before


def _type_line(kind: str) -> bytes:
    line = header_line("Content-Type", kind)
    if len(CONTENT_TYPES) < MOST_TYPES and len(line) <= LONGEST_TYPE:  # a handler may make up what it likes
        CONTENT_TYPES[kind] = line
    return line


def _with_own(head: bytes, own: list[bytes]) -> bytes:
    """Add the handler's own header lines; they replace the server's of the same names."""
    names = {_name(line) for line in own}
    ours = [line for line in head.splitlines(keepends=True) if _name(line) not in names]
    return b"".join([*ours, *(line for line in own if _name(line) not in FRAMING)])


def _name(line: bytes) -> bytes:
    return line.partition(b":")[0].lower()


def _headers(exchange: Exchange, added: Headers) -> Headers:
    """Give the client's headers and the server's; a request without a body is one of length zero to its handler."""
    if not exchange.body and exchange.header(b"content-length") is None:
        added = (*added, (b"content-length", b"0"))
    return [*exchange.headers, *added]


def _text(part: Part) -> str:
    return bytes(part.data).decode("utf-8", "replace") if isinstance(part.data, bytes) else ""

"""Dialects: whose words, statuses, headers and defaults the APIs have: Shoal's own, TorchServe's or MMS's."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from itertools import count
from typing import Any, NamedTuple

import msgspec

from shoal.config.server import ServerConfig
from shoal.core.repository import Repository
from shoal.errors import (
    DeadlineExceeded,
    HandlerFailed,
    LoadFailed,
    LoadOutOfMemory,
    ResponseTimeout,
    ServingError,
    Unauthorised,
    Unavailable,
    WorkerDied,
)
from shoal.frontend import health
from shoal.frontend.exchange import Exchange, header_line
from shoal.frontend.refusals import refusal as plain_refusal
from shoal.frontend.status import (
    HTTP_STATUS,
    JSON,
    ModelApiOff,
    NegativeWorkers,
    NoDescriber,
    NoDescription,
    Statuses,
    StillBusy,
    error_body,
    error_head,
    http_status,
    json_body,
)

NOT_FOUND = "Requested resource is not found, please refer to API document."
NOT_ALLOWED = "Requested method is not allowed, please refer to API document."
USUAL = frozenset(HTTPStatus)
UPSTREAM_LINES = (
    b"Pragma: no-cache\r\nCache-Control: no-cache; no-store, must-revalidate, private\r\n"
    b"Expires: Thu, 01 Jan 1970 00:00:00 UTC\r\n"
)
UPSTREAM_STATUS: Statuses = {
    **HTTP_STATUS,
    Unauthorised: (400, "InvalidKeyException"),
    DeadlineExceeded: (504, "RequestTimeoutException"),
    HandlerFailed: (503, "InternalServerException"),
    LoadFailed: (500, "InternalServerException"),
    LoadOutOfMemory: (507, "InternalServerException"),
    ResponseTimeout: (500, "InternalServerException"),
    WorkerDied: (500, "InternalServerException"),
    NegativeWorkers: (500, "IndexOutOfBoundsException"),
}
Texts = Mapping[type[ServingError], str]  # {model}; {versioned}: the version as the client wrote it, if it did
DIED: Texts = {WorkerDied: "Worker died.", ResponseTimeout: "Worker died."}


class Refusal(NamedTuple):
    """What a client is told of an error."""

    status: int
    kind: str
    message: str


def counted_ids() -> Callable[[], bytes]:
    """Make request ids that are short and differ between servers."""
    template = os.urandom(6).hex().encode() + b"-%x"
    return map(template.__mod__, count(1)).__next__


def uuid4() -> bytes:
    """Make a random UUID, a good deal faster than the library does."""
    h = os.urandom(16).hex()
    return f"{h[:8]}-{h[8:12]}-4{h[13:16]}-{'89ab'[int(h[16], 16) & 3]}{h[17:20]}-{h[20:]}".encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One server's words. Texts are templates over `model`, `version`, `workers`, `running` and `reason`."""

    name: str = ""
    title: str = "Shoal APIs"
    version: str = ""  # of the API, in its descriptions
    product: str = "shoal"
    statuses: Statuses = field(default_factory=lambda: HTTP_STATUS)
    chosen: range = range(400, 600)  # statuses that a handler may choose for an error
    texts: Texts = field(default_factory=dict)  # where absent, the error's own
    lines: bytes = b""  # on every answer
    shows_tracebacks: bool = False  # of handlers, to clients
    new_id: Callable[[], bytes] = field(default_factory=counted_ids)
    keeps_ids: bool = True  # a request keeps the id that its client gave it
    names_ids: bool = False  # every answer has an id, not predictions alone
    phrase: bytes | None = b""  # after a prediction's status: the usual one, or none at all
    has_versions: bool = True
    has_explanations: bool = True  # and KServe's routes
    form_names_model: bool = True  # /invocations looks for `model_name` in the form
    has_index: bool = False  # the root is a route, OPTIONS its only method
    is_lenient: bool = False  # numbers that are none mean the default, forms that are none are read as far as they go
    minutes: bool = False  # response_timeout in a query is in minutes
    is_bare: bool = False  # a description is one object, not a list of versions
    counts_workers: bool = False  # workers have numbers from 9000 on, and are READY or UNLOADING
    ready_when_wanted: bool = False  # KServe's readiness counts workers, loaded or not
    reports_busy: bool = False  # removing a model that does not finish in time is an error
    health: Callable[[Repository], tuple[int, str]] = health.native
    conflict: str = "Model version {version} is already registered for model {model}"
    load_failed: str = "{reason}"
    scale_failed: str = "{reason}"
    registered: str = 'Model "{model}" Version: {version} registered with {workers} initial workers'
    registered_idle: str = (
        'Model "{model}" Version: {version} registered with 0 initial workers. '
        "Use scale workers API to add workers for the model."
    )
    scaled: str = "Workers scaled to {running} for model: {model}"
    scaled_version: str = "Workers scaled to {running} for model: {model}, version: {version}"

    def explain(self, error: ServingError, model: str = "", version: str = "") -> Refusal:
        """Say what a client hears of an error about this model, and this version of it if the client named one."""
        status, kind = http_status(error, self.statuses, chosen=self.chosen)
        text = next((self.texts[kind] for kind in type(error).__mro__ if kind in self.texts), "")
        if self.name == "torchserve" and status == 413 and isinstance(error, HandlerFailed):
            status = 507  # a whole batch cannot be too large; upstream says this instead
        versioned = f' Version {version}"' if version else ""
        return Refusal(status, kind, text.format(model=model, versioned=versioned) if text else str(error))

    def respond(self, exchange: Exchange, status: int, body: bytes, head: bytes = JSON, *, id: bytes = b"") -> None:
        """Answer with what the server itself has to say."""
        if self.names_ids or id:
            head += b"x-request-id: %b\r\n" % (id or self.new_id())
        exchange.respond(status, body, head + self.lines, b"" if not self.name else _phrase(status))

    def say(self, exchange: Exchange, status: int, value: Any) -> None:
        """Answer with a value as JSON."""
        self.respond(exchange, status, json_body(value))

    def refuse(
        self, exchange: Exchange, error: ServingError, *, model: str = "", version: str = "", id: bytes = b""
    ) -> None:
        """Answer with an error."""
        status, kind, message = self.explain(error, model, version)
        traceback = getattr(error, "traceback", "") if self.shows_tracebacks else ""
        body = error_body(status, kind, message, traceback)
        self.respond(exchange, status, body, error_head(error, status), id=id)

    def not_found(self, exchange: Exchange) -> None:
        """Answer for a path that is nobody's."""
        self.respond(exchange, 404, error_body(404, "ResourceNotFoundException", NOT_FOUND))

    def not_allowed(self, exchange: Exchange, allowed: tuple[str, ...]) -> None:
        """Answer for a method that this path does not have."""
        words = NOT_ALLOWED if self.name else f"Requested method is not allowed; this path takes {', '.join(allowed)}."
        head = JSON + b"Allow: %b\r\n" % ", ".join(allowed).encode()
        self.respond(exchange, 405, error_body(405, "MethodNotAllowedException", words), head)

    def refusal(self, status: int, message: str) -> tuple[bytes, bytes]:
        """Header lines and body for a request that a connection refuses before anybody saw it."""
        if not self.name:
            head, body = plain_refusal(status, message)
            return head + self.lines, body
        lines = b"x-request-id: %b\r\n" % self.new_id() + self.lines
        if status == 413:
            return lines, b""
        return JSON + lines, json_body(_upstream_refusal(status, message))


def _phrase(status: int) -> bytes:
    """Upstream's reason phrase for a status that has none of its own; empty for the others."""
    if status in USUAL:
        return b""
    kind = {4: "Client Error", 5: "Server Error"}.get(status // 100, "Unknown Status")
    return f"{kind} ({status})".encode()


def _upstream_refusal(status: int, message: str) -> dict[str, Any]:
    _, body = plain_refusal(status, message)
    return {**msgspec.json.decode(body), **({"message": "Invalid HTTP message."} if status == 400 else {})}


NATIVE = Dialect()
TORCHSERVE = Dialect(
    name="torchserve",
    title="TorchServe APIs",
    version="0.12.0",
    product="Torchserve",
    statuses=UPSTREAM_STATUS,
    chosen=range(200, 1000),
    texts={
        **DIED,
        Unavailable: (
            'Model "{model}"{versioned} has no worker to serve inference request. Please use scale workers API to add '
            "workers. If this is a sequence inference, please check if it is closed, or expired; or exceeds "
            "maxSequenceJobQueueSize"
        ),
        StillBusy: "Timed out while cleaning resources: {model}",
        NoDescriber: (
            'Model "{model}" has no worker to serve describe request. Please use scale workers API to add workers.'
        ),
        NoDescription: "Failed to get customized model matadata.",
        ModelApiOff: NOT_ALLOWED,
    },
    lines=UPSTREAM_LINES,
    new_id=uuid4,
    keeps_ids=False,
    names_ids=True,
    phrase=None,
    has_index=True,
    is_lenient=True,
    counts_workers=True,
    ready_when_wanted=True,
    reports_busy=True,
    health=health.torchserve,
    load_failed="Failed to start workers for model {model} version: {version}: {reason}",
    scale_failed="Failed to start workers for model {model} version: {version}: {reason}",
    scaled="Workers scaled to {workers} for model: {model}",
    scaled_version="Workers scaled to {workers} for model: {model}, version: {version}",
)
MMS = replace(
    TORCHSERVE,
    name="mms",
    title="Model Server APIs",
    version="1.0.0",
    product="Multi Model Server",
    texts={
        **TORCHSERVE.texts,
        Unavailable: (
            "No worker is available to serve request for model: {model}. Consider increasing job queue size."
        ),
    },
    has_versions=False,
    has_explanations=False,
    form_names_model=False,
    minutes=True,
    is_bare=True,
    health=health.mms,
    conflict="Model {model} is already registered.",
    load_failed="Failed to start workers: {reason}",
    scale_failed="Failed to start workers: {reason}",
    registered="Workers scaled",
    registered_idle='Model "{model}" registered',
    scaled="Workers scaled",
    scaled_version="Workers scaled",
)
BY_NAME = {"triton": NATIVE, **{dialect.name: dialect for dialect in (NATIVE, TORCHSERVE, MMS)}}


def dialect_of(config: ServerConfig, version: str) -> Dialect:
    """Give the dialect a server is told to speak; `version` is the server's own."""
    base = BY_NAME[config.compat]
    return replace(
        base,
        lines=base.lines + cors_lines(config),
        version=base.version or version,
        shows_tracebacks=config.development,
        new_id=base.new_id if base.name else counted_ids(),
    )


def cors_lines(config: ServerConfig) -> bytes:
    """Header lines that let pages of other origins read answers, where they are configured."""
    values = (
        ("Access-Control-Allow-Origin", config.cors_origin),
        ("Access-Control-Allow-Methods", config.cors_methods),
        ("Access-Control-Allow-Headers", config.cors_headers),
    )
    return b"".join(header_line(name, value) for name, value in values if value)

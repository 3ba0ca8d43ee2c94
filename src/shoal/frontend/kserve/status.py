"""Errors as KServe v2 says them: an HTTP status, a gRPC code, and `{"error": ...}`."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from shoal.errors import (
    ConfigError,
    Conflict,
    DeadlineExceeded,
    HandlerFailed,
    InvalidInput,
    LevelFull,
    LoadFailed,
    ModelNotFound,
    QueueFull,
    QueueTimeout,
    ServingError,
    Unauthorised,
    Unavailable,
    VersionNotFound,
    Withdrawn,
)
from shoal.frontend.rpc import Code
from shoal.frontend.status import JSON


class Unsupported(ServingError):
    """What was asked for is known, and not done here."""


class NotThere(ServingError):
    """Something other than a model that was named is not there."""


class AlreadyThere(ServingError):
    """The name is taken."""


class UnknownFormat(ServingError):
    """Log lines have no such form."""


class UnknownModel(ModelNotFound):
    """No version of this model can answer."""

    def __init__(self, model: str, version: str = "", *, is_known: bool = False) -> None:
        if version:
            words = f"'{model}' version {version} is not found"
        else:
            words = f"'{model}' has no available versions" if is_known else f"'{model}' is not found"
        ServingError.__init__(self, f"Request for unknown model: {words}")


class Refusal(NamedTuple):
    """What a client is told of an error."""

    status: int
    code: Code
    message: str


TABLE: Mapping[type[ServingError], tuple[int, Code]] = {
    InvalidInput: (400, Code.INVALID_ARGUMENT),
    ConfigError: (400, Code.INVALID_ARGUMENT),
    LoadFailed: (400, Code.INVALID_ARGUMENT),
    AlreadyThere: (400, Code.ALREADY_EXISTS),
    Conflict: (400, Code.ALREADY_EXISTS),
    Withdrawn: (400, Code.CANCELLED),
    Unauthorised: (403, Code.UNAVAILABLE),
    ModelNotFound: (404, Code.NOT_FOUND),
    VersionNotFound: (404, Code.NOT_FOUND),
    NotThere: (404, Code.NOT_FOUND),
    Unsupported: (501, Code.UNIMPLEMENTED),
    UnknownFormat: (503, Code.INVALID_ARGUMENT),
    Unavailable: (503, Code.UNAVAILABLE),
    DeadlineExceeded: (503, Code.UNAVAILABLE),
    ServingError: (500, Code.INTERNAL),
}
CODES: Mapping[int, Code] = {  # of the statuses that a model chooses for its errors
    400: Code.INVALID_ARGUMENT,
    404: Code.NOT_FOUND,
    409: Code.ALREADY_EXISTS,
    460: Code.UNKNOWN,
    499: Code.CANCELLED,
    501: Code.UNIMPLEMENTED,
    503: Code.UNAVAILABLE,
}
ONLY_CODES = frozenset({409, 460, 499})  # over HTTP they are 400
STATUSES: Mapping[str, int] = {  # by the names of Triton's codes, as models of many answers write them
    "UNKNOWN": 460,
    "INTERNAL": 500,
    "NOT_FOUND": 404,
    "INVALID_ARG": 400,
    "UNAVAILABLE": 503,
    "UNSUPPORTED": 501,
    "ALREADY_EXISTS": 409,
    "CANCELLED": 499,
}
TEXTS: Mapping[type[ServingError], str] = {  # what their own words come behind; nothing where they are upstream's
    QueueFull: "Exceeds maximum queue size",
    LevelFull: "",
    DeadlineExceeded: "Request timeout expired",
    QueueTimeout: "",
}


def explain(error: ServingError, id: str | None = None) -> Refusal:
    """Say what a client hears; with its id, where the request was well formed and then not taken or not run in time."""
    if isinstance(error, HandlerFailed) and error.status is not None:
        chosen = error.status if 400 <= error.status < 600 else 500
        code = CODES.get(chosen, Code.INVALID_ARGUMENT if chosen < 500 else Code.INTERNAL)
        return Refusal(400 if chosen in ONLY_CODES else chosen, code, str(error))
    kinds = type(error).__mro__
    status, code = next(TABLE[kind] for kind in kinds if kind in TABLE)
    text = next((TEXTS[kind] for kind in kinds if kind in TEXTS), "")
    message = f"{text}: {error}" if text else str(error)
    if id is not None and status == 503:
        message = named(id) + message
    return Refusal(status, code, message)


def named(id: str) -> str:
    """Begin a message about a request that was well formed."""
    return f"[request id: {id or '<id_unknown>'}] "


def error_body(message: str) -> bytes:
    """Give the body that every error has."""
    return b'{"error":%b}' % msgspec.json.encode(message.encode("utf-8", "replace").decode())


def refusal(status: int, message: str) -> tuple[bytes, bytes]:
    """Header lines and body for a request that a connection refuses before anybody saw it."""
    return JSON, error_body(message)

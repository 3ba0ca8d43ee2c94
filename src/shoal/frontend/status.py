"""The one table: what HTTP calls each error, and the body that tells the client."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from shoal.errors import (
    BadArchive,
    ConfigError,
    Conflict,
    DeadlineExceeded,
    DownloadFailed,
    HandlerFailed,
    InvalidInput,
    LoadFailed,
    LoadOutOfMemory,
    ModelNotFound,
    Poisoned,
    Protected,
    ResponseTimeout,
    ServingError,
    ShareUsed,
    TooLarge,
    Unauthorised,
    Unavailable,
    VersionNotFound,
    WorkerDied,
    WorkflowNotFound,
)

JSON: Final = b"Content-Type: application/json\r\n"


class NegativeWorkers(InvalidInput):
    """Fewer than no workers were asked for."""


class ModelApiOff(ServingError):
    """Models may not be registered or removed by clients of this server."""

    def __init__(self) -> None:
        super().__init__("Requested method is not allowed, please refer to API document.")


class StillBusy(ServingError):
    """A model that was removed had not finished in the time it was given; what was left of it was ended."""


class NoDescriber(Unavailable):
    """No worker can be asked to describe the model."""


class NoDescription(ServingError):
    """The handler was asked to describe itself and gave no answer."""


Statuses = Mapping[type[ServingError], tuple[int, str]]

# class of the error -> status, and the name TorchServe's clients know it by
HTTP_STATUS: Statuses = {
    InvalidInput: (400, "BadRequestException"),
    ConfigError: (400, "BadRequestException"),
    BadArchive: (400, "InvalidModelException"),
    DownloadFailed: (400, "DownloadArchiveException"),
    Unauthorised: (401, "InvalidKeyException"),
    TooLarge: (413, "PayloadTooLargeException"),
    Poisoned: (422, "PoisonedContentException"),
    ModelNotFound: (404, "ModelNotFoundException"),
    VersionNotFound: (404, "ModelVersionNotFoundException"),
    WorkflowNotFound: (404, "WorkflowNotFoundException"),
    Conflict: (409, "ConflictStatusException"),
    Protected: (403, "InvalidModelVersionException"),
    Unavailable: (503, "ServiceUnavailableException"),
    ShareUsed: (429, "TooManyRequestsException"),
    DeadlineExceeded: (504, "DeadlineExceededException"),
    ResponseTimeout: (504, "ResponseTimeoutException"),
    LoadFailed: (500, "ModelException"),
    LoadOutOfMemory: (507, "InternalServerException"),
    HandlerFailed: (500, "InternalServerException"),
    WorkerDied: (500, "WorkerDiedException"),
    ModelApiOff: (405, "MethodNotAllowedException"),
    StillBusy: (408, "RequestTimeoutException"),
    ServingError: (500, "InternalServerException"),
}


def http_status(
    error: ServingError, statuses: Statuses = HTTP_STATUS, *, chosen: range = range(400, 600)
) -> tuple[int, str]:
    """Look the error up along its class tree, so a new one has an answer on the day it is written.

    A handler may choose its own status within `chosen`.
    """
    if isinstance(error, HandlerFailed) and error.status is not None and error.status in chosen:
        return error.status, statuses[HandlerFailed][1]
    return next(statuses[kind] for kind in type(error).__mro__ if kind in statuses)


def error_body(status: int, kind: str, message: str, traceback: str = "") -> bytes:
    """Give the body every error has: code, type, message; the traceback only in development mode."""
    fields = {"code": status, "type": kind, "message": message}
    return json_body(fields | {"traceback": traceback} if traceback else fields)


def error_head(error: ServingError, status: int = 0) -> bytes:
    """Give the header lines an error adds."""
    if status == 401:
        return JSON + b"WWW-Authenticate: Bearer\r\n"
    if isinstance(error, Unavailable):
        return JSON + b"Retry-After: %d\r\n" % max(1, round(error.retry_after))
    return JSON


def json_body(value: Any) -> bytes:
    """Write a server-made body the way TorchServe does: indented by two, one line's end after it."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"

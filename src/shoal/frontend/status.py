"""The one table: what HTTP calls each error, and the body that tells the client."""

from typing import Any

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
    Protected,
    ResponseTimeout,
    ServingError,
    TooLarge,
    Unauthorised,
    Unavailable,
    VersionNotFound,
    WorkerDied,
)

JSON = b"Content-Type: application/json\r\n"

# class of the error -> status, and the name TorchServe's clients know it by
HTTP_STATUS: dict[type[ServingError], tuple[int, str]] = {
    InvalidInput: (400, "BadRequestException"),
    ConfigError: (400, "BadRequestException"),
    BadArchive: (400, "InvalidModelException"),
    DownloadFailed: (400, "DownloadArchiveException"),
    Unauthorised: (401, "InvalidKeyException"),
    TooLarge: (413, "PayloadTooLargeException"),
    ModelNotFound: (404, "ModelNotFoundException"),
    VersionNotFound: (404, "ModelVersionNotFoundException"),
    Conflict: (409, "ConflictStatusException"),
    Protected: (403, "InvalidModelVersionException"),
    Unavailable: (503, "ServiceUnavailableException"),
    DeadlineExceeded: (504, "DeadlineExceededException"),
    ResponseTimeout: (504, "ResponseTimeoutException"),
    LoadFailed: (500, "ModelException"),
    LoadOutOfMemory: (507, "InternalServerException"),
    HandlerFailed: (500, "InternalServerException"),
    WorkerDied: (500, "WorkerDiedException"),
    ServingError: (500, "InternalServerException"),
}


def http_status(error: ServingError) -> tuple[int, str]:
    """Look the error up along its class tree, so a new one has an answer on the day it is written."""
    if isinstance(error, HandlerFailed) and error.status is not None and 400 <= error.status <= 599:
        return error.status, HTTP_STATUS[HandlerFailed][1]
    return next(HTTP_STATUS[kind] for kind in type(error).__mro__ if kind in HTTP_STATUS)


def error_body(status: int, kind: str, message: str, traceback: str = "") -> bytes:
    """Give the body every error has: code, type, message; the traceback only in development mode."""
    fields = {"code": status, "type": kind, "message": message}
    return json_body(fields | {"traceback": traceback} if traceback else fields)


def error_head(error: ServingError) -> bytes:
    """Give the header lines an error adds."""
    if isinstance(error, Unavailable):
        return JSON + b"Retry-After: %d\r\n" % max(1, round(error.retry_after))
    return JSON


def json_body(value: Any) -> bytes:
    """Write a server-made body the way TorchServe does: indented by two, one line's end after it."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"

"""Errors as gRPC says them: a status code, and a sentence with the name of the error's class under it."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from shoal.errors import (
    Conflict,
    HandlerFailed,
    InvalidInput,
    ModelNotFound,
    ServingError,
    Unauthorised,
    Unavailable,
    VersionNotFound,
)
from shoal.frontend.rpc import Call, Code

# an error about a model and a version, as the client named them -> the HTTP status, its type and message
DescribeError = Callable[[ServingError, str, str], tuple[int, str, str]]

BY_STATUS: Mapping[int, Code] = {
    400: Code.INVALID_ARGUMENT,
    401: Code.UNAUTHENTICATED,
    403: Code.PERMISSION_DENIED,
    404: Code.NOT_FOUND,
    409: Code.ABORTED,
    413: Code.RESOURCE_EXHAUSTED,
    416: Code.OUT_OF_RANGE,
    429: Code.RESOURCE_EXHAUSTED,
    499: Code.CANCELLED,
    501: Code.UNIMPLEMENTED,
    503: Code.UNAVAILABLE,
    504: Code.DEADLINE_EXCEEDED,
}
HTTP, ARCHIVE, MODEL = "org.pytorch.serve.http.", "org.pytorch.serve.archive.", "org.pytorch.serve.archive.model."
PACKAGES: Mapping[str, str] = {  # where clients know a class from; gRPC says the whole name, HTTP its last word
    "BadRequestException": HTTP,
    "ConflictStatusException": HTTP,
    "InternalServerException": HTTP,
    "InvalidModelVersionException": HTTP,
    "RequestTimeoutException": HTTP,
    "ServiceUnavailableException": HTTP,
    "DownloadArchiveException": ARCHIVE,
    "InvalidModelException": MODEL,
    "ModelException": MODEL,
    "ModelNotFoundException": MODEL,
    "ModelVersionNotFoundException": MODEL,
}


class Missing(InvalidInput):
    """A field that must be there is not."""

    def __init__(self, field: str) -> None:
        super().__init__(f"Parameter {field} is required.")


class Malformed(InvalidInput):
    """The bytes are no message of the kind this method takes."""


class Refusal(NamedTuple):
    """How an error ends a call."""

    code: Code
    message: str
    kind: str = ""  # the name of its class

    @property
    def description(self) -> str:
        """What the client is told beside the code."""
        return f"{self.message}\n{self.kind}" if self.kind else self.message


def code_of(status: int) -> Code:
    """Give the code of an HTTP status."""
    if code := BY_STATUS.get(status):
        return code
    if 400 <= status < 500:
        return Code.FAILED_PRECONDITION
    return Code.INTERNAL if 500 <= status < 600 else Code.UNKNOWN


def of_inference(error: ServingError, describe: DescribeError, model: str = "", version: str = "") -> Refusal:
    """Refuse a prediction; no model, no worker and no room are all INTERNAL, as TorchServe's clients know it."""
    refusal = of_management(error, describe, model, version)
    is_internal = isinstance(error, ModelNotFound | VersionNotFound | Unavailable | Missing)
    return refusal._replace(code=Code.INTERNAL) if is_internal else refusal


def of_management(error: ServingError, describe: DescribeError, model: str = "", version: str = "") -> Refusal:
    """Refuse a call that was to act on a model."""
    if isinstance(error, Malformed):
        return Refusal(Code.INTERNAL, str(error))
    if isinstance(error, Unauthorised):
        return Refusal(Code.PERMISSION_DENIED, str(error))
    status, kind, message = describe(error, model, version)
    chosen = error.status if isinstance(error, HandlerFailed) and error.status else status
    code = Code.ALREADY_EXISTS if isinstance(error, Conflict) and status == 409 else code_of(chosen)
    return Refusal(code, message, PACKAGES.get(kind, "") + kind)


def end(call: Call, refusal: Refusal) -> None:
    """End a call that failed."""
    call.finish(refusal.code, refusal.description)

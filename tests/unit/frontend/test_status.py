import json

import pytest

from shoal import errors
from shoal.errors import (
    BadArchive,
    ConfigError,
    Conflict,
    DeadlineExceeded,
    DownloadFailed,
    HandlerFailed,
    InvalidInput,
    LevelFull,
    LoadFailed,
    LoadOutOfMemory,
    ModelNotFound,
    Poisoned,
    Protected,
    ProtocolError,
    QueueFull,
    QueueTimeout,
    ResponseTimeout,
    SequenceLost,
    ServingError,
    ShareUsed,
    SourceNotFound,
    TooLarge,
    Unauthorised,
    Unavailable,
    Unreadable,
    VersionNotFound,
    Withdrawn,
    WorkerDied,
    WorkflowNotFound,
)
from shoal.frontend.status import (
    HTTP_STATUS,
    ModelApiOff,
    NegativeWorkers,
    NoDescriber,
    NoDescription,
    StillBusy,
    error_body,
    error_head,
    http_status,
    json_body,
)

CASES = [
    (InvalidInput("x"), 400, "BadRequestException"),
    (Unreadable("x"), 400, "BadRequestException"),
    (ConfigError("x"), 400, "BadRequestException"),
    (TooLarge("x"), 413, "PayloadTooLargeException"),
    (Poisoned("x"), 422, "PoisonedContentException"),
    (ModelNotFound("m"), 404, "ModelNotFoundException"),
    (VersionNotFound("m", "1"), 404, "ModelVersionNotFoundException"),
    (Conflict("x"), 409, "ConflictStatusException"),
    (Unavailable("x"), 503, "ServiceUnavailableException"),
    (QueueFull("m", 3, 1.0), 503, "ServiceUnavailableException"),
    (DeadlineExceeded("x"), 504, "DeadlineExceededException"),
    (ResponseTimeout("x"), 504, "ResponseTimeoutException"),
    (LoadFailed("x"), 500, "ModelException"),
    (HandlerFailed("x"), 500, "InternalServerException"),
    (WorkerDied("x"), 500, "WorkerDiedException"),
    (ProtocolError("x"), 500, "InternalServerException"),
    (Withdrawn("x"), 500, "InternalServerException"),
    (ServingError("x"), 500, "InternalServerException"),
    (LevelFull(1.0), 503, "ServiceUnavailableException"),
    (ShareUsed("m", "10.0.0.1", 3, 6, 1.0), 429, "TooManyRequestsException"),
    (QueueTimeout("x"), 504, "DeadlineExceededException"),
    (SequenceLost("x"), 503, "ServiceUnavailableException"),
    (BadArchive("x"), 400, "InvalidModelException"),
    (DownloadFailed("x"), 400, "DownloadArchiveException"),
    (Unauthorised("x"), 401, "InvalidKeyException"),
    (SourceNotFound("x"), 404, "ModelNotFoundException"),
    (WorkflowNotFound("w"), 404, "WorkflowNotFoundException"),
    (Protected("x"), 403, "InvalidModelVersionException"),
    (LoadOutOfMemory("x"), 507, "InternalServerException"),
]


@pytest.mark.parametrize(("error", "status", "kind"), CASES)
def test_each_error_has_its_status_and_the_name_clients_know(error: ServingError, status: int, kind: str) -> None:
    assert http_status(error) == (status, kind)


def test_every_error_of_the_tree_is_tried_here() -> None:
    known = {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, ServingError)}

    assert {type(error) for error, _, _ in CASES} == known
    assert HTTP_STATUS.keys() <= known | {ModelApiOff, StillBusy}


def test_what_only_the_apis_know_has_its_status_too() -> None:
    assert http_status(NegativeWorkers("x")) == (400, "BadRequestException")
    assert http_status(ModelApiOff()) == (405, "MethodNotAllowedException")
    assert http_status(StillBusy("x")) == (408, "RequestTimeoutException")
    assert http_status(NoDescriber("x")) == (503, "ServiceUnavailableException")
    assert http_status(NoDescription("x")) == (500, "InternalServerException")


def test_a_new_error_has_the_answer_of_its_nearest_ancestor() -> None:
    class Quarrel(Conflict): ...

    class Novelty(ServingError): ...

    assert http_status(Quarrel("x"))[0] == 409
    assert http_status(Novelty("x"))[0] == 500


@pytest.mark.parametrize(
    ("chosen", "status"), [(418, 418), (400, 400), (599, 599), (200, 500), (302, 500), (399, 500), (600, 500), (0, 500)]
)
def test_a_handler_may_choose_an_error_status_and_no_other(chosen: int, status: int) -> None:
    assert http_status(HandlerFailed("x", status=chosen)) == (status, "InternalServerException")


def test_a_body_says_code_type_and_message() -> None:
    body = error_body(404, "ModelNotFoundException", 'no "größe"\r\n')

    assert json.loads(body) == {"code": 404, "type": "ModelNotFoundException", "message": 'no "größe"\r\n'}
    assert body.endswith(b"}\n")
    assert body.startswith(b'{\n  "code": 404,\n')


def test_a_traceback_is_in_the_body_only_where_it_was_given() -> None:
    assert "traceback" not in json.loads(error_body(500, "X", "y"))
    assert json.loads(error_body(500, "X", "y", "line 1\nline 2"))["traceback"] == "line 1\nline 2"


@pytest.mark.parametrize(("seconds", "told"), [(0.0, b"1"), (0.2, b"1"), (7.0, b"7"), (7.6, b"8")])
def test_the_unavailable_are_told_when_to_come_again(seconds: float, told: bytes) -> None:
    for error in (Unavailable("x", seconds), QueueFull("m", 1, seconds)):
        assert error_head(error) == b"Content-Type: application/json\r\nRetry-After: " + told + b"\r\n"


def test_other_errors_do_not_ask_to_come_again() -> None:
    assert error_head(InvalidInput("x")) == b"Content-Type: application/json\r\n"


def test_bodies_of_the_server_are_indented_by_two() -> None:
    assert json_body({"a": [1]}) == b'{\n  "a": [\n    1\n  ]\n}\n'

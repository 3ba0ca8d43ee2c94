import json
import uuid

import pytest

from shoal.config.server import ServerConfig
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
    ProtocolError,
    QueueFull,
    ResponseTimeout,
    ServingError,
    SourceNotFound,
    Unauthorised,
    Unavailable,
    VersionNotFound,
    WorkerDied,
)
from shoal.frontend.dialect import MMS, NATIVE, TORCHSERVE, Dialect, dialect_of, uuid4
from shoal.frontend.status import ModelApiOff, NegativeWorkers, NoDescriber, NoDescription, StillBusy
from tests.unit.frontend.api_fakes import Answer

NO_WORKER = (
    " has no worker to serve inference request. Please use scale workers API to add workers. If this is a sequence "
    "inference, please check if it is closed, or expired; or exceeds maxSequenceJobQueueSize"
)
NO_MMS_WORKER = "No worker is available to serve request for model: m. Consider increasing job queue size."
SAME = [  # as both say it: error, status, type, message
    (InvalidInput("Parameter url is required."), 400, "BadRequestException", "Parameter url is required."),
    (ConfigError("Invalid RuntimeType value: X"), 400, "BadRequestException", "Invalid RuntimeType value: X"),
    (Unauthorised("Token x"), 400, "InvalidKeyException", "Token x"),
    (DownloadFailed("Failed to download archive from: u"), 400, "DownloadArchiveException",
     "Failed to download archive from: u"),
    (BadArchive("bad manifest"), 400, "InvalidModelException", "bad manifest"),
    (Protected("Cannot remove default version for model m"), 403, "InvalidModelVersionException",
     "Cannot remove default version for model m"),
    (ModelNotFound("m"), 404, "ModelNotFoundException", "Model not found: m"),
    (SourceNotFound("empty url"), 404, "ModelNotFoundException", "empty url"),
    (VersionNotFound("m", "2"), 404, "ModelVersionNotFoundException", "Model version: 2 does not exist for model: m"),
    (ModelApiOff(), 405, "MethodNotAllowedException",
     "Requested method is not allowed, please refer to API document."),
    (StillBusy("x"), 408, "RequestTimeoutException", "Timed out while cleaning resources: m"),
    (Conflict("x"), 409, "ConflictStatusException", "x"),
    (WorkerDied("x"), 500, "InternalServerException", "Worker died."),
    (ResponseTimeout("x"), 500, "InternalServerException", "Worker died."),
    (LoadFailed("x"), 500, "InternalServerException", "x"),
    (LoadOutOfMemory("x"), 507, "InternalServerException", "x"),
    (ProtocolError("x"), 500, "InternalServerException", "x"),
    (NoDescription("x"), 500, "InternalServerException", "Failed to get customized model matadata."),
    (NoDescriber("x"), 503, "ServiceUnavailableException",
     'Model "m" has no worker to serve describe request. Please use scale workers API to add workers.'),
    (DeadlineExceeded("too late"), 504, "RequestTimeoutException", "too late"),
    (HandlerFailed("Prediction failed"), 503, "InternalServerException", "Prediction failed"),
    (HandlerFailed("Out of resources", status=507), 507, "InternalServerException", "Out of resources"),
    (HandlerFailed("mine", status=513), 513, "InternalServerException", "mine"),
    (HandlerFailed("mine", status=599), 599, "InternalServerException", "mine"),
    (HandlerFailed("mine", status=700), 700, "InternalServerException", "mine"),
    (HandlerFailed("mine", status=100), 503, "InternalServerException", "mine"),
]  # fmt: skip


@pytest.mark.parametrize("dialect", [TORCHSERVE, MMS], ids=lambda d: d.name)
@pytest.mark.parametrize(("error", "status", "kind", "message"), SAME, ids=lambda v: str(v)[:30])
def test_upstream_words_for_each_error(
    dialect: Dialect, error: ServingError, status: int, kind: str, message: str
) -> None:
    assert dialect.explain(error, "m") == (status, kind, message)


@pytest.mark.parametrize("error", [Unavailable("x"), QueueFull("m", 3, 1.0)])
def test_whoever_cannot_be_served_now_is_told_so_in_each_servers_words(error: ServingError) -> None:
    busy = (503, "ServiceUnavailableException")

    assert TORCHSERVE.explain(error, "m") == (*busy, f'Model "m"{NO_WORKER}')
    assert TORCHSERVE.explain(error, "m", "2.0") == (*busy, f'Model "m" Version 2.0"{NO_WORKER}')
    assert MMS.explain(error, "m") == (*busy, NO_MMS_WORKER)
    assert NATIVE.explain(error, "m") == (*busy, str(error))


def test_a_batch_that_is_too_large_is_too_much_for_torchserve_alone() -> None:
    assert TORCHSERVE.explain(HandlerFailed("mine", status=413))[0] == 507
    assert MMS.explain(HandlerFailed("mine", status=413))[0] == 413


@pytest.mark.parametrize(("status", "phrase"), [(513, "Server Error (513)"), (499, "Client Error (499)")])
def test_a_status_without_a_phrase_of_its_own_has_upstreams(status: int, phrase: str) -> None:
    answer = Answer("/x")
    TORCHSERVE.refuse(answer.exchange, HandlerFailed("x", status=status))

    assert answer.status_line == f"HTTP/1.1 {status} {phrase}".encode()


def test_a_negative_number_of_workers_is_a_server_error_upstream() -> None:
    assert TORCHSERVE.explain(NegativeWorkers("x"))[:2] == (500, "IndexOutOfBoundsException")
    assert MMS.explain(NegativeWorkers("x"))[:2] == (500, "IndexOutOfBoundsException")
    assert NATIVE.explain(NegativeWorkers("x"))[:2] == (400, "BadRequestException")


def test_braces_in_a_name_are_only_a_name() -> None:
    assert "{reason}" in TORCHSERVE.explain(Unavailable("x"), "{reason}")[2]


def test_in_our_own_words_an_unknown_caller_is_asked_for_a_key() -> None:
    answer = Answer("/x")
    NATIVE.refuse(answer.exchange, Unauthorised("no"))

    assert answer.status == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    other = Answer("/x")
    TORCHSERVE.refuse(other.exchange, Unauthorised("no"))
    assert "www-authenticate" not in other.headers


def test_every_answer_in_upstreams_words_has_upstreams_headers() -> None:
    answer = Answer("/x")
    TORCHSERVE.say(answer.exchange, 200, {"status": "Healthy"})

    assert answer.body == b'{\n  "status": "Healthy"\n}\n'
    assert uuid.UUID(answer.headers["x-request-id"]).version == 4
    assert answer.headers["pragma"] == "no-cache"
    assert answer.headers["cache-control"] == "no-cache; no-store, must-revalidate, private"
    assert answer.headers["expires"] == "Thu, 01 Jan 1970 00:00:00 UTC"
    assert answer.headers["content-type"] == "application/json"


def test_an_error_does_not_end_the_connection() -> None:
    answer = Answer("/x")
    TORCHSERVE.refuse(answer.exchange, ModelNotFound("m"))

    assert answer.link.keep is True


@pytest.mark.parametrize("compat", ["", "torchserve", "mms"])
def test_pages_of_other_origins_may_read_where_that_is_set(compat: str) -> None:
    config = ServerConfig(compat=compat, cors_origin="*", cors_headers="X-A, X-B")  # type: ignore[arg-type]  # known
    answer = Answer("/x")
    dialect_of(config, "1").not_found(answer.exchange)

    assert answer.headers["access-control-allow-origin"] == "*"
    assert answer.headers["access-control-allow-headers"] == "X-A, X-B"
    assert "access-control-allow-methods" not in answer.headers


@pytest.mark.parametrize("dialect", [TORCHSERVE, MMS, NATIVE], ids=lambda d: d.name)
def test_unknown_paths_and_methods(dialect: Dialect) -> None:
    lost, wrong = Answer("/x"), Answer("/x")
    dialect.not_found(lost.exchange)
    dialect.not_allowed(wrong.exchange, ("GET", "PUT"))

    text = "Requested resource is not found, please refer to API document."
    assert lost.error == (404, "ResourceNotFoundException", text)
    assert wrong.error[:2] == (405, "MethodNotAllowedException")
    assert wrong.headers["allow"] == "GET, PUT"
    if dialect.name:
        assert wrong.error[2] == "Requested method is not allowed, please refer to API document."


def test_a_body_that_is_too_large_is_refused_without_words_upstream() -> None:
    head, body = TORCHSERVE.refusal(413, "too large")

    assert body == b"" and b"Content-Type" not in head and b"x-request-id: " in head
    head, body = NATIVE.refusal(413, "too large")
    assert json.loads(body)["message"] == "too large" and b"application/json" in head


def test_what_is_no_http_is_said_in_upstreams_words() -> None:
    _, body = TORCHSERVE.refusal(400, "two lengths")

    assert json.loads(body) == {"code": 400, "type": "BadRequestException", "message": "Invalid HTTP message."}
    assert json.loads(TORCHSERVE.refusal(431, "long")[1])["message"] == "long"


def test_request_ids_are_never_the_same() -> None:
    ids = {uuid4() for _ in range(1000)}

    assert len(ids) == 1000
    assert all(uuid.UUID(id.decode()).version == 4 for id in ids)
    assert all(uuid.UUID(id.decode()).variant == uuid.RFC_4122 for id in ids)


def test_the_version_is_the_servers_own_unless_it_speaks_as_another() -> None:
    assert dialect_of(ServerConfig(), "7.7").version == "7.7"
    assert dialect_of(ServerConfig(compat="torchserve"), "7.7").version == "0.12.0"

import json

import pytest

from shoal.errors import (
    Conflict,
    DeadlineExceeded,
    HandlerFailed,
    InvalidInput,
    LevelFull,
    QueueFull,
    ServingError,
    TooLarge,
)
from shoal.frontend.kserve.status import AlreadyThere, NotThere, UnknownModel, Unsupported, error_body, explain, refusal
from shoal.frontend.rpc import Code


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (InvalidInput("x"), 400, Code.INVALID_ARGUMENT),
        (TooLarge("x"), 400, Code.INVALID_ARGUMENT),
        (AlreadyThere("x"), 400, Code.ALREADY_EXISTS),
        (Conflict("x"), 400, Code.ALREADY_EXISTS),
        (NotThere("x"), 404, Code.NOT_FOUND),
        (UnknownModel("m"), 404, Code.NOT_FOUND),
        (Unsupported("x"), 501, Code.UNIMPLEMENTED),
        (QueueFull("m", 3, 1.0), 503, Code.UNAVAILABLE),
        (DeadlineExceeded("x"), 503, Code.UNAVAILABLE),
        (HandlerFailed("x", status=429), 429, Code.INVALID_ARGUMENT),
        (HandlerFailed("x", status=409), 400, Code.ALREADY_EXISTS),
        (HandlerFailed("x", status=460), 400, Code.UNKNOWN),
        (HandlerFailed("x", status=499), 400, Code.CANCELLED),
        (HandlerFailed("x", status=502), 502, Code.INTERNAL),
        (ServingError("x"), 500, Code.INTERNAL),
    ],
)
def test_every_error_has_a_status_and_a_code(error: ServingError, status: int, code: Code) -> None:
    assert explain(error)[:2] == (status, code)


def test_upstreams_words_are_said_once() -> None:
    assert explain(QueueFull("m", 3, 1.0), "").message == (
        "[request id: <id_unknown>] Exceeds maximum queue size: model 'm' already has 3 requests waiting"
    )
    assert explain(LevelFull(1.0), "a").message == "[request id: a] Exceeds maximum queue size"


def test_any_text_can_be_told() -> None:
    assert json.loads(error_body('a"\n\udcff')) == {"error": 'a"\n?'}


def test_a_connection_refuses_in_the_same_form() -> None:
    head, body = refusal(413, "too much")
    assert (head, json.loads(body)) == (b"Content-Type: application/json\r\n", {"error": "too much"})

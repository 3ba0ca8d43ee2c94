from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import (
    Conflict,
    DownloadFailed,
    HandlerFailed,
    InvalidInput,
    LoadFailed,
    LoadOutOfMemory,
    ModelNotFound,
    Protected,
    QueueFull,
    ServingError,
    SourceNotFound,
    Unauthorised,
    Unavailable,
    VersionNotFound,
)
from shoal.frontend.grpc.codes import Malformed, Missing, Refusal, code_of, of_inference, of_management
from shoal.frontend.rpc import Code
from tests.unit.frontend.grpc.calling import describe


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, Code.INVALID_ARGUMENT),
        (401, Code.UNAUTHENTICATED),
        (403, Code.PERMISSION_DENIED),
        (404, Code.NOT_FOUND),
        (409, Code.ABORTED),
        (413, Code.RESOURCE_EXHAUSTED),
        (429, Code.RESOURCE_EXHAUSTED),
        (416, Code.OUT_OF_RANGE),
        (499, Code.CANCELLED),
        (501, Code.UNIMPLEMENTED),
        (503, Code.UNAVAILABLE),
        (504, Code.DEADLINE_EXCEEDED),
        (402, Code.FAILED_PRECONDITION),
        (418, Code.FAILED_PRECONDITION),
        (500, Code.INTERNAL),
        (507, Code.INTERNAL),
        (599, Code.INTERNAL),
        (302, Code.UNKNOWN),
        (600, Code.UNKNOWN),
    ],
)
def test_each_http_status_has_its_code(status: int, code: Code) -> None:
    assert code_of(status) is code


@given(st.integers())
def test_no_status_passes_for_success(status: int) -> None:
    assert code_of(status) is not Code.OK


@pytest.mark.parametrize(
    ("error", "code", "kind"),
    [
        (Missing("model_name"), Code.INTERNAL, "org.pytorch.serve.http.BadRequestException"),
        (ModelNotFound("m"), Code.INTERNAL, "org.pytorch.serve.archive.model.ModelNotFoundException"),
        (VersionNotFound("m", "2"), Code.INTERNAL, "org.pytorch.serve.archive.model.ModelVersionNotFoundException"),
        (Unavailable("no worker"), Code.INTERNAL, "org.pytorch.serve.http.ServiceUnavailableException"),
        (QueueFull("m", 3, 1.0), Code.INTERNAL, "org.pytorch.serve.http.ServiceUnavailableException"),
        (InvalidInput("no"), Code.INVALID_ARGUMENT, "org.pytorch.serve.http.BadRequestException"),
        (HandlerFailed("no", status=409), Code.ABORTED, "org.pytorch.serve.http.InternalServerException"),
        (HandlerFailed("no", status=507), Code.INTERNAL, "org.pytorch.serve.http.InternalServerException"),
    ],
)
def test_a_prediction_is_refused_with_torchserves_codes(error: ServingError, code: Code, kind: str) -> None:
    assert of_inference(error, describe) == Refusal(code, str(error), kind)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Missing("url"), Code.INVALID_ARGUMENT),
        (InvalidInput("max_worker cannot be less than min_worker."), Code.INVALID_ARGUMENT),
        (DownloadFailed("no"), Code.INVALID_ARGUMENT),
        (SourceNotFound("Model not found at: x.mar"), Code.NOT_FOUND),
        (ModelNotFound("m"), Code.NOT_FOUND),
        (VersionNotFound("m", "2"), Code.NOT_FOUND),
        (LoadFailed("no"), Code.INTERNAL),
        (LoadOutOfMemory("no"), Code.INTERNAL),
        (Conflict("twice"), Code.ALREADY_EXISTS),
        (Protected("the default"), Code.PERMISSION_DENIED),
    ],
)
def test_an_action_is_refused_with_the_code_of_its_status(error: ServingError, code: Code) -> None:
    assert of_management(error, describe).code is code


def test_a_conflict_that_is_told_as_another_status_has_that_statuss_code() -> None:
    refusal = of_management(Conflict("the file is there"), lambda *_: (500, "InternalServerException", "there"))

    assert refusal.code is Code.INTERNAL


@pytest.mark.parametrize("refuse", [of_inference, of_management])
def test_a_wrong_key_is_told_without_the_name_of_a_class(refuse: Any) -> None:
    assert refuse(Unauthorised("no key"), describe) == Refusal(Code.PERMISSION_DENIED, "no key", "")


@pytest.mark.parametrize("refuse", [of_inference, of_management])
def test_bytes_that_are_no_message_are_an_internal_error(refuse: Any) -> None:
    assert refuse(Malformed("no message"), describe) == Refusal(Code.INTERNAL, "no message", "")


def test_the_description_has_the_class_on_a_line_of_its_own() -> None:
    assert Refusal(Code.INTERNAL, "what", "a.B").description == "what\na.B"
    assert Refusal(Code.INTERNAL, "what").description == "what"


def test_a_class_nobody_knows_the_package_of_keeps_its_bare_name() -> None:
    assert of_management(InvalidInput("x"), lambda *_: (400, "OddException", "x")).kind == "OddException"


def test_the_description_knows_which_model_and_version_were_meant() -> None:
    assert of_inference(HandlerFailed("WHO"), describe, "m", "2").message == "m/2"
    assert of_management(Conflict("WHO"), describe, "m", "2").message == "m/2"

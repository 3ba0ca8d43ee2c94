import logging
from typing import Any

import pytest

from shoal.errors import HandlerFailed, InvalidInput
from shoal.wire.messages import Failure
from shoal.worker.failures import failure
from shoal.worker.handler import decode_each
from tests.unit.worker.making import failing


class PredictionException(Exception):
    """As TorchServe has it."""

    def __init__(self, message: str, error_code: int = 500) -> None:
        self.message = message
        self.error_code = error_code
        super().__init__(message)

    def __str__(self) -> str:
        return f"{self.message} : {self.error_code}"


class OutOfMemoryError(RuntimeError):
    """As torch.cuda has it."""


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even that")


def told(error: BaseException) -> tuple[str, str, int]:
    described = failure(error, "Bees.inference")
    return described.kind, described.message, described.status


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (InvalidInput("no image"), ("input", "no image", 0)),
        (HandlerFailed("too dark", status=422), ("handler", "too dark", 422)),
        (HandlerFailed("too dark"), ("handler", "too dark", 0)),
        (PredictionException("not today", 513), ("handler", "not today", 513)),
        (PredictionException("odd", True), ("handler", "Bees.inference raised PredictionException: odd : True", 0)),
        (MemoryError(), ("handler", "Out of resources", 507)),
        (OutOfMemoryError("CUDA out of memory"), ("handler", "Out of resources", 507)),
        (ValueError("bad\nshape"), ("handler", "Bees.inference raised ValueError: bad shape", 0)),
        (SystemExit(3), ("handler", "Bees.inference raised SystemExit: 3", 0)),
        (KeyboardInterrupt(), ("handler", "Bees.inference raised KeyboardInterrupt", 0)),
        (Unprintable(), ("handler", "Bees.inference raised Unprintable", 0)),
        (ValueError("\ud800"), ("handler", "Bees.inference raised ValueError: ?", 0)),
    ],
)
def test_an_error_says_whose_fault_it_was(error: BaseException, expected: tuple[str, str, int]) -> None:
    assert told(error) == expected


@pytest.mark.parametrize(
    "kind", [ValueError, TypeError, KeyError, IndexError, OSError, UnicodeError, EOFError, SyntaxError]
)
def test_what_decode_cannot_read_is_the_inputs_fault(kind: type[Exception]) -> None:
    (error,) = decode_each(failing(kind("odd")), [b""])
    assert told(error)[0] == "input"


@pytest.mark.parametrize(
    "error", [RuntimeError("odd"), HandlerFailed("odd"), PredictionException("odd"), MemoryError()]
)
def test_anything_else_in_decode_is_the_handlers_fault(error: Exception) -> None:
    (given,) = decode_each(failing(error), [b""])
    assert given is error
    assert told(given)[0] == "handler"


def users_code(_: Any) -> Any:
    raise ValueError("deep")


def test_the_traceback_begins_with_the_users_own_frame(caplog: pytest.LogCaptureFixture) -> None:
    (error,) = decode_each(users_code, [b""])
    with caplog.at_level(logging.INFO, "shoal.worker"):
        described = failure(error, "Bees.decode")
    lines = described.traceback.splitlines()
    assert lines[0].startswith("Traceback")
    assert "users_code" in lines[1]
    assert "shoal/worker" not in described.traceback
    assert lines[-1] == "ValueError: deep"
    assert described.traceback.rstrip() in caplog.text


def test_an_error_that_was_never_raised_has_no_traceback() -> None:
    assert failure(ValueError("given, not raised"), "x") == Failure("handler", "x raised ValueError: given, not raised")

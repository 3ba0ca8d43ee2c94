import logging
import weakref
from typing import Any

import pytest

from shoal.errors import HandlerFailed, InvalidInput
from shoal.wire.messages import Failure
from shoal.worker.each import decode_each
from shoal.worker.failures import failure
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
        (MemoryError(), ("memory", "Out of resources", 507)),
        (OutOfMemoryError("CUDA out of memory"), ("memory", "Out of resources", 507)),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), ("memory", "Out of resources", 507)),
        (
            ValueError("can't allocate memory"),
            ("handler", "Bees.inference raised ValueError: can't allocate memory", 0),
        ),
        (
            RuntimeError("CUDA error: device-side assert triggered"),
            ("device", "Bees.inference raised RuntimeError: CUDA error: device-side assert triggered", 0),
        ),
        (RuntimeError("misaligned address"), ("handler", "Bees.inference raised RuntimeError: misaligned address", 0)),
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
    ("error", "kind"),
    [
        (RuntimeError("odd"), "handler"),
        (HandlerFailed("odd"), "handler"),
        (PredictionException("odd"), "handler"),
        (MemoryError(), "memory"),
    ],
)
def test_anything_else_in_decode_is_not_the_inputs_fault(error: Exception, kind: str) -> None:
    (given,) = decode_each(failing(error), [b""])
    assert given is error
    assert told(given)[0] == kind


@pytest.mark.parametrize(
    "text",
    [
        "CUDA out of memory. Tried to allocate 20.00 GiB",
        "[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: not enough memory: you tried to allocate",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate",
        "std::bad_alloc",
    ],
)
def test_what_frameworks_say_when_memory_runs_out_is_known_by_its_words(text: str) -> None:
    assert told(RuntimeError(text))[0] == "memory"


def test_an_allocation_that_onnxruntime_could_not_make_is_known_by_its_module_and_words() -> None:
    kind = type("RuntimeException", (Exception,), {"__module__": "onnxruntime.capi.onnxruntime_pybind11_state"})

    assert told(kind("Failed to allocate memory for requested buffer of size 8589934592"))[0] == "memory"
    assert told(kind("CUDA failure 700: an illegal memory access was encountered"))[0] == "device"
    assert told(kind("Invalid shape"))[0] == "handler"


@pytest.mark.parametrize("cause", ["CUDA out of memory", "CUDA error: an illegal memory access was encountered"])
def test_an_error_that_a_backend_made_of_another_keeps_its_words_and_tells_what_it_was(cause: str) -> None:
    error = HandlerFailed("PyTorch execute failure", status=500)
    error.__cause__ = RuntimeError(cause)

    assert told(error) == ("memory" if "out of" in cause else "device", "PyTorch execute failure", 500)


def test_what_a_batch_without_memory_held_is_let_go_before_its_halves_run() -> None:
    class Held:
        """Something large."""

    seen: list[weakref.ref[Held]] = []

    def allocate() -> None:
        held = Held()
        seen.append(weakref.ref(held))
        raise MemoryError

    try:
        allocate()
    except MemoryError as error:
        failure(error, "x")
        assert seen[0]() is None


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

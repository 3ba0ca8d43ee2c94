"""From an exception in user code to the Failure that travels: whose fault it was, what it says, where it happened."""

import contextlib
import gc
import logging
import sys
import traceback
from types import TracebackType
from typing import Final

from shoal.errors import HandlerFailed, InvalidInput, Unreadable
from shoal.wire.messages import Failure

OUT_OF_RESOURCES = 507
OURS: Final = "shoal.worker."  # begins the names of the modules that users' code is called from
_log = logging.getLogger("shoal.worker")
# of torch, its allocators and libraries, and of onnxruntime
_NO_MEMORY = (
    *("CUDA out of memory", "can't allocate memory", "not enough memory", "CUDA error: out of memory"),
    *("CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED", "Failed to allocate memory", "bad allocation"),
    *("std::bad_alloc", "is smaller than requested bytes"),
)
# errors after which CUDA gives every call of the process the same error
_LOST = (
    *("device-side assert", "illegal memory access", "unspecified launch failure", "misaligned address"),
    *("illegal instruction", "invalid program counter", "invalid address space", "hardware stack error"),
    *("uncorrectable ECC", "launch timed out", "context is destroyed", "MPS client terminated"),
)


def failure(error: BaseException, where: str) -> Failure:
    """Describe an error raised in, or given by, `where` (such as Bees.inference), and write it to the log."""
    try:
        described = _describe(error, where)
    except Exception:  # the user's exception fails when it is looked at
        described = Failure("handler", f"{where} raised {type(error).__name__}")
    _write(described, where)
    if described.kind == "memory":
        recover_memory(error)
    return described


def _describe(error: BaseException, where: str) -> Failure:
    place = trimmed(error.__cause__ if isinstance(error, Unreadable) and error.__cause__ else error)
    kind, status = _kind_of(error), 0
    if isinstance(error, InvalidInput):
        kind, message = "input", str(error)
    elif isinstance(error, HandlerFailed):
        status, message = int(error.status or 0), str(error)
        place = error.traceback or place
    elif kind == "memory":
        status, message = OUT_OF_RESOURCES, "Out of resources"
    elif (chosen := _chosen_status(error)) is not None:
        status, message = chosen, str(getattr(error, "message", error))
    else:
        message = f"{where} raised {summary(error)}"
    return Failure(kind, _text(message), status, _text(place))


def _text(value: str) -> str:
    """Text that can travel."""
    return value.encode(errors="replace").decode()


def _kind_of(error: BaseException) -> str:
    """Whether an error, or the one that a backend made it from, says something about memory or the device."""
    for each in (error, error.__cause__):
        if each is not None and (is_out_of_memory(each) or _speaks_of(each, _NO_MEMORY)):
            return "memory"
        if each is not None and is_device_lost(each):
            return "device"
    return "handler"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, of the machine or of a device; frameworks agree on the name, not on the class."""
    return isinstance(error, MemoryError) or any(kind.__name__ == "OutOfMemoryError" for kind in type(error).__mro__)


def is_device_lost(error: BaseException) -> bool:
    """Whether a GPU's context is beyond repair: every later call of this process would fail too."""
    return _speaks_of(error, _LOST) and "CUDA" in str(error)


def _speaks_of(error: BaseException, phrases: tuple[str, ...]) -> bool:
    """Whether a framework says one of these; what it raises has no class of its own for them."""
    if not isinstance(error, RuntimeError) and not type(error).__module__.startswith("onnxruntime"):
        return False
    text = str(error)
    return any(phrase in text for phrase in phrases)


def recover_memory(error: BaseException) -> None:
    """Let go of what a failed batch held, so that its halves find room: frames' variables, cycles, torch's cache."""
    traceback.clear_frames(error.__traceback__)
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        with contextlib.suppress(Exception):
            torch.cuda.empty_cache()


def summary(error: BaseException) -> str:
    """An exception in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def trimmed(error: BaseException) -> str:
    """The traceback from the first frame of the user's own on; empty when none of theirs took part."""
    frames = error.__traceback__
    while frames is not None and _is_ours(frames):
        frames = frames.tb_next
    if frames is None:
        return ""
    return "".join(traceback.format_exception(type(error), error, frames))


def _is_ours(frame: TracebackType) -> bool:
    name = frame.tb_frame.f_code.co_filename
    if name.startswith("<frozen ") or (name.startswith(sys.base_prefix) and "/asyncio/" in name):
        return True
    return str(frame.tb_frame.f_globals.get("__name__")).startswith(OURS)  # a compiled module's file is another


def _chosen_status(error: BaseException) -> int | None:
    """The status of TorchServe's PredictionException and its like."""
    code = getattr(error, "error_code", None)
    return int(code) if isinstance(code, int) and not isinstance(code, bool) else None


def _write(described: Failure, where: str) -> None:
    if described.kind == "input" and not described.traceback:
        _log.info("refused an input: %s", described.message)
    else:
        level = logging.WARNING if described.kind == "input" else logging.ERROR
        _log.log(level, "%s failed: %s\n%s", where, described.message, described.traceback.rstrip())

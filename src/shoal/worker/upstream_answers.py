"""What a TorchServe or MMS handler gave, or raised, as that server would answer it: all requests of a batch or none."""

import io
import json
import sys
import traceback
from typing import Any, Literal

import msgspec

from shoal.errors import HandlerFailed
from shoal.upstream.ts.utils.util import PredictionException
from shoal.worker import failures
from shoal.worker.items import Written, type_name

Flavour = Literal["torchserve", "mms"]
UNAVAILABLE = 503
OUT_OF_RESOURCES = "Out of resources"


def written(result: Any, count: int) -> list[Written]:
    """The bytes of each answer; HandlerFailed, for the whole batch, where one result for each request was not given."""
    if not isinstance(result, list):
        raise HandlerFailed("Invalid model predict output", status=UNAVAILABLE, traceback=_given(result))
    if len(result) != count:
        told = f"the handler gave {len(result)} results for {count} requests"
        raise HandlerFailed("number of batch response mismatched", status=UNAVAILABLE, traceback=told)
    return [write(value) for value in result]


def write(value: Any) -> Written:
    """The bytes of one result: bytes and text as they are, a tensor as torch.save has it, the rest as JSON."""
    if isinstance(value, bytes | bytearray):
        return Written(value)
    try:
        if isinstance(value, str):
            return Written(value.encode())
        if (torch := sys.modules.get("torch")) is not None and isinstance(value, torch.Tensor):
            buffer = io.BytesIO()
            torch.save(value, buffer)
            return Written(buffer.getvalue())
        return Written(_json(value))
    except Exception as error:  # anything a user's object does while it is looked at
        told = f"a result of type {type_name(value)} cannot be sent: {failures.summary(error)}"
        raise HandlerFailed("Unsupported model output data type.", status=UNAVAILABLE, traceback=told) from error


def refused(error: BaseException, flavour: Flavour) -> HandlerFailed:
    """What the requests of a batch are told when its handler raised; the real traceback travels along."""
    if isinstance(error, HandlerFailed):  # ours, on its way through the handler
        return error
    status, message = _said(error, flavour)
    trace = failures.trimmed(error) or "".join(traceback.format_exception_only(error))
    return HandlerFailed(message, status=status, traceback=trace)


def is_out_of_memory(error: BaseException, flavour: Flavour) -> bool:
    """Whether memory ran out; TorchServe takes every error that speaks of CUDA for this."""
    return failures.is_out_of_memory(error) or (flavour == "torchserve" and "CUDA" in _text(error))


def _said(error: BaseException, flavour: Flavour) -> tuple[int, str]:
    if isinstance(error, PredictionException):
        code = error.error_code if isinstance(error.error_code, int) else 500
        return code, str(error.message)
    if is_out_of_memory(error, flavour):
        return 507, OUT_OF_RESOURCES
    return UNAVAILABLE, "Prediction failed"


def _json(value: Any) -> bytes:
    """As json.dumps(value, indent=2), whose own indenting is slow."""
    text = json.dumps(value).encode()
    try:
        return msgspec.json.format(text, indent=2)
    except msgspec.DecodeError:  # NaN, Infinity or half a surrogate: Python's own kind of JSON
        return json.dumps(value, indent=2).encode()


def _given(result: Any) -> str:
    what = "nothing" if result is None else f"a value of type {type_name(result)}"
    return f"the handler gave {what}, and must give a list with one result for each request"


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # the user's exception fails when it is looked at
        return ""

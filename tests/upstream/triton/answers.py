"""What clients get, made plain enough for JSON, without what no two runs say alike."""

import base64
import gzip
import json
import zlib
from collections.abc import Mapping
from typing import Any

import grpc
from google.protobuf import json_format
from tritonclient.utils import InferenceServerException

TRACEBACK = "\n\nAt:"  # where one begins in a message
TOO_LATE = "StatusCode.DEADLINE_EXCEEDED"
TIMES = {"ns", "last_inference"}  # of statistics


def failure(error: Exception) -> dict[str, Any]:
    """An error as an answer."""
    if isinstance(error, InferenceServerException):
        status = None if error.status() is None else str(error.status())
        if status == TOO_LATE:
            return {"status": status}  # whoever notices first, client or server, says it in its own words
        return {"status": status, "error": _one_line(error.message())}
    if isinstance(error, grpc.RpcError):
        return {"status": str(error.code()), "error": _one_line(error.details())}
    return {"raised": type(error).__name__}


def answer(result: Any, *, reads: bool = True) -> dict[str, Any]:
    """The head of an answer and the values of its outputs."""
    response = result.get_response()
    if not isinstance(response, dict):
        response = json_format.MessageToDict(response, preserving_proto_field_name=True)
        response.pop("raw_output_contents", None)
    head: dict[str, Any] = tidy(response)
    for output in head.get("outputs", []):
        output.pop("data", None)
        output.get("parameters", {}).pop("binary_data_size", None)
        if reads:
            found = result.as_numpy(output["name"])
            output["values"] = None if found is None else values_of(found)
    return head


def told(result: Any, error: Any) -> dict[str, Any]:
    """One message of a stream."""
    return failure(error) if error is not None else answer(result)


def is_last(message: dict[str, Any]) -> bool:
    """Whether a message of a stream is the last of its request."""
    if "error" in message or "raised" in message:
        return True
    return bool(message.get("parameters", {}).get("triton_final_response", {}).get("bool_param"))


def values_of(array: Any) -> list[Any]:
    """The values of an array in one list; bytes as text."""
    return [value.decode("latin-1") if isinstance(value, bytes) else value for value in array.flatten().tolist()]


def tidy(value: Any) -> Any:
    """An answer without what no two runs say alike."""
    if isinstance(value, dict):
        return {str(key): tidy(item) for key, item in value.items() if key not in TIMES}
    if isinstance(value, list | tuple):
        return [tidy(item) for item in value]
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, str):
        return _one_line(value) if TRACEBACK in value else value
    return value if isinstance(value, int | float | bool | None) else str(value)


def body_of(data: bytes, headers: Mapping[str, str]) -> Any:
    packing = headers.get("content-encoding")
    if packing:
        data = gzip.decompress(data) if packing == "gzip" else zlib.decompress(data)
    size = headers.get("inference-header-content-length")
    head, tail = (data[: int(size)], data[int(size) :]) if size else (data, b"")
    try:
        read: Any = json.loads(head.decode())
    except ValueError:
        return _text(data)
    if isinstance(read, dict) and set(read) == {"error"}:
        return {"error": _one_line(read["error"])}
    return {"json": tidy(read), "bytes": _text(tail)} if tail else tidy(read)


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(data).decode()


def _one_line(text: str | None) -> str:
    """A message without the traceback behind it."""
    return (text or "").split(TRACEBACK)[0].strip()

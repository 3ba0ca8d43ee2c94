"""TorchServe handlers that can and cannot take several requests at once; each is named by the model that uses it."""

import json
import os
import random
import time
from typing import Any

from ts.handler_utils.utils import send_intermediate_predict_response  # type: ignore[import-not-found]


def text(row: Any) -> str:
    body = row.get("body", b"")
    return body.decode() if isinstance(body, bytes | bytearray) else str(body)


def ran(data: Any) -> None:
    """Say how many requests came together, for whoever reads the output."""
    print(f"rows {len(data)}")


def honest(data: Any, context: Any) -> Any:
    if data is None:
        return None
    ran(data)
    context.metrics.add_counter("Rows", len(data))
    if any("bad" in text(row) for row in data):
        raise ValueError("a bad one")
    return [{"text": text(row), "score": len(text(row)) / 3} for row in data]


def first_only(data: Any, context: Any) -> Any:
    return data and [text(data[0]).upper()]


def repeated(data: Any, context: Any) -> Any:
    return data and [text(data[0]).upper()] * len(data)


def moody(data: Any, context: Any) -> Any:
    return data and [{"text": text(row), "luck": random.random()} for row in data]


def alone_only(data: Any, context: Any) -> Any:
    if data is None:
        return None
    (row,) = data
    return [text(row).upper()]


def mortal(data: Any, context: Any) -> Any:
    if data is not None and len(data) > 1:
        os._exit(3)
    return data and [text(row).upper() for row in data]


def talkative(data: Any, context: Any) -> Any:
    if data is None:
        return None
    ran(data)
    send_intermediate_predict_response(["so "] * len(data), context.request_ids, "more", 200, context)
    return [text(row) for row in data]


def letters(data: Any, context: Any) -> Any:
    """Letter by letter: each request gets the letters of its text, one a step, with the number of rows of the step."""
    if data is None:
        context.left = {}
        return None
    for index, row in enumerate(data):
        if row:
            context.left[context.get_request_id(index)] = list(text(row))
    if any("!" in context.left[context.get_request_id(index)][:1] for index in range(len(data))):
        raise ValueError("a step failed")
    pieces, criteria = [], []
    for index in range(len(data)):
        left = context.left[context.get_request_id(index)]
        pieces.append(f"{left.pop(0)}{len(data)} ")
        criteria.append(lambda result, left=left: None if result.startswith("?") else not left)
    context.stopping_criteria = criteria
    context.metrics.add_counter("Steps", 1)
    return pieces


def plain(data: Any, context: Any) -> Any:
    """Without criteria: a request is over after one step, whatever it says."""
    if data is None:
        return None
    for index, row in enumerate(data):
        if text(row) == "header":
            context.set_response_header(index, "ts_stream_next", "true")
    return [json.dumps([text(row), len(data)]) for row in data]


def patient(data: Any, context: Any) -> Any:
    """Answers once the file that the first request names is there."""
    while data is not None and not os.path.exists(text(data[0])):
        time.sleep(0.01)
    return data and ["there"] * len(data)

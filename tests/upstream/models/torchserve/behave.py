"""What the echo models do: report what reached them, or whatever the request's `do` asks for."""

import json
import os
import time


def handle(data, context, refusal, send=None):
    """One answer per row; `refusal` is the server's PredictionException, `send` its way to stream."""
    if data is None:
        return None
    wishes = [wish(row) for row in data]
    for index, wanted in enumerate(wishes):
        if "sleep" in wanted:
            time.sleep(wanted["sleep"])
        fail(wanted, refusal)
        if "whole" in wanted:
            return whole(wanted["whole"], len(data))
        dress(wanted, index, context)
    stream(wishes, context, send)
    return [one(row, wishes[index], index, context, len(data)) for index, row in enumerate(data)]


def wish(row):
    body = row.get("body", row.get("data")) if isinstance(row, dict) else row
    if isinstance(body, (bytes, bytearray)):
        try:
            body = json.loads(bytes(body))
        except ValueError:
            return {}
    return body["do"] if isinstance(body, dict) and isinstance(body.get("do"), dict) else {}


def fail(wanted, refusal):
    if "refuse" in wanted:
        raise refusal(wanted["refuse"], wanted["code"]) if "code" in wanted else refusal(wanted["refuse"])
    if "raise" in wanted:
        kinds = {"value": ValueError, "memory": MemoryError, "runtime": RuntimeError, "key": KeyError}
        raise kinds[wanted["raise"]](wanted.get("text", "as asked"))
    if "exit" in wanted:
        os._exit(wanted["exit"])


def whole(kind, count):
    """An answer for the batch that is not one item per row."""
    answers = {
        "dict": {"a": 1},
        "text": "not a list",
        "none": None,
        "tuple": ("a",) * count,
        "more": ["a"] * (count + 1),
        "fewer": ["a"] * (count - 1),
    }
    return answers[kind]


def dress(wanted, index, context):
    """Set what travels beside the body."""
    if "status" in wanted:
        context.set_response_status(wanted["status"], wanted.get("phrase", ""), index)
    if "type" in wanted:
        context.set_response_content_type(index, wanted["type"])
    for name, value in wanted.get("headers", {}).items():
        context.set_response_header(index, name, value)


def stream(wishes, context, send):
    """Send all but the last piece ahead of the answer; every row of a batch gets its own."""
    pieces = max((len(wanted.get("stream", ())) for wanted in wishes), default=0)
    for position in range(pieces - 1):
        send([wanted["stream"][position] for wanted in wishes], context.request_ids, "more to come", 200, context)


def one(row, wanted, index, context, count):
    if "stream" in wanted:
        return wanted["stream"][-1]
    if "return" in wanted:
        return item(wanted["return"])
    if "about" in wanted:
        return about(context)
    return report(row, index, context, count)


def item(kind):
    if kind == "tensor":
        import torch

        return torch.tensor([1.0, 2.0])
    kinds = {
        "bytes": b"\x00\x01\xff",
        "bytearray": bytearray(b"array"),
        "text": "caf\u00e9",
        "empty": "",
        "none": None,
        "number": 7,
        "float": 0.5,
        "true": True,
        "list": [1, "two", None],
        "nested": {"a": {"b": [1, 2]}, "\u00e9": "\u00fc"},
        "nan": float("nan"),
        "object": object(),
        "set": {1},
        "big": "x" * 200_000,
    }
    return kinds[kind]


def about(context):
    """What the context says of the model."""
    properties = context.system_properties
    names = ("gpu_id", "batch_size", "server_name", "limit_max_image_pixels")
    return {
        "model_name": context.model_name,
        "manifest": context.manifest.get("model"),
        "properties": {name: properties[name] for name in names if name in properties},
        "model_dir": os.path.isdir(properties["model_dir"]),
        "in_model_dir": os.path.realpath(os.getcwd()) == os.path.realpath(properties["model_dir"]),
        "yaml": getattr(context, "model_yaml_config", "none"),
    }


def report(row, index, context, count):
    """What this row brought with it."""
    headers = context.get_all_request_header(index)
    return {
        "row": {name: kind(value) for name, value in sorted(row.items())} if isinstance(row, dict) else kind(row),
        "headers": {name: headers[name] for name in sorted(headers, key=str.lower)},
        "batch": count,
        "id": isinstance(context.get_request_id(index), str),
    }


def kind(value):
    if isinstance(value, (bytes, bytearray)):
        value, name = bytes(value).decode("latin-1"), type(value).__name__
        return {"type": name, "value": value}
    return {"type": type(value).__name__, "value": value}

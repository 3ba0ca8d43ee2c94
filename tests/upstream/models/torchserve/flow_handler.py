"""The functions of a workflow: one before the models, one where they meet."""

import json


def before(data, context):
    if data is None:
        return None
    text = data[0].get("data") or data[0].get("body")
    if isinstance(text, (bytes, bytearray)):
        text = bytes(text).decode()
    if text == "fail":
        raise ValueError("as asked")
    return [json.dumps({"body": text})]


def join(data, context):
    if data is None:
        return None
    return [{name: json.loads(bytes(value)) for name, value in sorted(row.items())} for row in data]

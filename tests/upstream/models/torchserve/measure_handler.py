"""A model of a workflow: how long the text is, times what the model's name says."""

import json


def handle(data, context):
    if data is None:
        return None
    answers = []
    for row in data:
        given = row.get("data") or row.get("body")
        if isinstance(given, (bytes, bytearray)):
            given = json.loads(bytes(given))
        answers.append({"length": len(given["body"]), "keys": sorted(row), "type": type(row.get("body")).__name__})
    return answers

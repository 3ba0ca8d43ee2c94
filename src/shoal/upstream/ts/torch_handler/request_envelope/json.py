"""JSONEnvelope: requests of the form {"instances": [...]}, answered with {"predictions": [...]}."""

import json
from base64 import b64decode
from typing import Any

from shoal.upstream.ts.torch_handler.request_envelope.base import BaseEnvelope, body_of


class JSONEnvelope(BaseEnvelope):
    """Gives the handler the instances of all rows as one list, and each row its own predictions back."""

    def __init__(self, handle_fn: Any) -> None:
        super().__init__(handle_fn)
        self._lengths: list[int] = []

    def parse_input(self, data: list[Any]) -> list[Any]:
        """Every row's instances, one after the other."""
        batches = [[_decoded(instance) for instance in body_of(row)["instances"]] for row in data]
        self._lengths = [len(batch) for batch in batches]
        return [instance for batch in batches for instance in batch]

    def format_output(self, data: Any) -> list[str]:
        """Each row's predictions as JSON text."""
        answers, start = [], 0
        for length in self._lengths:
            answers.append(json.dumps({"predictions": data[start : start + length]}))
            start += length
        return answers


def _decoded(instance: Any) -> Any:
    """An instance with its base64 values as bytes: itself, or one of its fields."""
    if not isinstance(instance, dict):
        return instance
    if list(instance) == ["b64"]:
        return b64decode(instance["b64"])
    return {
        name: b64decode(value["b64"]) if isinstance(value, dict) and list(value) == ["b64"] else value
        for name, value in instance.items()
    }

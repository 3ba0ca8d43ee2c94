"""A model of tensors without a framework: gives its inputs back, or fails, or counts, as its settings say."""

import struct
import time
from collections.abc import Iterator
from typing import Any

import shoal
from shoal.answer import Answer, Head
from shoal.tensor import ANSWER, join, unpack_strings


class Tensors:
    def initialize(self, context: shoal.Context) -> None:
        self.inputs: dict[str, tuple[str, int, list[int]]] = context.parameters["inputs"]
        self.does: str = context.parameters["does"]

    def handle(self, data: list[dict[str, Any]], context: shoal.Context) -> list[Any]:
        for index in range(len(data)):
            context.set_response_content_type(index, ANSWER)
        return [self.act({name: bytes(value) for name, value in row.items()}) for row in data]

    def act(self, row: dict[str, bytes]) -> Any:
        if self.does == "echo":
            return self.echo(row)
        (number,) = struct.unpack("<i", row["IN"])
        if self.does == "count":
            return counting(number)
        if number < 0:
            raise RuntimeError("boom")
        if number > 1000:
            time.sleep(number / 1e6)
            return self.echo(row)
        return shoal.HandlerFailed("bad row", status=400) if number else self.echo(row)

    def echo(self, row: dict[str, bytes]) -> bytes:
        heads, buffers = [], []
        for name, value in row.items():
            datatype, width, dims = self.inputs[name]
            count = len(value) // width if width else len(unpack_strings(value))
            for dim in dims:
                count //= dim
            heads.append(Head(name.replace("IN", "OUT"), datatype, [count, *dims], len(value)))
            buffers.append(value)
        return join(Answer(heads), buffers)


def counting(number: int) -> Iterator[bytes]:
    for value in range(abs(number)):
        data = struct.pack("<i", value)
        yield join(Answer([Head("OUT", "INT32", [1, 1], 4)]), [data])
    if number < 0:
        yield join(Answer([], error="late", code="INVALID_ARG"), [])

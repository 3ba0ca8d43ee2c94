"""Bodies of the open inference protocol, made from what a model says of its inputs."""

import json
import random
import struct
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any, Literal

from shoal.errors import InvalidInput
from shoal.tools.samples import JSON, Sample

Form = Literal["json", "binary"]
MOST = 64 * 1024 * 1024  # elements
FORMATS = {
    **{"BOOL": "?", "UINT8": "B", "INT8": "b", "UINT16": "H", "INT16": "h", "UINT32": "I", "INT32": "i"},
    **{"UINT64": "Q", "INT64": "q", "FP16": "e", "FP32": "f", "FP64": "d"},
}
HEAD_SIZE = "Inference-Header-Content-Length"


def read_shapes(texts: Sequence[str]) -> dict[str, list[int]]:
    """Read NAME=1,3,224,224."""
    found = {}
    for text in texts:
        name, _, dims = text.partition("=")
        if not name or not all(word.strip().isdecimal() and int(word) for word in dims.split(",")):
            raise InvalidInput(f"--shape is written NAME=1,3,224,224, got {text!r}")
        found[name] = [int(word) for word in dims.split(",")]
    return found


def generate(metadata: Mapping[str, Any], shapes: Mapping[str, list[int]], form: Form) -> tuple[Sample, dict[str, str]]:
    """Make one request of random values, the same for the same metadata; gives the body and its extra headers."""
    heads: list[dict[str, Any]] = []
    raw = []
    for head, values in make_up(metadata, shapes):
        if form == "json":
            heads.append({**head, "data": values})
        else:
            raw.append(packed(head["datatype"], values))
            heads.append({**head, "parameters": {"binary_data_size": len(raw[-1])}})
    body: dict[str, Any] = {"inputs": heads}
    if form == "json":
        return Sample(json.dumps(body).encode(), JSON, "tensors"), {}
    top = json.dumps({**body, "parameters": {"binary_data_output": True}}).encode()
    return Sample(b"".join((top, *raw)), "application/octet-stream", "tensors"), {HEAD_SIZE: str(len(top))}


def make_up(metadata: Mapping[str, Any], shapes: Mapping[str, list[int]]) -> Iterator[tuple[dict[str, Any], list[Any]]]:
    """Give each input that a model names, with its shape, and values for it."""
    inputs = metadata.get("inputs")
    if not isinstance(inputs, list) or not inputs:
        raise InvalidInput("the server's metadata names no inputs; give the body with --input")
    if unknown := shapes.keys() - {each["name"] for each in inputs}:
        names = ", ".join(each["name"] for each in inputs)
        raise InvalidInput(f"--shape names {', '.join(sorted(unknown))}; the model's inputs are: {names}")
    source = random.Random(1)
    for each in inputs:
        name, datatype = each["name"], each["datatype"]
        shape = shapes.get(name) or [size if size > 0 else 1 for size in map(int, each["shape"])]
        yield {"name": name, "datatype": datatype, "shape": shape}, _values(datatype, prod(shape), source)


def _values(datatype: str, count: int, source: random.Random) -> list[Any]:
    if count > MOST:
        raise InvalidInput(f"a tensor of {count} elements is more than a request should carry ({MOST})")
    if datatype == "BYTES":
        return [f"text {source.randrange(1000)}" for _ in range(count)]
    if datatype == "BOOL":
        return [source.random() < 0.5 for _ in range(count)]
    if datatype in ("FP16", "FP32", "FP64"):
        return [round(source.random(), 4) for _ in range(count)]
    if datatype in FORMATS:
        return [source.randrange(100) for _ in range(count)]
    raise InvalidInput(f"values of datatype {datatype} cannot be made up; give the body with --input")


def packed(datatype: str, values: list[Any]) -> bytes:
    """Write values as they go over the wire in binary."""
    if datatype == "BYTES":
        return b"".join(struct.pack("<I", len(text)) + text.encode() for text in values)
    return struct.pack(f"<{len(values)}{FORMATS[datatype]}", *values)

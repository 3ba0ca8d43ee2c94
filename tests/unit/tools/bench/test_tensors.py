import json
import struct
from typing import Any

import pytest

from shoal.errors import InvalidInput
from shoal.tools.bench.tensors import generate, read_shapes

METADATA = {
    "inputs": [
        {"name": "x", "datatype": "FP32", "shape": [-1, 2]},
        {"name": "t", "datatype": "BYTES", "shape": [1]},
    ]
}


def test_a_json_body_has_every_input_in_its_shape() -> None:
    sample, headers = generate(METADATA, {"x": [3, 2]}, "json")
    body = json.loads(sample.body)

    assert [(each["name"], each["shape"], len(each["data"])) for each in body["inputs"]] == [
        ("x", [3, 2], 6),
        ("t", [1], 1),
    ]
    assert (sample.content_type, headers) == ("application/json", {})


def test_a_dimension_of_any_size_is_one() -> None:
    assert json.loads(generate(METADATA, {}, "json")[0].body)["inputs"][0]["shape"] == [1, 2]


def test_a_binary_body_has_its_tensors_behind_the_head() -> None:
    sample, headers = generate(METADATA, {}, "binary")
    size = int(headers["Inference-Header-Content-Length"])
    head, raw = json.loads(sample.body[:size]), sample.body[size:]
    sizes = [each["parameters"]["binary_data_size"] for each in head["inputs"]]

    assert sum(sizes) == len(raw)
    assert sizes[0] == 8
    assert all(0 <= value <= 1 for value in struct.unpack("<2f", raw[:8]))
    assert struct.unpack("<I", raw[8:12])[0] == len(raw) - 12


@pytest.mark.parametrize("datatype", ["BOOL", "UINT8", "INT8", "UINT16", "INT16", "FP16", "INT32", "UINT64", "FP64"])
def test_every_datatype_can_be_made_up(datatype: str) -> None:
    metadata = {"inputs": [{"name": "x", "datatype": datatype, "shape": [4]}]}

    assert generate(metadata, {}, "json")[0].body
    assert generate(metadata, {}, "binary")[0].body


@pytest.mark.parametrize(
    ("metadata", "shapes", "problem"),
    [
        ({}, {}, "names no inputs"),
        ({"inputs": []}, {}, "names no inputs"),
        (METADATA, {"y": [1]}, "the model's inputs are: x, t"),
        ({"inputs": [{"name": "x", "datatype": "BF16", "shape": [1]}]}, {}, "BF16 cannot be made up"),
        (METADATA, {"x": [10**6, 10**6]}, "more than a request should carry"),
    ],
)
def test_what_cannot_be_made_up_is_said(metadata: dict[str, Any], shapes: dict[str, list[int]], problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        generate(metadata, shapes, "json")


def test_shapes_are_read() -> None:
    assert read_shapes(["x=1,3,224", "y=2"]) == {"x": [1, 3, 224], "y": [2]}
    for text in ("x", "x=", "=1", "x=1,a", "x=0"):
        with pytest.raises(InvalidInput, match="--shape"):
            read_shapes([text])

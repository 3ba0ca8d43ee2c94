"""What each envelope hands to the handler and what it makes of the result."""

import base64
import math
from typing import Any

import pytest

from shoal.upstream.ts.context import Context, RequestProcessor
from shoal.upstream.ts.torch_handler.request_envelope.base import BaseEnvelope
from shoal.upstream.ts.torch_handler.request_envelope.body import BodyEnvelope
from shoal.upstream.ts.torch_handler.request_envelope.json import JSONEnvelope
from shoal.upstream.ts.torch_handler.request_envelope.kserve import KServeEnvelope
from shoal.upstream.ts.torch_handler.request_envelope.kservev2 import KServev2Envelope

B64 = base64.b64encode(b"bee").decode()


def run(kind: type[BaseEnvelope], rows: list[Any], result: Any = None, **headers: Any) -> tuple[Any, Any]:
    """What the handler saw, and what came out when it gave `result`, or else what it saw."""
    context = Context("m", "/", {"model": {"modelName": "bees", "modelVersion": "2.5"}}, 1, None, "0.12.0")
    context.request_ids = {0: "r0"}
    context.request_processor = [RequestProcessor(headers)]
    seen: list[Any] = []

    def handle(data: Any, _: Any) -> Any:
        seen.append(data)
        return data if result is None else result

    out = kind(handle).handle(rows, context)
    return seen[0], out


def test_body_takes_each_rows_data_or_body_out() -> None:
    rows = [{"data": 1}, {"body": b"x"}, {"data": b"", "body": 2}, {"other": 3}]

    assert run(BodyEnvelope, rows) == ([1, b"x", 2, None], [1, b"x", 2, None])


def test_json_joins_the_instances_and_parts_the_predictions() -> None:
    rows = [{"body": {"instances": [1, 2]}}, {"data": {"instances": [3]}}]

    assert run(JSONEnvelope, rows) == ([1, 2, 3], ['{"predictions": [1, 2]}', '{"predictions": [3]}'])


@pytest.mark.parametrize(
    ("instance", "seen"),
    [
        ({"b64": B64}, b"bee"),
        ({"x": {"b64": B64}, "y": 1}, {"x": b"bee", "y": 1}),
        ({"x": [{"b64": B64}]}, {"x": [{"b64": B64}]}),
        ({"b64": B64, "k": 1}, {"b64": B64, "k": 1}),
        ([{"b64": B64}], [{"b64": B64}]),
    ],
)
def test_json_decodes_base64_of_an_instance_and_of_its_fields(instance: Any, seen: Any) -> None:
    assert run(JSONEnvelope, [{"body": {"instances": [instance]}}], ["ok"])[0] == [seen]


@pytest.mark.parametrize("body", [b'{"instances": [1]}', '{"instances": [1]}', {"inputs": [1]}, [1], {"instances": 3}])
def test_json_fails_on_what_is_no_object_with_instances(body: Any) -> None:
    with pytest.raises((TypeError, KeyError)):
        run(JSONEnvelope, [{"body": body}])


@pytest.mark.parametrize("body", [{"instances": [1, 2]}, b'{"instances": [1, 2]}', bytearray(b'{"instances": [1, 2]}')])
def test_kserve_answers_the_first_row_alone(body: Any) -> None:
    rows = [{"body": body}, {"body": {"instances": [3]}}]

    assert run(KServeEnvelope, rows) == ([1, 2], [{"predictions": [1, 2]}])


@pytest.mark.parametrize(("header", "key"), [("True", "explanations"), ("False", "predictions"), (True, "predictions")])
def test_kserve_names_explanations(header: Any, key: str) -> None:
    assert run(KServeEnvelope, [{"body": {"instances": [1]}}], explain=header)[1] == [{key: [1]}]


def test_kserve_leaves_an_empty_result_alone() -> None:
    assert run(KServeEnvelope, [{"body": {"inputs": 3}}]) == (None, None)
    assert run(KServeEnvelope, [{"body": {"instances": []}}]) == ([], [])


def entry(**fields: Any) -> dict[str, Any]:
    return {"name": "x", "shape": [2], "datatype": "INT64", "data": [1, 2], **fields}


@pytest.mark.parametrize(
    ("given", "data"),
    [
        (entry(), [1, 2]),
        (entry(shape=[2, 2], datatype="FP32", data=[1, 2, 3, 4]), [[1, 2], [3, 4]]),
        (entry(datatype="BYTES", data=["abc", "def"]), "abc"),
        (entry(data=[[1], [2]]), [1, 2]),
        (entry(datatype="BOOL", data=[True, False]), [True, False]),
    ],
)
def test_kservev2_gives_inputs_in_their_shape(given: Any, data: Any) -> None:
    seen, _ = run(KServev2Envelope, [{"body": {"inputs": [given]}}], [1])

    assert seen == [{**given, "data": data}]


def test_kservev2_refuses_data_that_has_another_shape() -> None:
    with pytest.raises(ValueError, match="reshape"):
        run(KServev2Envelope, [{"body": {"inputs": [entry(shape=[3])]}}])


@pytest.mark.parametrize(
    ("result", "datatype", "data"),
    [
        ([[1, 2, 3]], "INT64", [1, 2, 3]),
        ([[[1.5, 2.0], [3.0, 4.0]]], "FP64", [1.5, 2.0, 3.0, 4.0]),
        (["s"], "BYTES", ["s"]),
        ([{"a": 1}], "BYTES", [{"a": 1}]),
        ([[True]], "BOOL", [True]),
        ([None], "BYTES", [None]),
    ],
)
def test_kservev2_flattens_each_output(result: Any, datatype: str, data: list[Any]) -> None:
    _, out = run(KServev2Envelope, [{"body": {"id": "q", "inputs": [entry()]}}], result)

    assert out == [
        {
            "id": "q",
            "model_name": "bees",
            "model_version": "2.5",
            "outputs": [{"name": "x", "datatype": datatype, "data": data, "shape": [len(data)]}],
        }
    ]


def test_kservev2_names_outputs_after_inputs_and_itself_after_the_request() -> None:
    rows = [{"body": b'{"inputs": [' + b", ".join([_input(b"x"), _input(b"y")]) + b"]}"}]
    _, out = run(KServev2Envelope, rows, [[1], [2]])

    assert out[0]["id"] == "r0"
    assert [output["name"] for output in out[0]["outputs"]] == ["x", "y"]


def _input(name: bytes) -> bytes:
    return b'{"name": "%s", "shape": [1], "datatype": "FP32", "data": [1]}' % name


def test_kservev2_knows_the_types_of_arrays() -> None:
    numpy = pytest.importorskip("numpy")
    arrays = {"FP32": numpy.float32(3), "UINT8": numpy.ones((2, 2), "uint8"), "FP16": numpy.zeros(1, "float16")}
    for datatype, array in arrays.items():
        _, out = run(KServev2Envelope, [{"body": {"inputs": [entry()]}}], [array])
        assert out[0]["outputs"][0]["datatype"] == datatype
        assert out[0]["outputs"][0]["shape"] == [math.prod(array.shape)]

import json
import struct
from typing import Any

import pytest

from shoal.answer import Answer, Head
from shoal.errors import HandlerFailed, InvalidInput
from shoal.frontend.kserve.answers import write, write_generated
from shoal.frontend.kserve.asked import Asked, Wish
from shoal.frontend.kserve.classify import MOST_ELEMENTS, classify
from shoal.frontend.kserve.controls import NO_CONTROLS, Controls
from shoal.frontend.kserve.plan import Plan
from shoal.payload import Result
from shoal.tensor import ANSWER, join, pack_strings, unpack_strings
from tests.unit.frontend.kserve.bed import plan_of, spec, tensors

FOUR = struct.pack("<4f", 1, 2, 3, 4)


def asked(*wishes: Wish, id: str = "", binary: bool = False) -> Asked:
    return Asked(id, [], {wish.name: wish for wish in wishes} or None, Controls(is_binary=binary))


def written(result: Result, request: Asked, plan: Plan | None = None) -> tuple[dict[str, Any], bytes, int]:
    pieces, size = write(plan or plan_of(), request, result)
    return json.loads(bytes(pieces[0])), b"".join(pieces[1:]), size


def test_an_answer_in_json_has_upstreams_keys_in_upstreams_order() -> None:
    pieces, size = write(plan_of(), asked(id='a"b'), tensors(("OUT", "FP32", [1, 4], FOUR), parameters={"k": 1}))

    assert size == 0
    assert b"".join(pieces) == (
        b'{"id":"a\\"b","model_name":"m","model_version":"1","parameters":{"k":1},'
        b'"outputs":[{"name":"OUT","datatype":"FP32","shape":[1,4],"data":[1.0,2.0,3.0,4.0]}]}'
    )


def test_without_an_id_and_parameters_there_are_none() -> None:
    body, tail, _ = written(tensors(("OUT", "FP32", [1, 4], FOUR)), asked())

    assert list(body) == ["model_name", "model_version", "outputs"] and not tail


def test_bytes_follow_the_json_in_the_order_of_the_outputs() -> None:
    result = tensors(("A", "FP32", [1, 4], FOUR), ("B", "UINT8", [1, 2], b"xy"), ("C", "INT8", [1, 1], b"\xff"))
    plan = plan_of(outputs=[spec("A"), spec("B", "UINT8", [2]), spec("C", "INT8", [1])])
    body, tail, size = written(result, asked(Wish("C", is_binary=True), Wish("B"), Wish("A", is_binary=True)), plan)

    assert [row["name"] for row in body["outputs"]] == ["A", "B", "C"]
    assert [row.get("parameters") for row in body["outputs"]] == [
        {"binary_data_size": 16},
        None,
        {"binary_data_size": 1},
    ]
    assert body["outputs"][1]["data"] == [120, 121]
    assert tail == FOUR + b"\xff" and size > 0


def test_the_requests_own_flag_is_for_outputs_that_are_not_listed() -> None:
    result = tensors(("OUT", "FP32", [1, 4], FOUR))

    assert written(result, asked(binary=True))[1] == FOUR
    assert written(result, asked(Wish("OUT"), binary=True))[0]["outputs"][0]["data"] == [1, 2, 3, 4]


def test_outputs_nobody_asked_for_are_dropped() -> None:
    result = tensors(("A", "UINT8", [1, 1], b"x"), ("B", "UINT8", [1, 1], b"y"))

    assert [row["name"] for row in written(result, asked(Wish("B")))[0]["outputs"]] == ["B"]


def test_empty_binary_outputs_need_no_bytes_behind_the_json() -> None:
    body, tail, size = written(tensors(("OUT", "FP32", [1, 0], b"")), asked(binary=True))

    assert body["outputs"][0]["parameters"] == {"binary_data_size": 0} and (tail, size) == (b"", 0)


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (Result(b"", "text/plain"), "instead of tensors"),
        (Result(b"\xff\xff\xff\xff", ANSWER), "cannot be read"),
        (tensors(("OUT", "FP32", [1, 4], b"short")), "is no FP32 of shape"),
        (tensors(("OUT", "FP31", [1, 4], FOUR)), "is no FP31 of shape"),
        (Result(join(Answer([Head("OUT", "UINT8", [9], 9)]), [b"x"]), ANSWER), "of 1 bytes is no UINT8"),
        (tensors(("OUT", "FP16", [1, 2], b"abcd")), "sending FP16 data via JSON is not supported"),
    ],
)
def test_an_answer_that_is_none_is_the_models_failure(result: Result, words: str) -> None:
    with pytest.raises(HandlerFailed, match=words):
        write(plan_of(), asked(), result)


def test_an_error_inside_a_stream_keeps_its_code() -> None:
    with pytest.raises(HandlerFailed, match="late") as failed:
        write(plan_of(), asked(), tensors(error="late", code="UNAVAILABLE"))
    assert failed.value.status == 503


def test_a_generation_is_one_object_with_sorted_keys() -> None:
    result = tensors(
        ("OUT", "FP32", [1, 4], FOUR), ("Z", "BYTES", [1, 1], pack_strings([b"x"])), parameters={"p": True}
    )

    assert write_generated(plan_of(), asked(id="7"), result) == (
        b'{"OUT":[1.0,2.0,3.0,4.0],"Z":"x","id":"7","model_name":"m","model_version":"1","p":true}'
    )
    with pytest.raises(HandlerFailed, match="BF16"):
        write_generated(plan_of(), asked(), tensors(("OUT", "BF16", [1], b"ab")))


def classes(
    datatype: str, shape: list[int], data: bytes, most: int, *labels: str, rows: bool = True
) -> tuple[list[int], list[bytes]]:
    head, packed = classify(Head("OUT", datatype, shape, len(data)), memoryview(data), most, labels, has_rows=rows)
    assert head.datatype == "BYTES" and head.size == len(packed)
    return head.shape, unpack_strings(packed)


def test_classes_are_the_largest_of_each_row() -> None:
    data = struct.pack("<6f", 1, 5, 3, 9, 8, 7)

    assert classes("FP32", [2, 3], data, 2, "apple", "banana") == (
        [2, 2], [b"5.000000:1:banana", b"3.000000:2", b"9.000000:0:apple", b"8.000000:1:banana"]
    )  # fmt: skip
    assert classes("FP32", [2, 3], data, 1, rows=False) == ([1], [b"9.000000:3"])
    assert classes("FP32", [1, 2, 3], data, 99)[0] == [1, 6]


def test_whole_numbers_are_classified_as_they_are() -> None:
    assert classes("INT8", [1, 3], b"\xff\x05\x05", 3) == ([1, 3], [b"5:1", b"5:2", b"-1:0"])


def test_only_numbers_are_classified_and_not_too_many() -> None:
    for datatype in ("BYTES", "BOOL", "FP16"):
        with pytest.raises(InvalidInput, match="class result not available for output due to unsupported type"):
            classes(datatype, [1, 1], b"", 1)
    with pytest.raises(InvalidInput, match="none are classified"):
        classes("UINT8", [1, MOST_ELEMENTS + 1], b"", 1)


def test_an_empty_output_has_no_classes() -> None:
    assert classes("FP32", [1, 0], b"", 3) == ([1, 0], [])


def test_classified_outputs_go_out_in_either_form() -> None:
    result = tensors(("OUT", "FP32", [1, 4], FOUR))
    plan = plan_of(outputs=[spec("OUT", labels=["a", "b", "c", "d"])])

    body, _, _ = written(result, asked(Wish("OUT", classes=1)), plan)
    assert body["outputs"] == [{"name": "OUT", "datatype": "BYTES", "shape": [1, 1], "data": ["4.000000:3:d"]}]
    _, tail, _ = written(result, asked(Wish("OUT", classes=1, is_binary=True)), plan)
    assert tail == pack_strings([b"4.000000:3:d"])


def test_nothing_is_said_of_a_request_without_controls() -> None:
    assert Controls({}, None, 0, 0, False, False) == NO_CONTROLS

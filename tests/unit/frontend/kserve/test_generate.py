import contextlib
import json
import math
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core.request import InSequence
from shoal.errors import InvalidInput, ServingError
from shoal.frontend.kserve.asked import Asked
from shoal.frontend.kserve.generate import read_generation, shape_for
from shoal.frontend.kserve.plan import Plan
from tests.unit.frontend.kserve.bed import Bed, plan_of, spec
from tests.unit.frontend.kserve.test_requests import JSON


def read(body: Any, plan: Plan | None = None) -> Asked:
    return read_generation(json.dumps(body).encode(), plan or plan_of(spec("IN", "INT32", [-1])))


def test_keys_that_name_inputs_are_tensors_and_the_others_parameters() -> None:
    asked = read({"IN": [1, 2], "id": "k", "a": 1, "parameters": {"b": "x", "sequence_id": 4}})

    (tensor,) = asked.tensors
    assert (tensor.name, tensor.shape, bytes(tensor.view)) == ("IN", [1, 2], struct.pack("<2i", 1, 2))
    assert asked.id == "k" and asked.wishes is None
    assert asked.controls.parameters == {"id": "k", "a": 1, "b": "x"}
    assert asked.controls.sequence == InSequence(4)


def test_parameters_may_name_inputs_as_well() -> None:
    assert read({"parameters": {"IN": 7}}).tensors[0].shape == [1, 1]


@pytest.mark.parametrize(
    ("dims", "count", "rows", "shape"),
    [
        ([4], 4, True, [1, 4]),
        ([4], 8, True, [2, 4]),
        ([-1], 3, True, [1, 3]),
        ([-1, 2], 6, True, [1, 3, 2]),
        ([2, -1], 6, False, [2, 3]),
        ([-1, -1], 3, False, [1, 3]),
        ([1], 1, False, [1]),
    ],
)
def test_the_innermost_open_dimension_takes_what_is_left(
    dims: list[int], count: int, rows: bool, shape: list[int]
) -> None:
    assert shape_for(spec("IN", dims=dims), count, has_rows=rows) == shape


@pytest.mark.parametrize(("dims", "count", "rows"), [([4], 3, True), ([4], 8, False), ([2, -1], 3, False)])
def test_values_that_fill_no_shape_are_refused(dims: list[int], count: int, rows: bool) -> None:
    with pytest.raises(InvalidInput, match="The schema can not convert input 'IN' to tensor with proper shape"):
        shape_for(spec("IN", dims=dims), count, has_rows=rows)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ([1], "not a JSON object"),
        ({"IN": {"a": 1}}, "The schema can not convert"),
        ({"IN": "x"}, "non-int"),
        ({"IN": 1, "b": [1]}, "parameter 'b' has invalid type"),
        ({"IN": 1, "parameters": {"b": None}}, "parameter 'b' has invalid type"),
        ({"IN": 1, "parameters": 3}, ""),
        ({"IN": 1, "id": 3}, "Unable to parse 'id'"),
    ],
)
def test_what_cannot_be_generated_from_is_refused(body: Any, words: str) -> None:
    if body == {"IN": 1, "parameters": 3}:
        assert read(body).controls.parameters == {"parameters": 3}
        return
    with pytest.raises(InvalidInput, match=words):
        read(body)


def test_nothing_at_all_is_no_request() -> None:
    with pytest.raises(InvalidInput, match="The document is empty"):
        read_generation(b"", plan_of())


@pytest.mark.parametrize("name", ["\ud800", "i\udfffd"])
@pytest.mark.parametrize("verb", ["generate", "infer"])
def test_half_of_a_surrogate_pair_is_refused_wherever_it_stands(verb: str, name: str) -> None:
    bed = Bed()
    bed.add("m", spec("IN", "FP32", [4]))
    right = {"name": "IN", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, math.nan]}
    for body in ({"IN": [1, 2, 3, 4], name: "x"}, {"IN": [1, 2, 3, 4], "x": name}, {"IN": [1, 2, 3, 4], "id": name}):
        sent = body if verb == "generate" else {"inputs": [right], "parameters": body | {"IN": 1}, name: 1}
        answer = bed.ask(f"/v2/models/m/{verb}", sent)
        if answer.exchange.is_answered:
            assert answer.status == 400
    assert all(request.id.isascii() for request in bed.running())


@given(st.dictionaries(st.sampled_from(["IN", "id", "parameters", "x"]), JSON) | JSON)
def test_any_object_is_a_request_or_refused(body: Any) -> None:
    plan = plan_of(spec("IN", "INT32", [-1]))
    with contextlib.suppress(ServingError):
        plan.check(read(body, plan))

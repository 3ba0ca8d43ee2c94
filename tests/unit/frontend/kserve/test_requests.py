import contextlib
import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given as hypothesis_given
from hypothesis import strategies as st

from shoal.errors import InvalidInput, ServingError
from shoal.frontend.kserve.asked import Asked
from shoal.frontend.kserve.memory import Regions
from shoal.frontend.kserve.plan import Plan
from shoal.frontend.kserve.requests import raw_shape, read_request
from tests.unit.frontend.kserve.bed import Memory, behind, binary, given, plan_of, spec

NO_REGIONS = Regions(is_on=False, lend=lambda _: None, largest=0, folder=Path("/nowhere"))


def read(body: Any, head_size: int | None = None, plan: Plan | None = None) -> Asked:
    return read_request(body, head_size, plan or plan_of(), NO_REGIONS)


def read_binary(head: dict[str, Any], *data: bytes, plan: Plan | None = None, memory: bool = False) -> Asked:
    body, headers = binary(head, *data)
    return read(Memory(body) if memory else body, int(headers["Inference-Header-Content-Length"]), plan)


def test_json_and_binary_inputs_may_be_mixed() -> None:
    plan = plan_of(spec("IN0"), spec("IN1", "INT32", [2]), spec("IN2", "UINT8", [3]))
    head = {
        "id": "x",
        "inputs": [behind("IN0"), given("IN1", "INT32", [1, 2], data=[7, 8]), behind("IN2", "UINT8", [1, 3])],
    }

    asked = read_binary(head, b"a" * 16, b"xyz", plan=plan)

    assert asked.id == "x" and asked.wishes is None
    assert [(t.name, t.datatype, t.shape) for t in asked.tensors] == [
        ("IN0", "FP32", [1, 4]),
        ("IN1", "INT32", [1, 2]),
        ("IN2", "UINT8", [1, 3]),
    ]
    assert [bytes(t.view) for t in asked.tensors] == [b"a" * 16, struct.pack("<2i", 7, 8), b"xyz"]


def test_a_tensor_in_lent_memory_is_a_piece_of_that_memory() -> None:
    head = {"inputs": [behind("IN0"), behind("IN1")]}
    body, headers = binary(head, b"a" * 16, b"b" * 16)
    size = int(headers["Inference-Header-Content-Length"])
    block = Memory(body, offset=4096)

    first, second = read(block, size, plan_of(spec("IN0"), spec("IN1"))).tensors

    assert (first.data.offset, first.data.size) == (4096 + size, 16)  # type: ignore[union-attr]  # a piece
    assert (second.data.offset, second.data.size) == (4096 + size + 16, 16)  # type: ignore[union-attr]
    assert bytes(second.view) == b"b" * 16 and second.view.obj is block.data
    first.release()
    first.release()
    assert not block.released, "the second is still needed"
    second.release()
    assert block.released


def test_lent_memory_comes_back_at_once_where_no_tensor_lies_in_it() -> None:
    block = Memory(json.dumps({"inputs": [given()]}).encode())

    asked = read(block)

    assert block.released == 1 and bytes(asked.tensors[0].view) == struct.pack("<4f", 1, 2, 3, 4)


@pytest.mark.parametrize("inputs", [[behind("IN0"), behind("IN1", size=99)], [behind("IN0"), 3], [behind("IN0")]])
def test_lent_memory_comes_back_from_what_is_refused(inputs: list[Any]) -> None:
    body, headers = binary({"inputs": inputs}, b"a" * 40)
    block = Memory(body)

    with pytest.raises(InvalidInput):
        read(block, int(headers["Inference-Header-Content-Length"]), plan_of(spec("IN0"), spec("IN1")))
    assert block.released


def test_a_binary_tensor_may_be_empty() -> None:
    asked = read_binary({"inputs": [behind("IN", "FP32", [1, 0])]}, plan=plan_of(spec("IN", dims=[-1])), memory=True)

    assert asked.tensors[0].size == 0


def test_outputs_say_in_what_form_they_are_wanted() -> None:
    plan = plan_of(outputs=[spec("A"), spec("B"), spec("C")])
    outputs = [
        {"name": "A"},
        {"name": "B", "parameters": {"binary_data": True}},
        {"name": "C", "parameters": {"classification": 2}},
    ]
    asked = read(
        json.dumps({"inputs": [given()], "outputs": outputs, "parameters": {"binary_data_output": True}}).encode(),
        None,
        plan,
    )

    assert asked.wishes is not None
    assert {name: (wish.is_binary, wish.classes) for name, wish in asked.wishes.items()} == {
        "A": (False, 0),
        "B": (True, 0),
        "C": (False, 2),
    }


@pytest.mark.parametrize(
    ("head", "words"),
    [
        ({"inputs": [given(data=...)]}, "But no field is set in input 'IN'"),
        (
            {"inputs": [given(data=[1], parameters={"binary_data_size": 16})]},
            "But set 'data' 'binary_data_size' in input 'IN'",
        ),
        (
            {"inputs": [given(data=..., parameters={"binary_data_size": 16, "shared_memory_region": "r"})]},
            "But set 'binary_data_size' 'shared_memory_region'",
        ),
        ({"inputs": [given(datatype="FLOAT")]}, "invalid datatype for input IN"),
        ({"inputs": [given(data=..., parameters={"binary_data_size": -4})]}, "Unable to parse 'binary_data_size'"),
        ({"inputs": [given(data=..., parameters={"binary_data_size": "4"})]}, "Unable to parse 'binary_data_size'"),
        ({"inputs": [behind()]}, "unexpected size for input 'IN', expecting 16 additional bytes for model 'm'"),
        (
            {"inputs": [given(data=..., parameters={"shared_memory_region": 3})]},
            "Unable to parse 'shared_memory_region'",
        ),
        (
            {"inputs": [given(data=..., parameters={"shared_memory_region": "r"})]},
            "'shared_memory_byte_size' must be specified",
        ),
        (
            {"inputs": [given(data=..., parameters={"shared_memory_region": "r", "shared_memory_byte_size": -1})]},
            "Unable to parse 'shared_memory_byte_size'",
        ),
        (
            {"inputs": [given(data=..., parameters={"shared_memory_region": "r", "shared_memory_byte_size": 1})]},
            "Unable to find shared memory region: 'r'",
        ),
        ({"inputs": [given()], "outputs": [{"name": "OUT"}, {"name": "OUT"}]}, "output 'OUT' is requested twice"),
        (
            {"inputs": [given()], "outputs": [{"name": "OUT", "parameters": {"binary_data": 1}}]},
            "Unable to parse 'binary_data'",
        ),
        (
            {"inputs": [given()], "outputs": [{"name": "OUT", "parameters": {"classification": "a"}}]},
            "Unable to set 'classification'",
        ),
        (
            {
                "inputs": [given()],
                "outputs": [{"name": "OUT", "parameters": {"classification": 1, "shared_memory_region": "r"}}],
            },
            "can't be used with classification",
        ),
        ({"inputs": [given(shape=[2**40, 2**40])]}, "negative or too large"),
    ],
)
def test_what_is_wrong_is_said(head: dict[str, Any], words: str) -> None:
    with pytest.raises(ServingError, match=words):
        read(json.dumps(head).encode())


def test_bytes_that_nobody_asked_for_are_refused() -> None:
    with pytest.raises(InvalidInput, match="unexpected additional input data for model 'm': 4 bytes"):
        read_binary({"inputs": [behind()]}, bytes(20))


@pytest.mark.parametrize("size", [-1, 1000])
def test_a_head_lies_inside_its_body(size: int) -> None:
    with pytest.raises(InvalidInput, match=rf"inference header size should be in range \(0, 2\), got: {size}"):
        read(b"{}", size)


@pytest.mark.parametrize(
    ("dims", "rows", "size", "shape"),
    [([4], 4, 16, [1, 4]), ([-1, 2], 0, 16, [2, 2]), ([-1], 4, 8, [1, 2]), ([-1], 4, 0, [1, 0]), ([4], 4, 12, [1, 4])],
)
def test_a_body_may_be_one_tensor_and_nothing_else(dims: list[int], rows: int, size: int, shape: list[int]) -> None:
    block = Memory(bytes(size), offset=64)
    asked = read(block if size else b"", 0 if size else None, plan_of(spec("IN", dims=dims), rows=rows))

    assert asked.controls.is_binary and asked.wishes is None
    assert (asked.tensors[0].shape, asked.tensors[0].size) == (shape, size)
    if size:
        assert asked.tensors[0].data.offset == 64  # type: ignore[union-attr]


def test_a_raw_string_gets_its_length() -> None:
    block = Memory(b"hello")
    asked = read(block, 0, plan_of(spec("IN", "BYTES", [1])))

    assert bytes(asked.tensors[0].view) == b"\5\0\0\0hello" and block.released
    with pytest.raises(InvalidInput, match=r"must have input shape \[1\]"):
        raw_shape(spec("IN", "BYTES", [2]), 5, has_rows=True, model="m")


def test_a_raw_body_needs_one_input_with_one_open_dimension() -> None:
    with pytest.raises(InvalidInput, match=r"^\[request id: <id_unknown>\] Raw request must only have 1 input"):
        read(b"x", 0, plan_of(spec("IN0"), spec("IN1")))
    with pytest.raises(InvalidInput, match="more than one variable-sized"):
        read(b"x", 0, plan_of(spec("IN", dims=[-1, -1])))


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "name": st.just("IN") | JSON,
        "shape": st.just([1, 4]) | st.lists(st.integers(0, 5), max_size=3) | JSON,
        "datatype": st.sampled_from(["FP32", "BYTES", "INT8", "FP16"]) | JSON,
        "data": st.just([1, 2, 3, 4]) | JSON,
        "parameters": st.fixed_dictionaries(
            {}, optional={"binary_data_size": st.integers(-1, 40) | JSON, "shared_memory_region": JSON}
        )
        | JSON,
    },
)
HEADS = st.fixed_dictionaries(
    {},
    optional={
        "inputs": st.lists(FIELDS, max_size=2) | JSON,
        "outputs": st.lists(st.fixed_dictionaries({"name": st.just("OUT") | JSON, "parameters": JSON}), max_size=2)
        | JSON,
        "parameters": st.dictionaries(st.sampled_from(["priority", "timeout", "sequence_id", "x"]), JSON) | JSON,
        "id": JSON,
    },
)


@hypothesis_given(HEADS, st.binary(max_size=40), st.integers(-3, 3), st.booleans())
def test_any_request_is_read_or_refused_and_memory_comes_back(
    head: dict[str, Any], data: bytes, off: int, in_memory: bool
) -> None:
    text = json.dumps(head).encode()
    block = Memory(text + data)
    plan = plan_of()
    try:
        asked = read(block if in_memory else text + data, len(text) + off, plan)
    except ServingError:
        assert block.released or not in_memory
        return
    with contextlib.suppress(InvalidInput):
        plan.check(asked)
    asked.release()
    assert block.released or not in_memory


@hypothesis_given(st.binary(max_size=60), st.none() | st.integers(-1, 70))
def test_any_bytes_are_read_or_refused(data: bytes, head_size: int | None) -> None:
    with contextlib.suppress(ServingError):
        read(data, head_size)

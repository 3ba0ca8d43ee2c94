import contextlib
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shoal.core.request import InSequence
from shoal.errors import InvalidInput
from shoal.frontend.kserve.controls import NO_CONTROLS, Controls
from shoal.frontend.kserve.heads import LooseHead, read_controls, read_head, read_object
from shoal.frontend.kserve.status import Unsupported

INPUT = '{"name":"IN","shape":[1,4],"datatype":"FP32","data":[1,2,3,4]}'


def test_a_head_is_read_without_looking_into_its_data() -> None:
    head = read_head(f'{{"id":"x","inputs":[{INPUT}],"outputs":[{{"name":"OUT"}}],"model_name":"ignored"}}'.encode())

    assert (head.id, head.inputs[0].shape, head.outputs[0].name) == ("x", [1, 4], "OUT")
    assert bytes(memoryview(head.inputs[0].data)) == b"[1,2,3,4]" and head.inputs[0].has_data


def test_data_that_is_no_json_is_read_at_once() -> None:
    head = read_head(b'{"inputs":[{"name":"IN","shape":[3],"datatype":"FP32","data":[NaN,Infinity,-Infinity]}]}')

    assert isinstance(head, LooseHead)
    assert str(head.inputs[0].data) == "[nan, inf, -inf]" and head.inputs[0].has_data
    assert not read_head(b'{"inputs":[{"name":"NaN","shape":[3],"datatype":"FP32"}]}').inputs[0].has_data


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "failed to parse the request JSON buffer"),
        ("{", "failed to parse the request JSON buffer"),
        ("NaN, ", "failed to parse the request JSON buffer"),
        ("[]", "Unable to parse 'inputs'"),
        ("{}", "Unable to parse 'inputs'"),
        ('{"inputs":{}}', "Unable to parse 'inputs'"),
        ('{"inputs":[3]}', "Unable to parse 'inputs'"),
        ('{"inputs":[{}]}', "Unable to parse 'name'"),
        ('{"inputs":[{"name":1}]}', "Unable to parse 'name'"),
        ('{"inputs":[{"name":"a","shape":[-1]}]}', "Unable to parse 'shape'"),
        ('{"inputs":[{"name":"a","shape":[1.5]}]}', "Unable to parse 'shape'"),
        ('{"inputs":[{"name":"a","shape":"x"}]}', "Unable to parse 'shape'"),
        ('{"inputs":[{"name":"a","shape":[1],"datatype":3}]}', "Unable to parse 'datatype'"),
        ('{"inputs":[{"name":"NaN","shape":[NaN],"datatype":"FP32"}]}', "Unable to parse 'shape'"),
        ('{"inputs":[],"id":5}', "Unable to parse 'id'"),
        ('{"inputs":[],"parameters":[]}', "Unable to parse 'parameters'"),
        ('{"inputs":[],"outputs":[{}]}', "Unable to parse 'name'"),
        ('{"x":' + "[" * 100_000, "failed to parse the request JSON buffer"),
        ('{"inputs":[],"NaN":' + "[" * 100_000, "failed to parse the request JSON buffer"),
        ('{"inputs":[],"NaN":' + "1" * 5000 + ", NaN}", "failed to parse the request JSON buffer"),
    ],
)  # fmt: skip
def test_a_head_that_is_wrong_is_refused_by_the_name_of_the_field(text: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        read_head(text.encode())


@given(st.binary())
@example(b'"\xff"')
@example(b"NaN\xff")
def test_any_bytes_are_a_head_or_refused(data: bytes) -> None:
    for read in (read_head, read_object):
        with contextlib.suppress(InvalidInput):
            read(data)


def test_parameters_are_taken_apart() -> None:
    own = {"a": 1, "b": "x", "c": True, "d": 1.5}
    sent = {"sequence_id": 7, "sequence_start": True, "priority": 2, "timeout": 500, "binary_data_output": True}

    assert read_controls({}) is NO_CONTROLS
    assert read_controls({**own, **sent}) == Controls(own, InSequence(7, True, False), 2, 500, True)
    assert read_controls({"sequence_id": "s", "sequence_end": True}).sequence == InSequence("s", False, True)
    assert read_controls({"sequence_id": 0}).sequence is read_controls({"sequence_id": ""}).sequence is None
    assert read_controls({"sequence_start": True}).sequence == InSequence(0, True, False)


@pytest.mark.parametrize(
    "parameters",
    [
        {"triton_x": 1},
        {"a": None},
        {"a": [1]},
        {"a": {}},
        {"a": 2**64},
        {"priority": -1},
        {"priority": "1"},
        {"priority": True},
        {"timeout": 1.0},
        {"timeout": 2**64},
        {"sequence_id": -1},
        {"sequence_id": 1.5},
        {"sequence_id": True},
        {"sequence_start": 1},
        {"sequence_end": "true"},
        {"binary_data_output": 1},
    ],
)
def test_parameters_that_mean_nothing_are_refused_by_name(parameters: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(parameters))):
        read_controls(parameters)


def test_the_id_of_a_sequence_has_128_characters_at_most() -> None:
    assert read_controls({"sequence_id": "x" * 128}).sequence == InSequence("x" * 128)
    with pytest.raises(Unsupported, match="128 characters"):
        read_controls({"sequence_id": "x" * 129})

"""Requests that become one, and outputs that become answers again."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import HandlerFailed, LoadFailed
from shoal.wire.messages import Failure
from shoal.worker.backends import merging
from shoal.worker.backends.merging import Layout, Merged, make_program
from shoal.worker.backends.received import Asked
from shoal.worker.backends.tensors import Call
from tests.process.tensor_front import interface, same, spec, values
from tests.unit.worker.backends.making import ask, config

X = np.arange(6, dtype=np.float32).reshape(3, 2)
IO = interface([spec("x", "FP32", 2)], [spec("y", "FP32", 2)], 8)


def layout(io: dict[str, Any] = IO, **more: Any) -> Layout:
    owns = more.pop("owns_inputs", False)
    return Layout(config(Path("/m/1"), "identity", io, **more), owns_inputs=owns)


def call(*outputs: str, **arrays: Any) -> Call:
    made = Call({}, Asked(outputs=list(outputs)))
    made.arrays = arrays
    return made


def answers(made: Layout, merged: list[Merged], *outputs: dict[str, Any]) -> list[Any]:
    return [values(written.body) for written in made.split(list(zip(merged, outputs, strict=True)))]


def test_a_lone_request_is_fed_where_it_lies() -> None:
    (merged,) = layout().merge([call(x=X)])
    assert merged.arrays["x"] is X and not merged.lent


def test_a_lone_request_is_copied_where_floats_may_not_lie() -> None:
    unaligned = np.frombuffer(b"\0" + X.tobytes(), np.uint8)[1:].view(np.float32).reshape(3, 2)
    assert not unaligned.flags.aligned
    (merged,) = layout().merge([call(x=unaligned)])
    assert merged.arrays["x"].flags.aligned and same(merged.arrays["x"], X)


def test_a_model_that_may_write_is_fed_a_copy() -> None:
    (merged,) = layout(owns_inputs=True).merge([call(x=X)])
    merged.arrays["x"][:] = 9
    assert X[0, 0] == 0


def test_rows_are_merged_and_split_in_order() -> None:
    made = layout()
    merged = made.merge([call(x=X), call(x=X[:1] + 10)])
    assert [each.rows for each in merged] == [[3, 1]] and merged[0].total == 4
    assert same(merged[0].arrays["x"], np.concatenate([X, X[:1] + 10]))
    first, second = answers(made, merged, {"y": -merged[0].arrays["x"]})
    assert same(first["y"], -X) and same(second["y"], -(X[:1] + 10))


@given(st.lists(st.integers(1, 4), min_size=1, max_size=6))
def test_whatever_the_rows_each_request_gets_its_own_back(rows: list[int]) -> None:
    made = layout()
    sent = [np.full((count, 2), number, np.float32) for number, count in enumerate(rows)]
    merged = made.merge([call(x=array) for array in sent])
    told = answers(made, merged, {"y": merged[0].arrays["x"]})
    assert all(same(answer["y"], array) for answer, array in zip(told, sent, strict=True))


def test_memory_is_used_again_but_not_while_it_is_looked_at() -> None:
    made = layout()
    (first,) = made.merge([call(x=X), call(x=X)])
    (second,) = made.merge([call(x=X + 1), call(x=X + 1)])
    assert not np.shares_memory(first.arrays["x"], second.arrays["x"])
    made.split([(first, {"y": first.arrays["x"]})])
    (third,) = made.merge([call(x=X + 2), call(x=X + 2)])
    assert np.shares_memory(third.arrays["x"], first.arrays["x"])
    assert same(second.arrays["x"], np.concatenate([X + 1, X + 1]))


def test_memory_that_is_too_small_is_replaced() -> None:
    buffers = merging.Buffers(merging.plain_memory)
    _, memory = buffers.take("x", (4,), np.dtype(np.float32))
    buffers.give_back("x", memory)
    array, larger = buffers.take("x", (3000, 2), np.dtype(np.float64))
    assert array.shape == (3000, 2) and larger.size >= 48_000


def test_requests_that_cannot_share_a_tensor_are_run_apart() -> None:
    made = layout(interface([spec("x", "FP32", -1)], [spec("y", "FP32", -1)], 8))
    wide = np.ones((1, 3), np.float32)
    merged = made.merge([call(x=X), call(x=wide), call(x=X[:1])])
    assert [(each.places, each.rows) for each in merged] == [([0, 2], [3, 1]), ([1], [1])]
    told = answers(made, merged, {"y": merged[0].arrays["x"]}, {"y": merged[1].arrays["x"]})
    assert [answer["y"].shape for answer in told] == [(3, 2), (1, 3), (1, 2)]


def test_optional_inputs_set_requests_apart() -> None:
    io = interface([spec("x", "FP32", 2), spec("z", "FP32", 2, is_optional=True)], [spec("y", "FP32", 2)], 8)
    merged = layout(io).merge([call(x=X), call(x=X, z=X), call(x=X)])
    assert [each.places for each in merged] == [[0, 2], [1]]
    assert list(merged[0].arrays) == ["x"] and list(merged[1].arrays) == ["x", "z"]


def test_models_without_a_batch_are_fed_one_request_at_a_time() -> None:
    made = layout(interface([spec("x", "FP32", -1, 2)], [spec("y", "FP32", -1, 2)]))
    merged = made.merge([call(x=X), call(x=X)])
    assert [each.total for each in merged] == [1, 1]
    assert same(answers(made, merged, {"y": X}, {"y": X[:1]})[1]["y"], X[:1])


def test_strings_are_merged_and_split() -> None:
    made = layout(interface([spec("x", "BYTES", 1)], [spec("y", "BYTES", 1)], 8))
    merged = made.merge([call(x=np.array([[b"a"]], object)), call(x=np.array([[b"b"], [b""]], object))])
    told = answers(made, merged, {"y": merged[0].arrays["x"]})
    assert [answer["y"].tolist() for answer in told] == [[[b"a"]], [[b"b"], [b""]]]


def test_a_model_sees_its_own_shape_and_clients_theirs() -> None:
    io = interface([spec("x", "FP32", 2, reshape=[1, 2, 1])], [spec("y", "FP32", 2, reshape=[2, 1])], 8)
    made = layout(io)
    merged = made.merge([call(x=X), call(x=X)])
    assert merged[0].arrays["x"].shape == (6, 1, 2, 1)
    told = answers(made, merged, {"y": merged[0].arrays["x"].reshape(6, 2, 1)})
    assert same(told[1]["y"], X)


def test_sizes_that_vary_keep_their_order_when_they_are_reshaped() -> None:
    assert merging.fill([-1, 4, -1], [-1, -1, 2, 2], [5, 7, 2, 2]) == [5, 4, 7]
    io = interface([spec("x", "FP32", -1, 2, reshape=[2, -1])], [spec("y", "FP32", -1, 2, reshape=[2, -1])])
    made = layout(io)
    merged = made.merge([call(x=X)])
    assert merged[0].arrays["x"].shape == (2, 3)
    assert answers(made, merged, {"y": merged[0].arrays["x"]})[0]["y"].shape == (3, 2)


def test_a_batch_of_scalars_has_one_size_for_clients() -> None:
    made = layout(interface([spec("x", "FP32", 1, reshape=[])], [spec("y", "FP32", 1, reshape=[])], 8))
    merged = made.merge([call(x=X[:, :1])])
    assert merged[0].arrays["x"].shape == (3,)
    assert answers(made, merged, {"y": merged[0].arrays["x"]})[0]["y"].shape == (3, 1)


RAGGED = interface([spec("x", "FP32", -1, is_ragged=True)], [spec("y", "FP32", 1)], 8)


def test_ragged_inputs_are_laid_end_to_end() -> None:
    (merged,) = layout(RAGGED).merge([call(x=X[:1]), call(x=np.ones((1, 3), np.float32))])
    assert merged.arrays["x"].tolist() == [0, 1, 1, 1, 1] and merged.rows == [1, 1]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("BATCH_ELEMENT_COUNT", [2, 3]),
        ("BATCH_ACCUMULATED_ELEMENT_COUNT", [2, 5]),
        ("BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO", [0, 2, 5]),
        ("BATCH_MAX_ELEMENT_COUNT_AS_SHAPE", [0, 0, 0]),
        ("BATCH_ITEM_SHAPE", [[2], [3]]),
        ("BATCH_ITEM_SHAPE_FLATTEN", [2, 3]),
    ],
)
def test_inputs_that_tell_of_the_batch_are_made(kind: str, expected: list[Any]) -> None:
    entry = {"kind": kind, "target_name": ["n"], "data_type": "TYPE_FP32", "source_input": ["x"]}
    made = layout(RAGGED, settings={"batch_input": [entry]})
    (merged,) = made.merge([call(x=X[:1]), call(x=np.ones((1, 3), np.float32))])
    assert merged.arrays["n"].tolist() == expected and merged.arrays["n"].dtype == np.float32


def test_an_output_is_scattered_by_the_shapes_of_an_input() -> None:
    entry = {"kind": "BATCH_SCATTER_WITH_INPUT_SHAPE", "target_name": ["y"], "source_input": ["x"]}
    made = layout(RAGGED, settings={"batch_output": [entry]})
    merged = made.merge([call(x=X[:1]), call(x=np.ones((1, 3), np.float32))])
    told = answers(made, merged, {"y": merged[0].arrays["x"] * 2})
    assert [answer["y"].tolist() for answer in told] == [[[0, 2]], [[2, 2, 2]]]
    with pytest.raises(HandlerFailed, match="output 'y' must have 5 elements to be scattered, got 4"):
        answers(made, merged, {"y": np.zeros(4, np.float32)})


def test_states_are_asked_of_the_model_and_given_to_no_client() -> None:
    state = {"input_name": "s", "output_name": "t", "data_type": "TYPE_INT32", "dims": [1]}
    made = layout(settings={"sequence_batching": {"state": [state]}})
    merged = made.merge([call("y", x=X[:1]), call(x=X[:1])])
    assert made.wanted(merged[0]) == ["y", "t"]
    found = answers(made, merged, {"y": X[:2], "t": np.array([[1], [2]], np.int32)})
    assert [list(answer) for answer in found] == [["y"], ["y"]]


def test_a_state_that_is_an_output_too_is_seen() -> None:
    state = {"input_name": "s", "output_name": "y", "data_type": "TYPE_FP32", "dims": [2]}
    made = layout(settings={"sequence_batching": {"state": [state]}})
    merged = made.merge([call(x=X[:1])])
    assert made.wanted(merged[0]) == ["y"]
    (found,) = answers(made, merged, {"y": X[:1]})
    assert same(found["y"], X[:1])


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (np.zeros((3, 2)), "output 'y' must be FP32 by the model's configuration, and the model gave FP64"),
        (np.zeros((2, 2), np.float32), "output 'y' must have 3 rows, one for each of the batch, got shape [2, 2]"),
        (np.zeros((3, 4), np.float32), "unexpected shape for output 'y': expected [-1, 2], got [3, 4]"),
        (np.zeros((3, 2, 1), np.float32), "unexpected shape for output 'y': expected [-1, 2], got [3, 2, 1]"),
        (np.float32(1), "output 'y' must have 3 rows, one for each of the batch, got shape []"),
    ],
)
def test_an_output_that_is_not_as_configured_fails_the_batch(output: Any, message: str) -> None:
    made = make_program("m", layout(), lambda merged: {"y": output})
    (told,) = ask(made, {"x": X})
    assert isinstance(told, Failure) and (told.message, told.status) == (message, 500)


def test_a_request_that_cannot_be_read_does_not_hurt_the_others() -> None:
    made = make_program("m", layout(), lambda merged: {"y": merged.arrays["x"]})
    from tests.process.tensor_front import Raw

    bad, good = ask(made, {"x": Raw("FP32", [3, 2], b"")}, {"x": X})
    assert isinstance(bad, Failure) and bad.kind == "input"
    assert isinstance(good, dict) and same(good["y"], X)


def test_a_model_without_an_interface_is_refused() -> None:
    with pytest.raises(LoadFailed, match="needs an interface"):
        Layout(config(Path("/m/1"), "identity", None))  # type: ignore[arg-type]

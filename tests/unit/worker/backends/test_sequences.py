"""Sequences in a worker: what the controls tell, which rows there are, and whose state is fed to whom."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import LoadFailed
from shoal.wire.messages import Failure, Item, PartHead, Run
from shoal.worker.backends.received import Asked
from shoal.worker.backends.sequences import sequences_of
from shoal.worker.backends.tensors import Call
from shoal.worker.batch import Batch
from shoal.worker.pipeline import run_stages
from tests.process.tensor_front import Raw, interface, spec
from tests.unit.worker.backends.making import ask, config
from tests.unit.worker.backends.sequence_making import (
    CONTROLS,
    KINDS,
    Fed,
    Sent,
    batching,
    control,
    encoded,
    numbers,
    run,
    sent,
    state,
)
from tests.unit.worker.making import Listener

BROKEN = Raw("FP32", (1, 1), b"abc")  # too short


def told(fed: Fed) -> list[list[Any]]:
    """START, END, READY and CORRID of each row of the last execution."""
    return [list(row) for row in zip(*(fed.rows(kind) for kind in KINDS), strict=True)]


# -- controls ----------------------------------------------------------------------------------------------------------


def test_each_row_is_told_of_its_sequence() -> None:
    fed = Fed(batching(controls=CONTROLS))
    run(fed.program, sent(0, 5, "s"), sent(1, 6), sent(2, 7, "e"), sent(3, 8, "se"))

    assert told(fed) == [[1, 0, 1, 5], [0, 0, 1, 6], [0, 1, 1, 7], [1, 1, 1, 8]]
    assert {fed.seen[0][kind].shape for kind in KINDS} == {(4, 1)}


def test_without_a_batch_dimension_controls_have_one_element() -> None:
    fed = Fed(batching(controls=CONTROLS, rows=0), rows=0)
    run(fed.program, Sent(0, 5, "s", {"x": np.ones(1, np.float32)}))

    assert {fed.seen[0][kind].shape for kind in KINDS} == {(1,)}


@pytest.mark.parametrize(
    ("values", "dtype", "off", "on"),
    [
        ({"int32_false_true": [7, -9]}, np.int32, 7, -9),
        ({"fp32_false_true": [0.5, 1.5]}, np.float32, 0.5, 1.5),
        ({"bool_false_true": [True, False]}, np.bool_, True, False),
    ],
)
def test_both_values_are_as_configured(values: dict[str, Any], dtype: Any, off: Any, on: Any) -> None:
    fed = Fed(batching(controls=[control("START", **values)]))
    run(fed.program, sent(1, 1, "s"), sent(2, 2))

    assert fed.rows("START") == [off, on, off]
    assert fed.seen[0]["START"].dtype == dtype


@pytest.mark.parametrize(
    ("data_type", "id", "expected"),
    [
        ("TYPE_UINT64", 2**64 - 1, 2**64 - 1),
        ("TYPE_INT64", 2**63 + 1, -(2**63) + 1),
        ("TYPE_INT64", 5, 5),
        ("TYPE_UINT32", 2**40 + 7, 7),
        ("TYPE_INT32", 2**31 + 1, -(2**31) + 1),
        ("TYPE_STRING", "aé", "aé".encode()),
    ],
)
def test_ids_of_every_kind_are_told(data_type: str, id: Any, expected: Any) -> None:
    fed = Fed(batching(controls=[control("CORRID", data_type=data_type)]))
    run(fed.program, sent(1, id, "s"))

    assert fed.rows("CORRID") == [b"" if data_type == "TYPE_STRING" else 0, expected]


@pytest.mark.parametrize("wrong", [control("START"), control("CORRID", data_type="TYPE_FP32"), control("CORRID")])
def test_a_control_that_cannot_be_told_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(LoadFailed, match=r"control '\w+' of model 'm' must"):
        Fed(batching(controls=[wrong]))


# -- rows --------------------------------------------------------------------------------------------------------------


def test_rows_below_that_have_no_request_are_null_and_nobody_hears_of_them() -> None:
    fed = Fed(batching(state(), controls=CONTROLS))
    answers = run(fed.program, sent(1, 5, "s", 3), sent(3, 6, "s", 4))

    assert told(fed) == [[0, 0, 0, 0], [1, 0, 1, 5], [0, 0, 0, 0], [1, 0, 1, 6]]
    assert fed.rows("x") == [0, 3, 0, 4]
    assert numbers(answers) == [3, 4]


def test_in_the_oldest_strategy_there_are_no_null_rows() -> None:
    fed = Fed(batching(state(), oldest=True, controls=CONTROLS))
    answers = run(fed.program, sent(3, 6, "s", 4), sent(1, 5, "s", 3))

    assert told(fed) == [[1, 0, 1, 6], [1, 0, 1, 5]]
    assert numbers(answers) == [4, 3]
    assert numbers(run(fed.program, sent(1, 5, "", 1), sent(3, 6, "", 1))) == [4, 5]


def test_a_request_that_cannot_be_read_leaves_its_row_empty() -> None:
    fed = Fed(batching(state(), controls=CONTROLS))
    broken, fine = run(fed.program, Sent(0, 5, "s", {"x": BROKEN}), sent(1, 6, "s", 3))

    assert isinstance(broken, Failure) and broken.kind == "input"
    assert numbers([fine]) == [3]
    assert told(fed) == [[0, 0, 0, 0], [1, 0, 1, 6]]


def test_a_batch_of_which_nothing_can_be_read_runs_nothing() -> None:
    fed = Fed(batching(state(), controls=CONTROLS))
    answers = run(fed.program, Sent(0, 5, "s", {"x": BROKEN}), Sent(1, 6, "s", {"x": BROKEN}))

    assert all(isinstance(answer, Failure) for answer in answers)
    assert not fed.seen


def test_states_of_other_shapes_are_run_apart_in_their_own_rows() -> None:
    fed = Fed(batching(state("kept", "FP32", -1), controls=CONTROLS))
    fed.grows = True
    run(fed.program, sent(1, 6, "s", 2))
    fed.seen.clear()
    answers = run(fed.program, sent(0, 5, "s", 1), sent(1, 6, "", 3), sent(2, 7, "s", 4))

    assert [execution["READY"].ravel().tolist() for execution in fed.seen] == [[1, 0, 1], [0, 1]]
    assert fed.seen[1]["kept"].tolist() == [[0, 0], [0, 2]]
    assert numbers(answers) == [1, 5, 4]


# -- states ------------------------------------------------------------------------------------------------------------


def test_what_a_request_gave_is_fed_to_the_next_of_its_sequence() -> None:
    fed = Fed(batching(state()))
    first = run(fed.program, sent(0, 5, "s", 1), sent(1, 6, "s", 10))
    second = run(fed.program, sent(0, 5, "", 2), sent(1, 6, "", 20))
    alone = run(fed.program, sent(1, 6, "", 30))

    assert numbers(first + second + alone) == [1, 10, 3, 30, 60]


def test_a_slot_begins_anew_with_start_whatever_was_left_there() -> None:
    fed = Fed(batching(state()))
    assert numbers(run(fed.program, sent(0, 5, "s", 1)) + run(fed.program, sent(0, 6, "s", 2))) == [1, 2]
    assert numbers(run(fed.program, sent(0, 6, "s", 3)) + run(fed.program, sent(0, 6, "e", 4))) == [3, 7]


def test_nothing_is_kept_of_a_sequence_that_has_ended() -> None:
    fed = Fed(batching(state()))
    sequences = fed.layout.sequences
    assert sequences is not None
    run(fed.program, sent(0, 5, "s"), sent(1, 6, "se"))
    run(fed.program, sent(0, 5, "e"))

    assert sequences._kept == {}


def test_a_start_that_cannot_be_read_is_a_start() -> None:
    fed = Fed(batching(state()))
    run(fed.program, sent(0, 5, "s", 1))
    run(fed.program, Sent(0, 5, "s", {"x": BROKEN}))

    assert numbers(run(fed.program, sent(0, 5, "", 2))) == [2]


def test_a_request_in_the_middle_that_cannot_be_read_changes_nothing() -> None:
    fed = Fed(batching(state()))
    run(fed.program, sent(0, 5, "s", 1))
    run(fed.program, Sent(0, 5, "", {"x": BROKEN}))

    assert numbers(run(fed.program, sent(0, 5, "", 2))) == [3]


def test_a_sequence_never_meets_the_state_of_another_id() -> None:
    fed = Fed(batching(state()))
    run(fed.program, sent(0, 5, "s", 1))

    assert numbers(run(fed.program, sent(0, 6, "", 2)) + run(fed.program, sent(0, 5, "", 4))) == [2, 4]


def test_instances_keep_their_states_apart() -> None:
    fed = Fed(batching(state()))
    run(fed.program, sent(0, 5, "s", 1))
    run(fed.program, sent(0, 6, "s", 10), instance=1)

    assert numbers(run(fed.program, sent(0, 5, "", 1)) + run(fed.program, sent(0, 6, "", 1), instance=1)) == [2, 11]


def test_an_execution_that_fails_changes_no_state() -> None:
    fed = Fed(batching(state()))
    run(fed.program, sent(0, 5, "s", 1))
    fed.breaks = True
    failed = run(fed.program, sent(0, 5, "", 2), sent(1, 6, "s", 3))
    fed.breaks = False

    assert all(isinstance(answer, Failure) for answer in failed)
    assert numbers(run(fed.program, sent(0, 5, "", 4), sent(1, 6, "", 5))) == [5, 5]


def test_an_answer_that_cannot_be_given_changes_no_state() -> None:
    fed = Fed(batching(state()))
    run(fed.program, sent(0, 5, "s", 1))
    fed.spoils = True
    (answer,) = run(fed.program, sent(0, 5, "", 2))
    fed.spoils = False

    assert isinstance(answer, Failure) and "output 'y' must be FP32" in answer.message
    assert numbers(run(fed.program, sent(0, 5, "", 4))) == [5]


def test_a_state_of_another_shape_or_type_is_refused_by_name() -> None:
    wide, whole = Fed(batching(state("other", "FP32", 2))), Fed(batching(state("other", "INT32")))
    (shape,), (kind,) = run(wide.program, sent(0, 5, "s")), run(whole.program, sent(0, 5, "s"))

    assert isinstance(shape, Failure) and isinstance(kind, Failure)
    assert shape.message == "unexpected shape for output 'other_next': expected [-1, 2], got [1, 1]"
    assert "output 'other_next' must be INT32 by the model's configuration, and the model gave FP32" in kind.message


def test_what_a_request_gives_after_the_next_has_its_seat_is_not_kept() -> None:
    fed = Fed(batching(state()))
    sequences = fed.layout.sequences
    assert sequences is not None
    late, now = Call({}, Asked(sequence={"id": 5, "start": True})), Call({}, Asked(sequence={"id": 5, "start": True}))
    sequences._sit(late, (0, 0))
    sequences._sit(now, (0, 0))
    sequences.keep(now, {"kept_next": np.full((1, 1), 2, np.float32)})
    sequences.keep(late, {"kept_next": np.full((1, 1), 99, np.float32)})

    assert numbers(run(fed.program, sent(0, 5, "", 3))) == [5]


def test_a_request_of_no_sequence_is_alone_and_keeps_nothing() -> None:
    fed = Fed(batching(state(), controls=CONTROLS))
    answers = ask(fed.program, {"x": np.ones((1, 1), np.float32)}, {"x": np.full((1, 1), 2, np.float32)})

    assert numbers(answers) == [1, 2]
    assert told(fed) == [[1, 1, 1, 1]] * 2
    assert fed.layout.sequences is not None and not fed.layout.sequences._kept


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(-9, 9), st.sampled_from(["", "", "s", "e", "x"]))
    )
)
def test_every_sequence_is_answered_as_if_it_were_alone(steps: list[tuple[int, int, int, str]]) -> None:
    """Slots and instances in any order; the front process' part is played by a table of who has which slot."""
    fed = Fed(batching(state()))
    live: dict[tuple[int, int], tuple[int, float]] = {}
    for number, (slot, instance, value, flags) in enumerate(steps, 1):
        seat = (instance, slot)
        if seat not in live or flags == "s":
            live[seat], flags = (number, 0.0), "s" + flags.replace("s", "")
        id, before = live[seat]
        if "x" in flags:
            run(fed.program, Sent(slot, id, flags.replace("x", ""), {"x": BROKEN}), instance=instance)
            continue
        assert numbers(run(fed.program, sent(slot, id, flags, value), instance=instance)) == [before + value]
        live[seat] = (id, before + value)
        if "e" in flags:
            del live[seat]
    assert fed.layout.sequences is not None
    assert len(fed.layout.sequences._kept) <= 6


# -- what a sequence begins with ---------------------------------------------------------------------------------------


def beginning(folder: Path, *, rows: int = 4, **settings: Any) -> Any:
    """What a state of these settings begins with."""
    io = interface([spec("x", "FP32", 1)], [spec("y", "FP32", 1)], rows)
    name = settings.pop("datatype", "FP32")
    entry = state("kept", name, *settings.pop("dims"), **settings)
    made = sequences_of(config(folder / "1", "identity", io, settings=batching(entry, rows=rows)))
    assert made is not None
    return made.states[0].initial


def initial(**more: Any) -> list[dict[str, Any]]:
    return [{"name": "begin", "data_type": "TYPE_FP32", "dims": [2], **more}]


def test_a_sequence_begins_with_zeros_where_nobody_says() -> None:
    assert beginning(Path("/m"), dims=(-1, 3)).tolist() == [[[0, 0, 0]]]
    assert beginning(Path("/m"), dims=(-1, 3), rows=0).tolist() == [[0, 0, 0]]
    assert beginning(Path("/m"), dims=(2,), datatype="STRING").tolist() == [[b"", b""]]
    assert beginning(Path("/m"), dims=(-1,), initial_state=initial(zero_data=True)).tolist() == [[0, 0]]


def test_a_sequence_begins_with_what_a_file_has(tmp_path: Path) -> None:
    (tmp_path / "initial_state").mkdir()
    (tmp_path / "initial_state" / "two").write_bytes(np.array([1.5, -2], np.float32).tobytes())
    (tmp_path / "initial_state" / "text").write_bytes(b"\1\0\0\0a\0\0\0\0")

    assert beginning(tmp_path, dims=(2,), initial_state=initial(data_file="two")).tolist() == [[1.5, -2]]
    text = initial(data_file="text", data_type="TYPE_STRING")
    assert beginning(tmp_path, dims=(2,), datatype="STRING", initial_state=text).tolist() == [[b"a", b""]]


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        ("short", r"initial_state of 'kept' of model 'm': short must have 8 bytes for \[2\], got 3"),
        ("nowhere", "initial_state of 'kept' of model 'm' cannot be read"),
        ("../short", r"must lie in initial_state/, got '\.\./short'"),
        ("/etc/hostname", "must lie in initial_state/"),
    ],
)
def test_a_file_that_is_no_state_is_refused(tmp_path: Path, file: str, reason: str) -> None:
    (tmp_path / "initial_state").mkdir()
    (tmp_path / "initial_state" / "short").write_bytes(b"abc")

    with pytest.raises(LoadFailed, match=reason):
        beginning(tmp_path, dims=(2,), initial_state=initial(data_file=file))


def test_a_file_of_strings_that_are_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "initial_state").mkdir()
    (tmp_path / "initial_state" / "text").write_bytes(b"\1\0\0\0a")
    text = initial(data_file="text", data_type="TYPE_STRING")

    with pytest.raises(LoadFailed, match="expected 2 string elements"):
        beginning(tmp_path, dims=(2,), datatype="STRING", initial_state=text)


def test_a_model_cannot_write_into_what_sequences_begin_with() -> None:
    begun = beginning(Path("/m"), dims=(2,))
    with pytest.raises(ValueError, match="read-only"):
        begun[:] = 1


def test_the_slots_of_a_batch_reach_the_worker() -> None:
    head = PartHead("x", "tensor/FP32;1,1", 4)
    item = Item([head], b"", [(b"v2", encoded(sequence={"id": 3, "start": True, "end": False}))])
    fed = Fed(batching(controls=CONTROLS))
    batch = Batch(Run(1, 0, [item], [2]), memoryview(bytes(4)), Listener())
    (cut,) = batch.slices(0)
    run_stages(cut, fed.program.stages, fed.program, None)

    assert told(fed) == [[0, 0, 0, 0], [0, 0, 0, 0], [1, 0, 1, 3]]

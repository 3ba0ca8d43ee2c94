from typing import Any

import pytest

from shoal.errors import InvalidInput
from shoal.frontend.kserve.asked import Asked, Tensor, Wish
from shoal.frontend.kserve.controls import NO_CONTROLS
from shoal.frontend.kserve.plan import MOST_LOOKS, MOST_STRINGS, Plan
from shoal.tensor import WIDTHS, pack_strings
from tests.unit.frontend.kserve.bed import plan_of, spec


def tensor(
    name: str = "IN", shape: list[int] | None = None, datatype: str = "FP32", data: bytes | None = None
) -> Tensor:
    dims = [1, 4] if shape is None else shape
    size = WIDTHS[datatype]
    for dim in dims:
        size *= max(0, dim)
    return Tensor(name, datatype, dims, bytes(size) if data is None else data)


def check(plan: Plan, *tensors: Tensor) -> int:
    return plan.check(Asked("", tensors, None, NO_CONTROLS))


@pytest.mark.parametrize("rows", [1, 3, 4])
def test_the_first_dimension_is_the_rows(rows: int) -> None:
    assert check(plan_of(), tensor(shape=[rows, 4])) == rows


def test_without_a_batch_dimension_a_request_is_one_row() -> None:
    assert check(plan_of(spec("IN", dims=[-1, 2]), rows=0), tensor(shape=[7, 2])) == 1


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        ([], r"expected 1 inputs but got 0 inputs for model 'm'. Got input\(s\) \[\], but missing .* \['IN'\]"),
        ([tensor(), tensor()], "input 'IN' already exists in request"),
        ([tensor(), tensor("X")], "expected 1 inputs but got 2 inputs"),
        ([tensor("X")], "unexpected inference input 'X' for model 'm'"),
        ([tensor(datatype="INT32")], "inference input 'IN' data-type is 'INT32', but model 'm' expects 'FP32'"),
        ([Tensor("IN", "FLOAT", [1, 4], b"")], "data-type is '<invalid>'"),
        ([tensor(shape=[1, 3])], r"shape for input 'IN' for model 'm'. Expected \[-1,4\], got \[1,3\]. NOTE"),
        ([tensor(shape=[4])], r"Expected \[-1,4\], got \[4\]."),
        ([tensor(shape=[1, 4, 1])], r"Expected \[-1,4\], got \[1,4,1\]."),
        ([tensor(shape=[])], "input 'IN' has no shape but model requires batch dimension for 'm'"),
        ([tensor(shape=[5, 4])], "inference request batch-size must be <= 4 for 'm', got 5"),
        ([tensor(shape=[0, 4])], "batch-size must be >= 1"),
        (
            [tensor(shape=[-1, 4])],
            r"All input dimensions should be specified for input .IN. for model .m., got \[-1,4\]",
        ),
        ([tensor(shape=[2**40, 4], data=b"")], "negative or too large"),
        ([tensor(data=bytes(12))], "input byte size mismatch for input 'IN' for model 'm'. Expected 16, got 12"),
        ([tensor(data=bytes(20))], "Expected 16, got 20"),
    ],
)
def test_what_the_model_does_not_expect_is_refused(tensors: list[Tensor], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        check(plan_of(), *tensors)


def test_the_note_on_batches_is_for_models_that_batch() -> None:
    with pytest.raises(InvalidInput) as refused:
        check(plan_of(rows=0), tensor(shape=[3]))
    assert str(refused.value).endswith("Expected [4], got [3].")


def test_inputs_agree_on_their_rows() -> None:
    plan = plan_of(spec("IN0"), spec("IN1"))

    assert check(plan, tensor("IN0", [2, 4]), tensor("IN1", [2, 4])) == 2
    with pytest.raises(
        InvalidInput, match="input 'IN1' batch size does not match other inputs for 'm': expected 2, got 1"
    ):
        check(plan, tensor("IN0", [2, 4]), tensor("IN1", [1, 4]))


def test_optional_inputs_may_be_left_out_and_required_ones_not() -> None:
    plan = plan_of(spec("IN0"), spec("IN1", is_optional=True), spec("IN2"))

    assert check(plan, tensor("IN0"), tensor("IN2")) == 1
    assert check(plan, tensor("IN2"), tensor("IN1"), tensor("IN0")) == 1
    for given in (["IN0"], ["IN0", "IN1"], ["IN0", "IN1", "IN2", "IN3"]):
        with pytest.raises(InvalidInput, match="expected number of inputs between 2 and 3 but got"):
            check(plan, *map(tensor, given))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (pack_strings([b"a"]), "expected 2 string elements for inference input 'IN' for model 'm', got 1"),
        (pack_strings([b"a", b"", b"c"]), "got 3 or more"),
        (b"\1\0\0\0ab", "incomplete string length indicator"),
        (b"\5\0\0\0ab", "incomplete string length indicator"),
        (b"", "got 0"),
    ],
)
def test_strings_are_counted(data: bytes, words: str) -> None:
    plan = plan_of(spec("IN", "BYTES", [-1]))

    assert check(plan, tensor(shape=[1, 2], datatype="BYTES", data=pack_strings([b"a", b"b"]))) == 1
    with pytest.raises(InvalidInput, match=words):
        check(plan, tensor(shape=[1, 2], datatype="BYTES", data=data))


def test_very_many_strings_are_left_to_the_worker() -> None:
    plan = plan_of(spec("IN", "BYTES", [-1]))
    many = [1, MOST_STRINGS + 1]

    assert check(plan, tensor(shape=many, datatype="BYTES", data=b"x")) == 1


def test_requests_share_a_batch_where_their_open_dimensions_agree() -> None:
    plan = plan_of(spec("IN0", dims=[-1]), spec("IN1", dims=[-1], is_ragged=True), spec("IN2", is_optional=True))

    def group(*tensors: Tensor) -> Any:
        return plan.group(tensors)

    a = group(tensor("IN0", [1, 3]), tensor("IN1", [1, 5]))
    assert a == group(tensor("IN1", [1, 9]), tensor("IN0", [4, 3]))
    assert a != group(tensor("IN0", [1, 4]), tensor("IN1", [1, 5]))
    assert a != group(tensor("IN0", [1, 3]), tensor("IN1", [1, 5]), tensor("IN2"))
    assert plan_of().group([tensor()]) is None


def test_without_a_batch_dimension_the_whole_shape_counts() -> None:
    plan = plan_of(spec("IN", dims=[-1, 2]), rows=0)

    assert plan.group([tensor(shape=[3, 2])]) != plan.group([tensor(shape=[4, 2])])


def test_outputs_are_checked_before_anything_runs() -> None:
    plan = plan_of(outputs=[spec("OUT"), spec("HALF", "FP16")])

    plan.check_wishes({"OUT": Wish("OUT"), "HALF": Wish("HALF", is_binary=True)}, binary=False)
    plan.check_wishes(None, binary=True)
    with pytest.raises(InvalidInput, match="unexpected inference output 'X' for model 'm'"):
        plan.check_wishes({"X": Wish("X")}, binary=True)
    for wishes in ({"HALF": Wish("HALF")}, None):
        with pytest.raises(InvalidInput, match=r"sending FP16 data via JSON is not supported.*'HALF'"):
            plan.check_wishes(wishes, binary=False)


def test_part_types_are_made_once() -> None:
    plan = plan_of()

    assert plan.part_type(tensor()) == "tensor/FP32;1,4"
    assert plan.part_type(tensor()) is plan.part_type(tensor())


def test_a_request_that_looks_like_one_before_is_not_checked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of()
    first = plan.fit(Asked("", [tensor(shape=[2, 4])], None, NO_CONTROLS))
    monkeypatch.setattr(Plan, "check", None)

    assert plan.fit(Asked("x", [tensor(shape=[2, 4])], None, NO_CONTROLS)) is first
    assert first == (2, ["tensor/FP32;2,4"], None)


@pytest.mark.parametrize(
    "other", [tensor("X"), tensor(datatype="INT32"), tensor(shape=[4, 1]), tensor(data=bytes(12)), tensor(shape=[5, 4])]
)
def test_a_request_that_looks_otherwise_is_checked(other: Tensor) -> None:
    plan = plan_of()
    plan.fit(Asked("", [tensor()], None, NO_CONTROLS))

    for _ in range(2):
        with pytest.raises(InvalidInput):
            plan.fit(Asked("", [other], None, NO_CONTROLS))


def test_strings_that_look_the_same_are_checked_each_time() -> None:
    plan = plan_of(spec("IN", "BYTES", [1]))
    plan.fit(Asked("", [tensor(shape=[1, 1], datatype="BYTES", data=pack_strings([b"abcd"]))], None, NO_CONTROLS))

    with pytest.raises(InvalidInput, match="string"):
        plan.fit(Asked("", [tensor(shape=[1, 1], datatype="BYTES", data=bytes(8))], None, NO_CONTROLS))


def test_the_looks_that_are_remembered_are_bounded() -> None:
    plan = plan_of(spec("IN", dims=[-1]))
    for size in range(MOST_LOOKS + 2):
        plan.fit(Asked("", [tensor(shape=[1, size])], None, NO_CONTROLS))

    assert len(plan._fits) <= MOST_LOOKS

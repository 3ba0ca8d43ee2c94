from typing import Any

import pytest

from shoal.errors import ConfigError
from shoal.triton.ensemble import check_ensemble, is_decoupled


def tensor(name: str, dims: list[int], data_type: str = "TYPE_FP32", *, optional: bool = False) -> dict[str, Any]:
    return {"name": name, "data_type": data_type, "dims": dims, "optional": optional}


def model(name: str, dims: list[int], size: int = 0, *more: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "max_batch_size": size, "input": [tensor("IN", dims), *more], "output": [tensor("OUT", dims)]}


def ensemble(dims: list[int], size: int = 0) -> dict[str, Any]:
    step = {"model_name": "m", "model_version": -1, "input_map": {"IN": "IN"}, "output_map": {"OUT": "OUT"}}
    return {**model("e", dims, size), "ensemble_scheduling": {"step": [step]}}


@pytest.mark.parametrize(
    ("whole", "part"),
    [
        (ensemble([4]), model("m", [4])),
        (ensemble([-1]), model("m", [4])),
        (ensemble([4]), model("m", [-1])),
        (ensemble([4], 8), model("m", [4], 8)),
        (ensemble([4], 4), model("m", [4], 8)),
        (ensemble([2, 4]), model("m", [4], 8)),  # one that has no batch dimension gives a whole batch
        (ensemble([4]), model("m", [4], 0, tensor("MORE", [1], optional=True))),
    ],
)
def test_tensors_that_fit_are_accepted(whole: dict[str, Any], part: dict[str, Any]) -> None:
    check_ensemble(whole, {"m": part})


@pytest.mark.parametrize(
    ("whole", "part", "reason"),
    [
        (ensemble([4]), model("m", [5]), r"tensor IN: inconsistent shape: \[4\] is inferred from model e while \[5\]"),
        (ensemble([4]), model("m", [4, 4]), "inconsistent shape"),
        (ensemble([4], 8), model("m", [4], 4), "e allows maximum batch size 8, but it contains model m which only"),
        (
            ensemble([4]),
            model("m", [4], 0, tensor("MORE", [1])),
            r"nothing is mapped to input\(s\) \['MORE'\] of model m",
        ),
    ],
)
def test_tensors_that_do_not_fit_are_refused(whole: dict[str, Any], part: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        check_ensemble(whole, {"m": part})


def test_one_decoupled_model_is_enough() -> None:
    one = {**model("a", [1]), "model_transaction_policy": {"decoupled": True}}

    assert is_decoupled({"a": one, "b": model("b", [1])})
    assert not is_decoupled({"b": model("b", [1])})

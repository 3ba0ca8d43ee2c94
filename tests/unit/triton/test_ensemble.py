from typing import Any

import pytest

from shoal.config.model import Interface, ModelConfig, TensorSpec
from shoal.config.scheduling import EnsembleScheduling, Scheduling, Step
from shoal.errors import ConfigError
from shoal.triton.ensemble import check_ensemble, is_decoupled, label


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
        (ensemble([4]), model("m", [4], 8)),  # one that has no batch dimension gives one row
        (ensemble([2, 4]), model("m", [4], 8)),  # one that has no batch dimension gives a whole batch
        (ensemble([4]), model("m", [4], 0, tensor("MORE", [1], optional=True))),
    ],
)
def test_tensors_that_fit_are_accepted(whole: dict[str, Any], part: dict[str, Any]) -> None:
    check_ensemble(whole, [part])


@pytest.mark.parametrize(
    ("whole", "part", "reason"),
    [
        (ensemble([4]), model("m", [5]), r"tensor IN: inconsistent shape: \[4\] is inferred from model e while \[5\]"),
        (ensemble([4]), model("m", [4, 4]), "inconsistent shape"),
        (ensemble([4], 8), model("m", [4], 4), "e allows maximum batch size 8, but it contains model m which only"),
        (
            ensemble([4]),
            model("m", [4], 0, tensor("MORE", [1])),
            "input MORE in model m is not mapped to any ensemble tensors",
        ),
    ],
)
def test_tensors_that_do_not_fit_are_refused(whole: dict[str, Any], part: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        check_ensemble(whole, [part])


def test_one_decoupled_model_is_enough() -> None:
    one = {**model("a", [1]), "model_transaction_policy": {"decoupled": True}}

    assert is_decoupled([one, model("b", [1])])
    assert not is_decoupled([model("b", [1])])


def config(name: str, labels: list[str], *steps: Step, writes: str = "OUT") -> ModelConfig:
    tensors = Interface(inputs=[], outputs=[TensorSpec(name=writes, datatype="FP32", dims=[4], labels=labels)])
    scheduling = Scheduling(ensemble_scheduling=EnsembleScheduling(step=list(steps))) if steps else None
    return ModelConfig(name=name, version="1", path=name, interface=tensors, scheduling=scheduling)


@pytest.mark.parametrize(("own", "seen"), [([], ["cat", "dog"]), (["mine"], ["mine"])])
def test_classes_are_called_as_the_member_calls_them_whose_output_it_is(own: list[str], seen: list[str]) -> None:
    steps = [
        Step(model_name="early", input_map={"IN": "IN"}, output_map={"OUT": "mid"}),
        Step(model_name="late", input_map={"IN": "mid"}, output_map={"OUT": "scores"}),
    ]
    whole = label(
        config("e", own, *steps, writes="scores"), [config("early", ["x", "y"]), config("late", ["cat", "dog"])]
    )

    assert whole.interface is not None
    assert whole.interface.outputs[0].labels == seen

"""The default handlers give what TorchServe's give: `data/answers.json` holds what those answered."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.unit.upstream.torch_handler.cases import CALLED, DATA, Called, kept, prepare
from tests.unit.upstream.torch_handler.serving import context, default_handler

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # as torch calls TorchScript
RECORDED = json.loads((DATA / "answers.json").read_text())


def same(made: Any, recorded: Any) -> None:
    """Equal in structure and order, and in numbers but for the last digits."""
    assert type(made) is type(recorded)
    if isinstance(made, dict):
        assert list(made) == list(recorded)
        for key in made:
            same(made[key], recorded[key])
    elif isinstance(made, list):
        assert len(made) == len(recorded)
        for one, other in zip(made, recorded, strict=True):
            same(one, other)
    elif isinstance(made, float):
        assert made == pytest.approx(recorded, rel=1e-4, abs=1e-6)
    else:
        assert made == recorded


@pytest.mark.parametrize("case", CALLED, ids=lambda case: case.name)
def test_a_batch_is_answered_as_torchserve_answers_it(case: Called, tmp_path: Path) -> None:
    described = prepare(tmp_path, case)
    handler = default_handler(case.handler)
    told = context(tmp_path, described, rows=len(case.rows), headers=case.headers)
    handler.initialize(told)
    for name, value in case.attributes.items():
        setattr(handler, name, value)

    answers = handler.handle(case.rows, told)

    assert len(answers) == len(case.rows)
    same(kept(answers), RECORDED[case.name])


def test_every_recorded_answer_is_compared() -> None:
    assert {case.name for case in CALLED} == set(RECORDED)


def test_a_model_with_fewer_classes_than_are_asked_for_answers_with_all_of_them() -> None:
    handler = default_handler("image_classifier")

    (answer,) = handler.postprocess(torch.tensor([[0.0, 1.0]]))

    assert list(answer) == ["1", "0"]


def test_how_many_classes_an_answer_holds_is_chosen_for_one_handler() -> None:
    handler = default_handler("image_classifier")
    handler.set_max_result_classes(2)

    assert handler.get_max_result_classes() == 2
    assert default_handler("image_classifier").topk == 5
    assert len(handler.postprocess(torch.zeros(1, 9))[0]) == 2


def test_a_segmenter_takes_scores_without_a_mapping_too() -> None:
    handler = default_handler("image_segmenter")

    answers = handler.postprocess(torch.tensor([0.0, 9.0]).reshape(1, 2, 1, 1))

    assert answers == [[[[1.0, pytest.approx(0.99988, abs=1e-4)]]]]

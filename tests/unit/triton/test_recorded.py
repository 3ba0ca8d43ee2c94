"""Configurations as tritonserver 2.51 shows them, and what it says of those that it does not take."""

import json
from pathlib import Path
from typing import Any

import pytest

from shoal.errors import ConfigError
from shoal.triton.ensemble import check_ensemble
from shoal.triton.making import make
from shoal.triton.repository import Folders
from shoal.triton.source import reason_of
from tests.unit.triton.repositories import put

RECORDED: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "recorded.json").read_text())
NOT_ALIKE = {
    "agents": "there are no repository agents, and that is what is said",
    "metrics": "model_metrics came after 2.51",
    "e_metric_family": "model_metrics came after 2.51",
    "sequence_iterative": "iterative sequences are refused: nothing reschedules requests",
    "e_state_names": "a state that has no name could not be fed or kept",
    "e_state_type": "a state that has no type could not be fed",
    "e_state_dims": "a state that has no shape could not be fed",
    "e_order_delay_level": "order cannot be kept where any level delays requests, not only the default",
    "e_filename_path": "a model's file is not looked for outside its version",
    "wrong_runtime": "backends are part of the server",
    "e_identity": "the identity backend is part of the server",
    "e_onnx": "the backend is there, the file is not",
    "e_libtorch": "the backend is there, the file is not",
    "e_ens_missing": "asked when the ensemble is loaded: see test_control",
    "e_ens_circle": "asked when the ensemble is loaded: see test_control",
    "ens_v": "asked when the ensemble is loaded: see test_control",
    "policy_latest0": "asked when the model is loaded: see test_control",
    "e_versions_none": "asked when the model is loaded: see test_control",
}
WORDED_OTHERWISE = {  # the same refusal, said with what would be right
    *("platform_python", "e_unknown_platform", "e_unknown_backend", "e_two_schedulers"),
    *("e_unknown_field", "e_bad_enum", "e_syntax", "e_type"),
    *("e_gpu_listed", "group_profile", "e_warmup_batch", "e_warmup_input", "e_warmup_nodata", "e_warmup_type"),
    *("e_ens_unconnected", "e_label_missing", "e_state_initial_file", "e_warmup_file"),
}


def shown(tmp_path: Path, name: str) -> tuple[str, Any]:
    """How far a recorded configuration comes here, and what is shown of it or said about it."""
    folder = put(tmp_path, name, RECORDED[name]["settings"], "1", "2", "3")
    (folder / "labels.txt").write_text("a\nb\n")
    try:
        found = Folders([tmp_path]).find(name)
    except ConfigError as error:
        return "read", str(error)
    try:
        config = make(found.message, found, found.versions[-1], [])
        if found.steps:
            steps = config.settings["ensemble_scheduling"]["step"]
            check_ensemble(config.settings, [RECORDED[step["model_name"]]["config"] for step in steps])
    except ConfigError as error:
        return "loaded", reason_of(error).removeprefix("Invalid argument: " if found.steps else "")
    return "served", config.settings


def numbers(shown: Any) -> Any:
    """Numbers where 2.51 left texts: it forgets to turn a few."""
    if isinstance(shown, dict):
        return {key: numbers(value) for key, value in shown.items()}
    if isinstance(shown, list):
        return [int(each) if isinstance(each, str) and each.isdecimal() else numbers(each) for each in shown]
    return shown


ALIKE = sorted(RECORDED.keys() - NOT_ALIKE.keys())


@pytest.mark.parametrize("name", [name for name in ALIKE if RECORDED[name]["stage"] == "served"])
def test_a_configuration_is_shown_as_triton_shows_it(tmp_path: Path, name: str) -> None:
    stage, settings = shown(tmp_path, name)

    assert (stage, settings) == ("served", numbers(RECORDED[name]["config"]))
    assert list(settings) == list(RECORDED[name]["config"])


@pytest.mark.parametrize("name", [name for name in ALIKE if RECORDED[name]["stage"] != "served"])
def test_a_configuration_that_triton_refuses_is_refused_at_the_same_point(tmp_path: Path, name: str) -> None:
    stage, reason = shown(tmp_path, name)

    assert stage == RECORDED[name]["stage"]
    if name not in WORDED_OTHERWISE:
        assert reason == RECORDED[name]["reason"]


@pytest.mark.parametrize("name", sorted(WORDED_OTHERWISE))
def test_what_is_said_otherwise_is_not_said_alike(tmp_path: Path, name: str) -> None:
    assert shown(tmp_path, name)[1] != RECORDED[name]["reason"]


def test_no_list_of_differences_names_what_is_not_recorded() -> None:
    assert NOT_ALIKE.keys() | WORDED_OTHERWISE <= RECORDED.keys()

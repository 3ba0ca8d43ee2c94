from pathlib import Path

import pytest

from shoal.tools.doctor.findings import Diagnosis, Subject
from shoal.tools.doctor.repositories import check_repository, is_model, is_repository

DIMS = "data_type: TYPE_FP32 dims: [ 4 ]"
TENSORS = f'input [ {{ name: "x" {DIMS} }} ]\noutput [ {{ name: "y" {DIMS} }} ]\n'


def repository(folder: Path, config: str, *, file: str = "model.py", content: str = "", name: str = "m") -> Diagnosis:
    (folder / name / "1").mkdir(parents=True)
    (folder / name / "config.pbtxt").write_text(config)
    if file:
        (folder / name / "1" / file).write_text(content)
    return check_repository(folder)


def only(found: Diagnosis) -> Subject:
    (subject,) = found.subjects
    return subject


def failures(subject: Subject) -> list[str]:
    return [finding.text for finding in subject.findings if finding.level == "fails"]


def test_a_model_with_nothing_wrong_works(tmp_path: Path) -> None:
    found = repository(tmp_path, f'backend: "python"\nmax_batch_size: 8\n{TENSORS}dynamic_batching {{ }}\n')

    assert (only(found).name, only(found).kind, only(found).level) == ("m 1", "Triton model, python", "works")
    assert found.start == f"shoal tritonserver --model-repository={tmp_path}"


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (f'backend: "tensorrt"\n{TENSORS}', "backend 'tensorrt': there is no such runtime here"),
        (f'platform: "tensorflow_savedmodel"\n{TENSORS}', "backend 'tensorflow': there is no such runtime here"),
        (f'backend: "mine"\n{TENSORS}', "backend 'mine': there is no such runtime here"),
        ("no_such_field: 1\n", "unknown field 'no_such_field'"),
        ('name: "other"\n', "directory name must equal model name"),
        (
            f'backend: "python"\nmax_batch_size: 2\n{TENSORS}dynamic_batching {{ preferred_batch_size: [ 4 ] }}\n',
            "dynamic batching preferred size must be <= max batch size",
        ),
        (
            f'backend: "python"\nmax_batch_size: 2\n{TENSORS}sequence_batching {{ iterative_sequence: true }}\n',
            "iterative_sequence is not supported",
        ),
        (f'backend: "pytorch"\n{TENSORS}', "version 1 has no model.pt"),
        (f'backend: "python"\n{TENSORS}version_policy {{ specific {{ versions: [ 7 ] }} }}\n', "chooses no version"),
        (f'backend: "python"\n{TENSORS}instance_group [ {{ kind: KIND_GPU gpus: [ 99 ] }} ]\n', "99"),
    ],
)
def test_what_will_not_work_is_said(tmp_path: Path, config: str, problem: str) -> None:
    found = only(repository(tmp_path, config))

    assert found.level == "fails"
    assert any(problem in text for text in failures(found)), found.findings


def test_a_backend_that_is_not_here_has_a_way_out(tmp_path: Path) -> None:
    found = only(repository(tmp_path, f'backend: "tensorrt"\n{TENSORS}'))

    assert any("export the model to ONNX" in finding.change for finding in found.findings)


def test_a_python_model_is_read_and_not_run(tmp_path: Path) -> None:
    source = f"import triton_python_backend_utils\nimport no_such_module\nopen({str(tmp_path / 'ran')!r}, 'w')\n"
    found = only(repository(tmp_path, f'backend: "python"\n{TENSORS}', content=source))

    assert failures(found) == ["model.py line 2 imports no_such_module, which is not installed here"]
    assert not (tmp_path / "ran").exists()


def test_an_environment_of_its_own_differs(tmp_path: Path) -> None:
    key = 'parameters: { key: "EXECUTION_ENV_PATH" value: { string_value: "env.tar.gz" } }\n'
    found = only(repository(tmp_path, f'backend: "python"\n{TENSORS}{key}'))

    assert (found.level, "EXECUTION_ENV_PATH has no effect" in found.findings[0].text) == ("differs", True)


def test_settings_that_are_asked_of_the_model_are_no_problem(tmp_path: Path) -> None:
    assert only(repository(tmp_path, 'backend: "python"\n')).level == "works"


def test_settings_that_nobody_can_be_asked_for_are_one(tmp_path: Path) -> None:
    found = only(repository(tmp_path, 'backend: "pytorch"\n', file="model.pt"))

    assert any("cannot tell them" in text for text in failures(found))


def test_an_ensemble_needs_its_steps(tmp_path: Path) -> None:
    maps = 'input_map { key: "x" value: "x" } output_map { key: "y" value: "y" }'
    steps = f'step [ {{ model_name: "gone" model_version: -1 {maps} }} ]'
    found = only(repository(tmp_path, f'platform: "ensemble"\n{TENSORS}ensemble_scheduling {{ {steps} }}\n', file=""))

    assert found.kind == "Triton ensemble"
    assert any("a step names 'gone'" in text for text in failures(found))


def test_a_response_cache_needs_a_flag(tmp_path: Path) -> None:
    found = only(repository(tmp_path, f'backend: "python"\n{TENSORS}response_cache {{ enable: true }}\n'))

    assert any("--cache-config" in finding.change for finding in found.findings)


def test_repositories_are_told_from_other_folders(tmp_path: Path) -> None:
    repository(tmp_path / "r", f'backend: "python"\n{TENSORS}')
    (tmp_path / "bare" / "m" / "1").mkdir(parents=True)
    (tmp_path / "bare" / "m" / "1" / "model.onnx").write_bytes(b"")

    assert is_repository(tmp_path / "r") and is_model(tmp_path / "r" / "m")
    assert is_repository(tmp_path / "bare")
    assert not is_repository(tmp_path)

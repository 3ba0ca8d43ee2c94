"""What models add to their configurations, through the command that the server runs."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shoal.errors import LoadFailed
from shoal.worker.backends import completion
from tests.unit.worker.backends.making import node, onnx_file

AUTO = """
import triton_python_backend_utils as pb_utils
print("printed by the model")
class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.set_max_batch_size(8)
        config.add_input({"name": "IN", "data_type": "TYPE_FP32", "dims": [-1]})
        config.add_output({"name": "OUT", "data_type": "TYPE_FP32", "dims": [-1]})
        config.set_dynamic_batching()
        config.set_model_transaction_policy({"decoupled": True})
        return config
"""


def command(folder: Path, partial: Any = None, *options: str) -> tuple[int, Any, str]:
    """Exit code, the configuration, the last line of standard error."""
    done = subprocess.run(
        [sys.executable, "-m", "shoal.worker.complete", str(folder), str(folder / "1"), *options],
        input=json.dumps(partial or {}), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    lines = done.stderr.splitlines()
    return done.returncode, json.loads(done.stdout) if done.stdout else None, lines[-1] if lines else ""


def complete(folder: Path, **partial: Any) -> dict[str, Any]:
    return completion.complete(partial, folder, folder / "1", 4)


def onnx_model(folder: Path, given: Any = ("N", "T"), taken: Any = ("N", 3)) -> Path:
    nodes = [node("Identity", ["x"], ["y"]), node("Identity", ["s"], ["t"])]
    onnx_file(
        folder,
        nodes,
        [("x", "FP16", given), ("s", "BYTES", given[:1])],
        [("y", "FP16", taken), ("t", "BYTES", taken[:1])],
    )
    return folder


def python_model(folder: Path, source: str) -> Path:
    (folder / "1").mkdir(parents=True)
    (folder / "1" / "model.py").write_text(source)
    return folder


def test_an_onnx_file_alone_is_completed_whole(tmp_path: Path) -> None:
    code, config, _ = command(onnx_model(tmp_path / "bees"))
    assert code == 0
    assert config == {
        "name": "bees",
        "backend": "onnxruntime",
        "platform": "onnxruntime_onnx",
        "default_model_filename": "model.onnx",
        "max_batch_size": 4,
        "dynamic_batching": {},
        "input": [
            {"name": "x", "data_type": "TYPE_FP16", "dims": [-1]},
            {"name": "s", "data_type": "TYPE_STRING", "dims": [1], "reshape": {"shape": []}},
        ],
        "output": [
            {"name": "y", "data_type": "TYPE_FP16", "dims": [3]},
            {"name": "t", "data_type": "TYPE_STRING", "dims": [1], "reshape": {"shape": []}},
        ],
    }


def test_the_default_of_the_largest_batch_may_be_another(tmp_path: Path) -> None:
    _, config, _ = command(onnx_model(tmp_path), None, "--default-max-batch-size", "1")
    assert config["max_batch_size"] == 1 and "dynamic_batching" not in config


def test_an_onnx_model_with_a_fixed_first_size_is_not_batched(tmp_path: Path) -> None:
    config = complete(onnx_model(tmp_path, ("N", "T"), (2, 3)), name="bees")
    assert config["max_batch_size"] == 0 and "dynamic_batching" not in config
    assert config["input"][0]["dims"] == [-1, -1] and config["output"][0]["dims"] == [2, 3]
    with pytest.raises(
        LoadFailed, match="model does not support batching while non-zero max_batch_size 8 is specified"
    ):
        complete(tmp_path, name="bees", max_batch_size=8)


def test_what_a_configuration_says_stays(tmp_path: Path) -> None:
    onnx_model(tmp_path)
    given = [{"name": "x", "data_type": "TYPE_FP16", "dims": [5]}]
    config = complete(tmp_path, max_batch_size=2, input=given, sequence_batching={})
    assert config["input"] == given and config["max_batch_size"] == 2 and "dynamic_batching" not in config
    assert [entry["name"] for entry in config["output"]] == ["y", "t"]
    whole = complete(tmp_path, input=given, output=given)
    assert "max_batch_size" not in whole and "dynamic_batching" not in whole


def test_a_file_that_is_no_onnx_model_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "model.onnx").write_bytes(b"no")
    code, config, line = command(tmp_path)
    assert code == 1 and config is None and line.startswith("model.onnx of model")


def test_a_python_model_says_what_it_is_and_may_print(tmp_path: Path) -> None:
    code, config, line = command(python_model(tmp_path / "bees", AUTO))
    assert code == 0 and line == "printed by the model"
    assert config == {
        "name": "bees",
        "backend": "python",
        "default_model_filename": "model.py",
        "max_batch_size": 8,
        "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [-1]}],
        "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [-1]}],
        "dynamic_batching": {},
        "model_transaction_policy": {"decoupled": True},
    }


@pytest.mark.parametrize(
    ("source", "partial", "line"),
    [
        (AUTO, {"max_batch_size": 16}, "ValueError: configuration specified max_batch_size 16, but"),
        ("class TritonPythonModel:\n    def auto_complete_config(config): return 1\n", {},
         "auto_complete_config of model 'bees' must return the ModelConfig, got int"),
        ("import torhc\n", {}, "ModuleNotFoundError: No module named 'torhc'"),
    ],
)  # fmt: skip
def test_a_python_model_that_cannot_say_is_one_line(
    tmp_path: Path, source: str, partial: dict[str, Any], line: str
) -> None:
    code, config, last = command(python_model(tmp_path / "bees", source), partial)
    assert code == 1 and config is None and last.startswith(line)


def test_a_python_model_that_says_nothing_adds_nothing(tmp_path: Path) -> None:
    folder = python_model(tmp_path / "bees", "class TritonPythonModel:\n    pass\n")
    assert command(folder, {"name": "b"})[1] == {
        "name": "b", "backend": "python", "default_model_filename": "model.py"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("files", "partial", "expected"),
    [
        (["model.pt"], {}, ("pytorch", "pytorch_libtorch", "model.pt")),
        (["model.pt2"], {}, ("pytorch", "torch_aoti", "model.pt2")),
        (["model.py", "model.pt"], {}, ("pytorch", "pytorch_libtorch", "model.pt")),
        (["model.plan", "model.pt"], {}, ("tensorrt", "tensorrt_plan", "model.plan")),
        (["model.xml"], {}, ("openvino", None, "model.xml")),
        (["model.savedmodel"], {}, ("tensorflow", "tensorflow_savedmodel", "model.savedmodel")),
        ([], {"platform": "libtorch"}, ("pytorch", "pytorch_libtorch", "model.pt")),
        ([], {"platform": "torch_aoti"}, ("pytorch", "torch_aoti", "model.pt2")),
        ([], {"default_model_filename": "model.pt"}, ("pytorch", "pytorch_libtorch", "model.pt")),
        (["model.pt"], {"default_model_filename": "bees.pt"}, ("pytorch", "pytorch_libtorch", "bees.pt")),
        (["model.pt2"], {"backend": "pytorch"}, ("pytorch", "torch_aoti", "model.pt2")),
        ([], {"backend": "identity"}, ("identity", None, None)),
    ],
)
def test_the_backend_is_found(
    tmp_path: Path, files: list[str], partial: dict[str, Any], expected: tuple[str, str | None, str | None]
) -> None:
    (tmp_path / "bees" / "1").mkdir(parents=True)
    for file in files:
        (tmp_path / "bees" / "1" / file).write_bytes(b"")
    config = {"name": "bees", **partial}
    completion.deduce(config, tmp_path / "bees")
    found = (config["backend"], config.get("platform"), config.get("default_model_filename"))
    assert found == expected


def test_only_the_first_version_is_looked_at(tmp_path: Path) -> None:
    for version, file in (("10", "model.pt"), ("2", "model.onnx")):
        (tmp_path / version).mkdir()
        (tmp_path / version / file).write_bytes(b"")
    config = {"name": "bees"}
    completion.deduce(config, tmp_path)
    assert config["backend"] == "pytorch"


def test_a_folder_may_name_the_backend(tmp_path: Path) -> None:
    (tmp_path / "bees.identity" / "1").mkdir(parents=True)
    config = {"name": "bees.identity"}
    completion.deduce(config, tmp_path / "bees.identity")
    assert config["backend"] == "identity"


@pytest.mark.parametrize(
    ("partial", "message"),
    [({}, "names no backend, and its first version folder has none of model.savedmodel"),
     ({"platform": "bees"}, "platform 'bees' of model 'bees' is not known"),
     ({"platform": "tensorrt_plan", "backend": "pytorch"}, "of backend 'tensorrt', not 'pytorch'")],
)  # fmt: skip
def test_a_backend_that_cannot_be_found_is_said(tmp_path: Path, partial: dict[str, Any], message: str) -> None:
    with pytest.raises(LoadFailed, match=message):
        completion.deduce({"name": "bees", **partial}, tmp_path)


def test_an_ensemble_is_left_alone(tmp_path: Path) -> None:
    assert complete(tmp_path, name="e", platform="ensemble") == {"name": "e", "platform": "ensemble"}

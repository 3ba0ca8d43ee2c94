"""Samples that run before a model is called ready."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.errors import LoadFailed
from shoal.worker.backends import tensors, triton, warmup
from shoal.worker.backends.merging import Layout, Merged, make_program
from tests.process.tensor_front import interface, spec
from tests.unit.worker.backends.making import config

IO = interface([spec("x", "FP32", 2), spec("s", "BYTES", 2)], [spec("y", "FP32", 2)], 8)


def sample(x: dict[str, Any], **more: Any) -> dict[str, Any]:
    strings = {"data_type": "TYPE_STRING", "dims": [2], "random_data": True}
    inputs = {"x": {"data_type": "TYPE_FP32", "dims": ["2"], **x}, "s": strings}
    return {"name": "first", "batch_size": 2, "inputs": inputs, **more}


def run(folder: Path, *samples: dict[str, Any], fails: bool = False, **more: Any) -> list[Merged]:
    seen: list[Merged] = []

    def infer(merged: Merged) -> dict[str, Any]:
        seen.append(merged)
        if fails:
            raise ValueError("no such bee")
        return {"y": merged.arrays["x"]}

    made = config(folder / "1", "identity", IO, settings={"model_warmup": list(samples)}, **more)
    warmup.run(made, make_program("bees", Layout(made), infer))
    return seen


def test_a_sample_is_a_batch_of_single_rows_on_every_instance_as_often_as_it_says(tmp_path: Path) -> None:
    seen = run(tmp_path, sample({"zero_data": True}, count=3), instances=2)
    assert len(seen) == 6
    assert seen[0].rows == [1, 1] and seen[0].arrays["x"].tolist() == [[0, 0], [0, 0]]
    assert seen[0].arrays["s"].tolist() == [[b"", b""], [b"", b""]]


def test_no_count_is_once_and_no_samples_are_none(tmp_path: Path) -> None:
    assert len(run(tmp_path, sample({"zero_data": True}))) == 1
    assert run(tmp_path) == []


def test_data_may_lie_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "warmup").mkdir()
    (tmp_path / "warmup" / "x").write_bytes(np.array([3, 4], np.float32).tobytes())
    (seen,) = run(tmp_path, sample({"input_data_file": "x"}))
    assert seen.arrays["x"].tolist() == [[3, 4], [3, 4]]


@pytest.mark.parametrize("name", ["../1/x", "/etc/passwd"])
def test_a_file_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(LoadFailed, match="input_data_file of 'x' must lie in warmup/"):
        run(tmp_path, sample({"input_data_file": name}))


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(LoadFailed, match="warm-up sample 'first' of model 'm': the data of 'x' cannot be read"):
        run(tmp_path, sample({"input_data_file": "x"}))


@pytest.mark.parametrize("datatype", [name for name in tensors.DTYPES if name != "BYTES"])
def test_random_data_is_of_its_type(datatype: str) -> None:
    data = warmup._random(datatype, 50)
    array = np.frombuffer(data, tensors.DTYPES[datatype])
    assert len(array) == 50 and len(set(array.tolist())) > 1
    if datatype.startswith("FP"):
        assert array.min() >= 0 and array.max() <= 1
    if datatype == "BF16":
        assert array.max() <= 0x3F80, "fractions"


def test_a_sample_that_fails_fails_the_load(tmp_path: Path) -> None:
    with pytest.raises(LoadFailed, match="warm-up sample 'first' of model 'm' failed: bees raised ValueError") as error:
        run(tmp_path, sample({"zero_data": True}), fails=True)
    assert "ValueError: no such bee" in error.value.traceback


def test_a_model_without_a_batch_gets_the_shape_as_it_is(tmp_path: Path) -> None:
    io = interface([spec("x", "FP32", 2)], [spec("y", "FP32", 2)])
    made = config(tmp_path / "1", "identity", io)
    items, data = warmup.requests({"inputs": {"x": {"data_type": "TYPE_FP32", "dims": [2]}}}, made)
    assert items[0].parts[0].content_type == "tensor/FP32;2" and data == bytes(8)


def test_loading_warms_up(tmp_path: Path) -> None:
    io = interface([spec("x", "FP32", 2)], [spec("y", "FP32", 2)], 8)
    broken = {"name": "short", "batch_size": 1, "inputs": {"x": {"data_type": "TYPE_FP32", "dims": [2],
                                                               "input_data_file": "x"}}}  # fmt: skip
    (tmp_path / "warmup").mkdir()
    (tmp_path / "warmup" / "x").write_bytes(b"1234")
    with pytest.raises(LoadFailed, match="warm-up sample 'short' of model 'm' failed: input byte size mismatch"):
        triton.load(config(tmp_path / "1", "identity", io, settings={"model_warmup": [broken]}), "m-1-0")


def test_a_backend_nobody_has_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LoadFailed, match="needs backend 'tensorrt'; there are onnxruntime, pytorch, python, identity"):
        triton.load(config(tmp_path, "tensorrt", IO), "m-1-0")


@pytest.mark.parametrize(
    ("io", "message"),
    [(interface([spec("x", "FP32", 2)], [], 8), "needs as many outputs as inputs"),
     (interface([spec("x", "FP32", 2)], [spec("y", "INT8", 2)], 8), "output 'y' must be FP32 as input 'x' is")],
)  # fmt: skip
def test_an_identity_has_pairs(tmp_path: Path, io: dict[str, Any], message: str) -> None:
    with pytest.raises(LoadFailed, match=message):
        triton.load(config(tmp_path, "identity", io), "m-1-0")

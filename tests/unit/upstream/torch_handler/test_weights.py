import contextlib
import io
import json
import logging
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from shoal.upstream.ts.utils.weights import ALLOW_PICKLE, FORCE, load_exported, load_weights


class Trap:
    """Runs code when it is unpickled: it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@pytest.fixture
def sprung(tmp_path: Path) -> Path:
    return tmp_path / "sprung"


@pytest.fixture
def trap(tmp_path: Path, sprung: Path) -> str:
    path = tmp_path / "weights.pth"
    torch.save({"weight": torch.ones(1), "more": Trap(sprung)}, path)
    return str(path)


def test_tensors_are_loaded(tmp_path: Path) -> None:
    torch.save({"a": torch.arange(3), "n": [1, "x"]}, tmp_path / "w.pth")

    loaded = load_weights(str(tmp_path / "w.pth"), "cpu")

    assert torch.equal(loaded["a"], torch.arange(3))
    assert loaded["n"] == [1, "x"]


def test_code_in_weights_is_not_run_and_the_error_says_what_to_do(trap: str, sprung: Path) -> None:
    with pytest.raises(pickle.UnpicklingError) as refused:
        load_weights(trap)

    assert not sprung.exists()
    assert str(refused.value).startswith("weights.pth carries code (")
    assert "Path" in str(refused.value)
    assert "`allow_pickle`" in str(refused.value)
    assert "state_dict()" in str(refused.value)


def test_code_in_weights_is_run_where_the_operator_allows_it(
    trap: str, sprung: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ALLOW_PICKLE, "1")

    assert set(load_weights(trap)) == {"weight", "more"}
    assert sprung.exists()


@pytest.mark.parametrize("value", ["", "0", "true"])
def test_nothing_but_one_allows_it(trap: str, sprung: Path, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv(ALLOW_PICKLE, value)

    with pytest.raises(pickle.UnpicklingError, match="carries code"):
        load_weights(trap)
    assert not sprung.exists()


def test_torchs_own_switch_does_not_open_the_door(trap: str, sprung: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")

    with pytest.raises(pickle.UnpicklingError, match="carries code"):
        load_weights(trap)
    assert not sprung.exists()


@pytest.mark.parametrize("content", [b"hello", b"zz", b"", b"\x80\x02."])
def test_a_file_that_holds_no_weights_is_not_called_code(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "w.pth"
    path.write_bytes(content)

    with pytest.raises(pickle.UnpicklingError, match=r"w.pth cannot be read as weights: it is damaged"):
        load_weights(str(path))


class Double(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("exported") / "double.pt2"
    torch.export.save(torch.export.export(Double(), (torch.ones(2, 3),)), path)
    return path


def test_an_exported_program_is_loaded(program: Path) -> None:
    assert torch.equal(load_exported(str(program)).module()(torch.ones(2, 3)), torch.full((2, 3), 2.0))


def test_code_hidden_in_an_exported_program_is_not_run(
    program: Path, tmp_path: Path, sprung: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = io.BytesIO()
    torch.save((Trap(sprung), {}), hidden)
    path = tmp_path / "bad.pt2"
    with zipfile.ZipFile(program) as good, zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as bad:
        for name in good.namelist():
            bad.writestr(name, hidden.getvalue() if "sample_inputs" in name else good.read(name))

    with pytest.raises(pickle.UnpicklingError, match=r"bad.pt2 carries code \(getattr"):
        load_exported(str(path))
    assert not sprung.exists()

    monkeypatch.setenv(ALLOW_PICKLE, "1")
    monkeypatch.setattr(logging.getLogger("torch._export.serde.serialize"), "disabled", True)  # it logs wrongly here
    load_exported(str(path))
    assert sprung.exists()


@pytest.mark.parametrize(
    "name",
    ["opaque_obj_0", "opaque_obj_0.json", "Opaque_Obj_0", "opaque_obj_a/b", "opaque_obj_0_constants_config.json"],
)
def test_a_constant_that_is_an_object_is_not_unpickled(
    program: Path, tmp_path: Path, sprung: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path = tmp_path / "bad.pt2"
    said = {"path_name": name.lower(), "is_param": False, "use_pickle": True, "tensor_meta": None}
    with zipfile.ZipFile(program) as good, zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as bad:
        for each in good.namelist():
            content = good.read(each)
            if each.endswith("model_constants_config.json"):
                content = json.dumps({"config": {"c": said}}).encode()
            bad.writestr(each, content)
        folder = good.namelist()[0].partition("/")[0]
        bad.writestr(f"{folder}/data/constants/{name}", pickle.dumps(Trap(sprung)))

    with pytest.raises(pickle.UnpicklingError, match=r"(?i)bad.pt2 carries a pickled object \(.*opaque_obj"):
        load_exported(str(path))
    assert not sprung.exists()

    monkeypatch.setenv(ALLOW_PICKLE, "1")
    with contextlib.suppress(Exception):  # nothing in the program means this constant
        load_exported(str(path))
    assert sprung.exists(), "the trap is none"


@pytest.mark.parametrize("before", [None, "0"])
def test_the_environment_is_as_before(program: Path, monkeypatch: pytest.MonkeyPatch, before: str | None) -> None:
    if before is None:
        monkeypatch.delenv(FORCE, raising=False)
    else:
        monkeypatch.setenv(FORCE, before)

    load_exported(str(program))

    assert os.environ.get(FORCE) == before

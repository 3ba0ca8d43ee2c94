"""What a template makes ready before it forks."""

import json
from pathlib import Path

import pytest

from shoal.worker.template import UPSTREAM, imports_of, needs_of, warm


def archive(folder: Path, handler: object) -> Path:
    (folder / "MAR-INF").mkdir()
    (folder / "MAR-INF" / "MANIFEST.json").write_text(json.dumps({"model": {"handler": handler}}))
    return folder


@pytest.fixture
def with_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())


def test_a_file_needs_what_it_imports(tmp_path: Path) -> None:
    file = tmp_path / "h.py"
    file.write_text(
        "import numpy as np\nfrom PIL import Image\nfrom . import near\n\ndef f():\n    import onnxruntime\n"
    )

    assert imports_of(file) == needs_of(file) == {"numpy", "PIL", "onnxruntime"}


def test_a_file_that_cannot_be_read_needs_nothing(tmp_path: Path) -> None:
    (tmp_path / "h.py").write_text("def (")

    assert needs_of(tmp_path / "h.py") == needs_of(tmp_path / "none.py") == set()


@pytest.mark.parametrize(
    ("line", "needs"),
    [
        ("from ts.torch_handler.image_classifier import ImageClassifier", {UPSTREAM, "torch"}),
        ("import ts.torch_handler.base_handler", {UPSTREAM, "torch"}),
        ("from ts.context import Context", {UPSTREAM}),
        ("from mms.service import PredictionException", {UPSTREAM}),
        ("import tsx.torch_handler", set()),
    ],
)
@pytest.mark.usefixtures("with_torch")
def test_a_handler_for_torchserve_needs_what_it_stands_on(tmp_path: Path, line: str, needs: set[str]) -> None:
    (tmp_path / "h.py").write_text(line)

    assert needs_of(tmp_path / "h.py") - imports_of(tmp_path / "h.py") == needs


@pytest.mark.parametrize(("handler", "needs"), [("base_handler", True), ("base_handler.py", True), ("own.py", False)])
@pytest.mark.usefixtures("with_torch")
def test_an_archive_with_a_brought_handler_needs_torch(tmp_path: Path, handler: str, needs: bool) -> None:
    found = needs_of(archive(tmp_path, handler))

    assert ("torch" in found) is needs
    assert UPSTREAM in found


def test_without_torch_none_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    assert "torch" not in needs_of(archive(tmp_path, "base_handler"))


@pytest.mark.parametrize("handler", [None, 3, [], {"a": 1}])
def test_a_manifest_that_makes_no_sense_asks_for_nothing(tmp_path: Path, handler: object) -> None:
    assert "torch" not in needs_of(archive(tmp_path, handler))
    assert needs_of(tmp_path / "MAR-INF") == set()


def test_what_cannot_be_imported_is_named_and_what_is_not_known_is_left(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import PIL.nothing_like_this\nimport antigravity_of_bees\nimport ts.context\n")

    assert warm([tmp_path / "a.py"]) == ["PIL.nothing_like_this"]


def test_only_what_is_safe_before_a_fork_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.py").write_text("import numpy.linalg\nimport ts.context\nimport bees\n")
    imported: list[str] = []
    monkeypatch.setattr("importlib.import_module", imported.append)

    assert warm([tmp_path / "a.py"]) == []
    assert imported == ["numpy.linalg", UPSTREAM]

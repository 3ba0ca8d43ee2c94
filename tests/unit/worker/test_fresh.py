"""A model's own code is read anew, also where Python would take what it compiled of an older self."""

import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.worker import fresh
from shoal.worker.backends.python import import_file


@pytest.fixture(autouse=True)
def compiling(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Python keeps what it compiles, whatever the tests were told."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "path_hooks", list(sys.path_hooks))
    monkeypatch.setattr(fresh, "_folders", set())
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]
    sys.path_importer_cache.clear()


def save(file: Path, word: str) -> Path:
    """Always at the same second, as what comes in an image does."""
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"word = {word!r}\n")
    os.utime(file, (1e9, 1e9))
    return file


def test_python_itself_would_take_the_older_one(tmp_path: Path) -> None:
    sys.path.insert(0, str(tmp_path))
    save(tmp_path / "plainly.py", "old")
    importlib.import_module("plainly")
    save(tmp_path / "plainly.py", "new")
    del sys.modules["plainly"]

    assert importlib.import_module("plainly").word == "old"


def test_a_file_is_read_anew_and_nothing_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "model.py"

    assert [import_file(save(file, word), "a_model").word for word in ("old", "new")] == ["old", "new"]
    assert not (tmp_path / "__pycache__").exists()


def test_so_are_the_modules_beside_it_and_libraries_below_it_are_not(tmp_path: Path) -> None:
    sys.path.insert(0, str(tmp_path))
    (tmp_path / "lib").mkdir()
    save(tmp_path / "lib" / "__init__.py", "lib")
    save(tmp_path / "lib" / "part.py", "part")
    words = []
    for word in ("old", "new"):
        save(tmp_path / "beside_it.py", word)
        fresh.read_fresh(tmp_path)
        words.append(importlib.import_module("beside_it").word)
        importlib.import_module("lib.part")
        del sys.modules["beside_it"], sys.modules["lib.part"], sys.modules["lib"]

    assert words == ["old", "new"]
    assert not (tmp_path / "__pycache__").exists()
    assert [file.name.partition(".")[0] for file in (tmp_path / "lib" / "__pycache__").iterdir()] == ["part"]


def test_what_python_compiled_before_is_not_looked_at(tmp_path: Path) -> None:
    sys.path.insert(0, str(tmp_path))
    save(tmp_path / "compiled_before.py", "old")
    importlib.import_module("compiled_before")
    save(tmp_path / "compiled_before.py", "new")
    del sys.modules["compiled_before"]
    fresh.read_fresh(tmp_path)

    assert importlib.import_module("compiled_before").word == "new"


def test_a_traceback_still_shows_the_source(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("def predict(items):\n    return 1 / 0  # here\n")
    module = import_file(tmp_path / "model.py", "a_model_that_fails")

    with pytest.raises(ZeroDivisionError) as caught:
        module.predict([])

    assert "# here" in str(caught.traceback[-1].statement)

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from shoal.errors import LoadFailed
from shoal.worker.backends import python
from shoal.worker.handler import Context
from shoal.worker.program import Program
from tests.unit.worker.making import config

CLASS = """
    class Bees:
        def inference(self, data):
            return data
"""
HANDLER = "from shoal.worker.handler import Handler\nclass Hive(Handler):\n def inference(self, d): return d"
FUNCTION = """
    def predict(items):
        return items
"""


@pytest.fixture(autouse=True)
def _process_as_it_was(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Loading changes the process, which is a worker's own; a test's is not."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.chdir(tmp_path)
    before = dict(os.environ)
    known = set(sys.modules)
    yield
    os.environ.clear()
    os.environ.update(before)
    for name in set(sys.modules) - known:
        del sys.modules[name]


def load(path: Path, handler: str = "", **fields: Any) -> Program:
    return python.load(config(path=str(path), handler=handler, **fields), "worker-1")


def context_of(program: Program) -> Context:
    assert isinstance(program.context, Context)
    return program.context


def write(path: Path, source: str) -> Path:
    path.write_text(dedent(source))
    return path


def found(tmp_path: Path, source: str, handler: str = "") -> str:
    """The name of the handler found in a file."""
    return load(write(tmp_path / "bees.py", source), handler).handler


def refused(tmp_path: Path, source: str, handler: str = "") -> str:
    """What a file is refused with."""
    with pytest.raises(LoadFailed) as failed:
        found(tmp_path, source, handler)
    return str(failed.value)


@pytest.mark.parametrize(
    ("source", "name"),
    [
        (FUNCTION, "predict"),
        (CLASS, "Bees"),
        (CLASS + FUNCTION, "Bees"),
        (HANDLER + "\nclass Other:\n def inference(self, d): return d", "Hive"),
        (HANDLER + "\nclass Bees(Hive): pass", "Bees"),
        ("class S:\n def handle(self, data, context): return data", "S"),
        ("class Config: pass\ndef handle(data, context): return data\ndef predict(items): return items", "handle"),
        ("def helper(x): return x\ndef predict(items): return items", "predict"),
        ("from os.path import join\ndef _private(x): pass\ndef classify(items): return items", "classify"),
    ],
)  # fmt: skip
def test_the_handler_of_a_file_is_found(tmp_path: Path, source: str, name: str) -> None:
    assert found(tmp_path, source) == name


@pytest.mark.parametrize("handler", ["second", "bees.py:second", "bees:second"])
def test_a_handler_can_be_named(tmp_path: Path, handler: str) -> None:
    assert found(tmp_path, "def first(items): return items\ndef second(items): return items", handler) == "second"


def test_an_instance_can_be_named(tmp_path: Path) -> None:
    assert found(tmp_path, dedent(CLASS) + "queen = Bees()\n", "queen") == "queen"


def test_two_candidates_of_one_rank_are_refused_with_both_names(tmp_path: Path) -> None:
    source = "class A:\n def inference(self, d): return d\nclass B:\n def inference(self, d): return d"
    assert refused(tmp_path, source) == (
        "bees.py has more than one handler: A, B. Say which: shoal serve bees.py --handler A"
    )


def test_several_functions_without_predict_are_refused_with_their_names(tmp_path: Path) -> None:
    assert refused(tmp_path, "def one(items): return items\ndef two(items): return items") == (
        "bees.py has more than one handler: one, two. Say which: shoal serve bees.py --handler one"
    )


@pytest.mark.parametrize("base", ["", "(Handler)"])
def test_a_class_without_inference_is_refused_with_what_it_has(tmp_path: Path, base: str) -> None:
    source = f"""
        from shoal.worker.handler import Handler

        class Bees{base}:
            def initialize(self, context): pass
            def infer(self, data): return data
    """
    assert refused(tmp_path, source) == (
        "class Bees in bees.py has no method `inference`; it defines: initialize, infer (did you mean inference?). "
        "Add `def inference(self, data)`"
    )
    assert refused(tmp_path, source, "Bees").startswith("class Bees in bees.py has no method `inference`; it defines:")


def test_an_incomplete_handler_is_not_passed_over_for_a_helper_function(tmp_path: Path) -> None:
    source = """
        from shoal.worker.handler import Handler

        def helper(x): return x

        class Bees(Handler):
            def infer(self, data): return data
    """
    assert "has no method `inference`" in refused(tmp_path, source)


def test_an_empty_file_is_refused_with_what_to_write(tmp_path: Path) -> None:
    message = refused(tmp_path, "X = 1")
    assert "bees.py has no handler; it has no class and no function" in message
    assert "def predict(items)" in message


def test_a_name_that_is_not_there_is_refused_with_the_closest(tmp_path: Path) -> None:
    assert refused(tmp_path, FUNCTION, "predcit") == (
        "bees.py has no 'predcit'; it defines: predict (did you mean predict?)"
    )


def test_a_method_of_the_wrong_shape_is_refused(tmp_path: Path) -> None:
    assert refused(tmp_path, "class Bees:\n def inference(self): pass") == (
        "Bees.inference() must take one argument: def inference(self, data)"
    )
    assert "must take a list of items" in refused(tmp_path, "def predict(): pass")


def test_an_import_that_fails_names_file_line_and_module(tmp_path: Path) -> None:
    with pytest.raises(LoadFailed) as failed:
        found(tmp_path, "import os\n\nimport torhc\n")
    assert str(failed.value) == "bees.py line 3: No module named 'torhc'"
    assert failed.value.traceback.splitlines()[1].strip().startswith(f'File "{tmp_path / "bees.py"}", line 3')


def test_an_error_in_a_helper_beside_the_file_names_the_helper(tmp_path: Path) -> None:
    write(tmp_path / "hives.py", "COUNT = 1 / 0\n")
    assert refused(tmp_path, "import hives\n") == "hives.py line 1: ZeroDivisionError: division by zero"


def test_a_syntax_error_names_its_line(tmp_path: Path) -> None:
    assert refused(tmp_path, "x = 1\ndef predict(items:\n").startswith("bees.py line 2: '(' was never closed")


def test_a_script_that_exits_is_a_failed_load(tmp_path: Path) -> None:
    assert refused(tmp_path, "import sys\nsys.exit(3)\n") == "bees.py line 2: SystemExit: 3"


def test_initialize_that_raises_is_a_failed_load(tmp_path: Path) -> None:
    source = dedent(CLASS) + "    def initialize(self, context):\n        open('/no/weights')\n"
    with pytest.raises(LoadFailed) as failed:
        found(tmp_path, source)
    assert str(failed.value).startswith("bees.py line 6: Bees could not be initialised: FileNotFoundError:")
    assert "shoal/worker" not in failed.value.traceback
    assert isinstance(failed.value.__cause__, FileNotFoundError)


def test_a_class_that_needs_arguments_is_a_failed_load(tmp_path: Path) -> None:
    message = refused(tmp_path, dedent(CLASS) + "    def __init__(self, path): pass\n")
    assert "Bees could not be initialised: TypeError: " in message


def test_helpers_beside_the_file_can_be_imported(tmp_path: Path) -> None:
    write(tmp_path / "hives.py", "def predict_all(items): return items\n")
    assert found(tmp_path, "import hives\ndef predict(items): return hives.predict_all(items)") == "predict"


@pytest.mark.parametrize("name", ["model.py", "handler.py", "whatever.py"])
def test_a_folder_is_entered_and_its_file_found(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "bees"
    folder.mkdir()
    write(folder / name, "from pathlib import Path\nLABELS = Path('labels.txt').read_text()\n" + dedent(FUNCTION))
    write(folder / "labels.txt", "bee")
    if name != "whatever.py":
        write(folder / "helper.py", "")
    program = load(folder)
    assert program.handler == "predict"
    assert context_of(program).model_dir == str(folder) == str(Path.cwd())


def test_a_folder_with_several_files_needs_a_name(tmp_path: Path) -> None:
    for name in ("one.py", "two.py"):
        write(tmp_path / name, FUNCTION)
    with pytest.raises(LoadFailed, match=r"it has one\.py, two\.py\. Or name it"):
        load(tmp_path)
    assert load(tmp_path, "two").handler == "predict"
    assert load(tmp_path, "one.py:predict").handler == "predict"
    with pytest.raises(LoadFailed, match=r"names three\.py, and .* has one\.py, two\.py"):
        load(tmp_path, "three.py:predict")


def test_what_is_not_there_or_not_python_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LoadFailed, match="does not exist"):
        load(tmp_path / "absent.py")
    with pytest.raises(LoadFailed, match="is not a Python file"):
        load(write(tmp_path / "weights.onnx", ""))


def test_the_models_environment_is_set_before_its_code_runs(tmp_path: Path) -> None:
    path = write(tmp_path / "bees.py", "import os\nX = os.environ['HIVE']\n" + dedent(FUNCTION))
    assert load(path, environment={"HIVE": "7"}).handler == "predict"


def test_the_manifest_of_an_unpacked_archive_is_read(tmp_path: Path) -> None:
    path = write(tmp_path / "bees.py", FUNCTION)
    assert context_of(load(path)).manifest["model"] == {"modelName": "m", "modelVersion": "1.0", "handler": "predict"}
    (tmp_path / "MAR-INF").mkdir()
    write(tmp_path / "MAR-INF" / "MANIFEST.json", '{"model": {"serializedFile": "w.pt"}}')
    assert context_of(load(path)).manifest == {"model": {"serializedFile": "w.pt"}}


def test_only_handlers_that_can_see_headers_get_them(tmp_path: Path) -> None:
    assert not load(write(tmp_path / "a.py", CLASS)).wants_headers
    assert load(write(tmp_path / "b.py", dedent(CLASS) + "    def initialize(self, context): pass\n")).wants_headers

from pathlib import Path

import pytest

from shoal.tools.doctor.imports import check_imports, imports_in, missing_handler


def looked(folder: Path, source: str, **others: str) -> list[tuple[str, str]]:
    (folder / "h.py").write_text(source)
    for name, text in others.items():
        (folder / f"{name}.py").write_text(text)
    return [(finding.level, finding.text) for finding in check_imports(folder, folder / "h.py")]


@pytest.mark.parametrize(
    "source",
    [
        "import os, json",
        "import ts.torch_handler.base_handler",
        "from ts.context import Context",
        "from mms.service import Service",
        "import triton_python_backend_utils as pb",
        "import pytest",
        "from . import something",
        "",
    ],
)
def test_what_is_there_is_not_spoken_of(tmp_path: Path, source: str) -> None:
    assert looked(tmp_path, source) == []


def test_a_module_that_is_nowhere_will_not_be_found_by_a_worker_either(tmp_path: Path) -> None:
    found = looked(tmp_path, "import os\nimport no_such_module.deep\n")

    assert found == [("fails", "h.py line 2 imports no_such_module.deep, which is not installed here")]


@pytest.mark.parametrize(
    "source",
    [
        "def f():\n    import no_such_module\n",
        "try:\n    import no_such_module\nexcept ImportError:\n    pass\n",
        "if False:\n    import no_such_module\n",
    ],
)
def test_an_import_that_may_never_be_reached_is_a_warning(tmp_path: Path, source: str) -> None:
    ((level, text),) = looked(tmp_path, source)

    assert level == "differs"
    assert "only when that line is reached" in text


def test_an_import_inside_a_class_is_reached_for_sure(tmp_path: Path) -> None:
    assert looked(tmp_path, "class A:\n    import no_such_module\n")[0][0] == "fails"


def test_files_beside_the_handler_are_looked_at_too(tmp_path: Path) -> None:
    found = looked(tmp_path, "import helper\n", helper="import again\n", again="import helper, no_such_module\n")

    assert found == [("fails", "again.py line 1 imports no_such_module, which is not installed here")]


def test_packages_that_will_be_installed_count_as_there(tmp_path: Path) -> None:
    (tmp_path / "h.py").write_text("import cv2x\nimport No_Such\nimport yaml2\n")

    found = check_imports(tmp_path, tmp_path / "h.py", ["cv2x", "no-such", "other"])

    assert ["yaml2" in finding.text for finding in found] == [True]


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("from ts.model_server import start", "it belongs to the server's own process"),
        ("from mms.utils.mxnet import image", "Apache MXNet"),
        ("from ts.torch_handler.vllm_handler import VLLMHandler", "write a handler that calls vllm itself"),
        ("import ts.no_such_thing", "not among the modules that workers have"),
    ],
)
def test_what_is_not_provided_of_torchserve_is_said_with_its_reason(tmp_path: Path, source: str, reason: str) -> None:
    ((level, text),) = looked(tmp_path, source)

    assert level == "fails"
    assert reason in text


def test_a_file_that_is_no_python_3_is_named_with_its_line(tmp_path: Path) -> None:
    ((level, text),) = looked(tmp_path, "x = 1\nprint 'hello'\n")

    assert level == "fails"
    assert text.startswith("h.py line 2: it is no Python 3")


def test_nothing_is_run(tmp_path: Path) -> None:
    assert looked(tmp_path, f"open({str(tmp_path / 'ran')!r}, 'w')\n") == []
    assert not (tmp_path / "ran").exists()


def test_imports_know_their_lines(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import x, y.z\n\nfrom w import v\n")

    assert [(used.module, used.line) for used in imports_in(tmp_path / "a.py")] == [("x", 1), ("y.z", 1), ("w", 3)]


def test_handlers_that_are_provided_have_no_reason() -> None:
    assert missing_handler("ts.torch_handler.image_classifier") == ""
    assert missing_handler("ts.torch_handler.nothing") == ""

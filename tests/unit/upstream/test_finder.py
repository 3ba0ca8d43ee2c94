"""One module object under two names, and clear words about the names that are not there."""

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.upstream import finder


@pytest.fixture
def installed() -> Iterator[None]:
    finder.install("ts", "mms")
    yield
    finder.uninstall()


@pytest.mark.parametrize(
    "name", ["ts", "ts.context", "ts.metrics.dimension", "ts.torch_handler.request_envelope.json", "mms.service"]
)
def test_both_names_give_the_same_module(installed: None, name: str) -> None:
    assert importlib.import_module(name) is importlib.import_module(f"shoal.upstream.{name}")


def test_a_module_keeps_the_name_it_has_here(installed: None) -> None:
    module = importlib.import_module("ts.context")

    assert module.__name__ == "shoal.upstream.ts.context"
    assert module.__spec__ is not None and module.__spec__.name == "shoal.upstream.ts.context"


def test_a_submodule_can_be_imported_from_its_package(installed: None) -> None:
    scope: dict[str, object] = {}
    exec("from ts.metrics import dimension\nimport ts.context\nkind = ts.context.Context", scope)

    assert scope["dimension"] is importlib.import_module("shoal.upstream.ts.metrics.dimension")
    assert scope["kind"] is importlib.import_module("shoal.upstream.ts.context").Context


def test_an_unknown_name_says_which_names_there_are(installed: None) -> None:
    with pytest.raises(ModuleNotFoundError, match=r"'ts.handler_utils.nope'.*ts.handler_utils has:.*micro_batching"):
        importlib.import_module("ts.handler_utils.nope")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("ts.launcher", "client's script"),
        ("mms.model_service.mxnet_model_service", "MXNet"),
        ("mms.utils.mxnet.image", "MXNet"),
        ("ts.handler_utils.preprocess.dali", "DALI"),
        ("ts.model_server", "server's own process"),
    ],
)
def test_what_is_not_provided_says_why(installed: None, name: str, reason: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=f"is not provided: .*{reason}"):
        importlib.import_module(name)


def test_a_really_installed_package_does_not_win(tmp_path: Path) -> None:
    (tmp_path / "ts").mkdir()
    (tmp_path / "ts" / "__init__.py").write_text("__version__ = 'real'")
    (tmp_path / "ts" / "context.py").write_text("Context = 'real'")
    code = (
        "import ts, ts.context, sys; assert ts.__version__ == 'real'\n"
        "from shoal.upstream import finder; finder.install('ts')\n"
        "import ts, ts.context, shoal.upstream.ts.context as ours\n"
        "print(ts.__version__, ts.context.Context is ours.Context)"
    )
    source = str(Path(finder.__file__).parents[2])
    ran = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PYTHONPATH": f"{tmp_path}:{source}"},
    )

    assert ran.stdout.split() == ["0.12.0", "True"], ran.stderr


def test_it_is_first_and_there_once_however_often_it_is_installed(installed: None) -> None:
    sys.meta_path.insert(0, sys.meta_path.pop())
    finder.install("ts")

    assert isinstance(sys.meta_path[0], finder.Finder)
    assert sum(isinstance(found, finder.Finder) for found in sys.meta_path) == 1


def test_other_imports_are_left_alone(installed: None) -> None:
    assert finder.Finder().find_spec("ts") is None
    assert sys.meta_path[0].find_spec("tsx", None) is None


def test_uninstalled_nothing_is_left() -> None:
    finder.install("ts")
    importlib.import_module("ts.context")
    finder.uninstall()

    assert not {"ts", "ts.context"} & sys.modules.keys()
    assert not any(isinstance(found, finder.Finder) for found in sys.meta_path)


def test_torchserves_own_handlers_are_named() -> None:
    assert {"base_handler", "image_classifier"} <= set(finder.handlers())
    assert "weights" not in finder.handlers()

"""What may not be in the source at all, whoever calls it: ways for data to become code."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.archive.entries import Limits
from shoal.archive.manifest import read_settings
from shoal.archive.workflow import read_specification
from shoal.config.load import read_file
from shoal.errors import BadArchive, ConfigError

SOURCE = Path(__file__).parents[2] / "src" / "shoal"
MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
CALLS = {"eval", "exec", "__import__"}
READERS = {("yaml", "load"), ("yaml", "unsafe_load"), ("yaml", "full_load"), ("np", "load"), ("numpy", "load")}
KNOWN = {
    "demo/checkpoint.py: pickle",  # an unpickler that knows tensors and nothing else
    "upstream/ts/utils/weights.py: pickle",  # the name of torch's error
    "upstream/ts/utils/weights.py: torch.load",  # where the operator set `allow_pickle`
}
TAG = "!!python/object/apply:os.system ['true']"


def risks(file: Path) -> Iterator[str]:
    """Name what in a file turns data into code."""
    for node in ast.walk(ast.parse(file.read_bytes())):
        match node:
            case ast.Import(names=names):
                yield from (name.name for name in names if name.name.split(".")[0] in MODULES)
            case ast.ImportFrom(module=str(module)) if module.split(".")[0] in MODULES:
                yield module
            case ast.Call(func=ast.Name(id=name)) if name in CALLS:
                yield name
            case ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr=name)) if (owner, name) in READERS:
                yield f"{owner}.{name}"
            case ast.Call(func=ast.Attribute(value=ast.Name(id="torch"), attr="load"), keywords=told):
                if not any(isinstance(each, ast.keyword) and ast.unparse(each) == "weights_only=True" for each in told):
                    yield "torch.load"
            case ast.keyword(arg="shell", value=ast.Constant(value=True)):
                yield "shell=True"


def test_nothing_turns_data_into_code_but_what_is_listed() -> None:
    found = {f"{file.relative_to(SOURCE)}: {risk}" for file in SOURCE.rglob("*.py") for risk in risks(file)}
    assert found == KNOWN


@pytest.mark.parametrize("file", sorted((SOURCE / "frontend" / "pages").glob("*.js")), ids=lambda file: file.name)
def test_pages_write_texts_and_never_markup(file: Path) -> None:
    markup = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc|javascript:"
    assert re.findall(markup, file.read_text()) == []


def test_no_yaml_makes_objects(tmp_path: Path) -> None:
    (tmp_path / "model-config.yaml").write_text(f"minWorkers: {TAG}\n")
    with pytest.raises(BadArchive, match="could not determine a constructor"):
        read_settings(tmp_path, "model-config.yaml", Limits())

    with pytest.raises(ConfigError, match="could not determine a constructor"):
        read_file(str(tmp_path / "model-config.yaml"))

    (tmp_path / "WAR-INF").mkdir()
    (tmp_path / "WAR-INF" / "MANIFEST.json").write_text('{"workflow": {"workflowName": "w", "specFile": "s.yaml"}}')
    (tmp_path / "s.yaml").write_text(f"models: {TAG}\n")
    with pytest.raises(BadArchive, match="could not determine a constructor"):
        read_specification(tmp_path)

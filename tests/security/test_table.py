"""The attack table is true: its tests exist, what it takes away is there, and the document says the same."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

from shoal.config.load import server_config
from tests.security.document import DOCUMENT, parts, rendered
from tests.security.table import Attack, attacks

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("attack", attacks(), ids=lambda attack: f"{attack.section}: {attack.attack}")
def test_a_row_names_a_defence_and_a_test_that_are_there(attack: Attack) -> None:
    assert attack.old in (ROOT / "src" / "shoal" / attack.file).read_text()
    file, name = attack.test.split("::")
    tree = ast.parse((ROOT / "tests" / file).read_text())
    functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    assert name in functions


def test_the_settings_of_the_document_are_taken() -> None:
    (block,) = re.findall(r"```toml title=\"shoal.toml\"\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    config = server_config(tomllib.loads(block), {}, {})
    assert (config.worker_user, config.worker_limits.files) == ("shoal-worker", 1024)


def test_the_document_has_the_table_as_it_is() -> None:
    assert parts()[1].strip() == rendered().strip()

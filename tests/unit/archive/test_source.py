from pathlib import Path

import pytest

from shoal.archive.source import find_source, name_of
from shoal.errors import InvalidInput


@pytest.fixture
def store(tmp_path: Path) -> Path:
    store = tmp_path / "store"
    (store / "folder").mkdir(parents=True)
    (store / "model.py").write_text("")
    (tmp_path / "secret.py").write_text("")
    return store


def test_an_operator_may_name_any_path_or_one_in_the_store(store: Path) -> None:
    secret = store.parent / "secret.py"

    assert find_source(str(secret)) == secret
    assert find_source("model.py", str(store)) == store / "model.py"


def test_an_operator_is_told_where_was_looked(store: Path) -> None:
    with pytest.raises(InvalidInput, match=r"no model at 'gone\.py'.*store/gone\.py"):
        find_source("gone.py", str(store))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("resnet.py", "resnet"),
        ("my model.v2.py", "my_model.v2"),
        (".hidden.py", "hidden"),
        ("a/b.py", "b"),
        ("..", "model"),
    ],
)
def test_a_model_without_a_name_is_called_after_its_file(name: str, expected: str) -> None:
    assert name_of(Path(name)) == expected


def test_a_folder_keeps_its_ending(store: Path) -> None:
    folder = store / "net.v1"
    folder.mkdir()

    assert name_of(folder) == "net.v1"

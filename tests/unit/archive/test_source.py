import os
from pathlib import Path

import pytest

from shoal.archive.source import find_in_store, find_source, name_of
from shoal.errors import InvalidInput, ModelNotFound


@pytest.fixture
def store(tmp_path: Path) -> Path:
    store = tmp_path / "store"
    (store / "folder").mkdir(parents=True)
    (store / "model.py").write_text("")
    (tmp_path / "secret.py").write_text("")
    (tmp_path / "store-2").mkdir()
    (tmp_path / "store-2" / "other.py").write_text("")
    return store


@pytest.mark.parametrize("url", ["model.py", "folder", "folder/../model.py", "./model.py"])
def test_what_is_in_the_store_is_found(store: Path, url: str) -> None:
    assert find_in_store(url, str(store)).is_relative_to(store)


@pytest.mark.parametrize(
    "url",
    [
        "../secret.py",
        "folder/../../secret.py",
        "../store-2/other.py",
        "/etc/passwd",
        "..",
        ".",
        "",
        "./",
        "folder/..",
        "../not-there.py",
    ],
)
def test_nothing_outside_the_store_is_found_or_told_about(store: Path, url: str) -> None:
    with pytest.raises(ModelNotFound, match="Relative path is not allowed in url"):
        find_in_store(url, str(store))


def test_the_absolute_path_of_a_model_outside_is_refused(store: Path) -> None:
    with pytest.raises(ModelNotFound, match="not allowed"):
        find_in_store(str(store.parent / "secret.py"), str(store))


def test_a_link_out_of_the_store_is_not_followed(store: Path) -> None:
    os.symlink(store.parent / "secret.py", store / "link.py")
    os.symlink(store.parent, store / "up")

    for url in ("link.py", "up/secret.py"):
        with pytest.raises(ModelNotFound, match="not allowed"):
            find_in_store(url, str(store))


def test_a_store_that_is_a_link_itself_is_a_store(store: Path) -> None:
    os.symlink(store, store.parent / "link")

    assert find_in_store("model.py", str(store.parent / "link")) == store / "model.py"


@pytest.mark.parametrize("url", ["gone.py", "a\0b", "x" * 5000, "model.py/inside", "loop", "http://host/model.mar"])
def test_a_name_that_cannot_be_a_file_is_simply_not_found(store: Path, url: str) -> None:
    os.symlink(store / "loop", store / "loop")

    with pytest.raises(ModelNotFound):
        find_in_store(url, str(store))


def test_without_a_store_nothing_can_be_registered_by_name() -> None:
    with pytest.raises(InvalidInput, match="--model-store"):
        find_in_store("model.py", "")


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

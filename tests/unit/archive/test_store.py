import os
from pathlib import Path
from typing import Any

import pytest

from shoal.archive.store import Place, Store, stem_of
from shoal.errors import InvalidInput, SourceNotFound


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    store = tmp_path / "store"
    (store / "folder").mkdir(parents=True)
    (store / "folder" / "h.py").touch()
    (store / "sub" / "inner").mkdir(parents=True)
    (store / "sub" / "x.mar").touch()
    for name in ("a.mar", "b.tar.gz", "c.model", "d.py", "e.txt", ".hidden.mar", "resnet-18_mb.mar"):
        (store / name).touch()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "h.py").touch()
    return store


def theirs(folder: Path | str) -> Store:
    return Store(str(folder), "torchserve", python_files=False)


def ours(folder: Path | str) -> Store:
    return Store(str(folder), "", python_files=True)


def not_found(store: Store, url: str, words: str) -> None:
    with pytest.raises(SourceNotFound, match=words):
        store.find(url)


# -- TorchServe's rules -----------------------------------------------------------------------------------------------


def test_an_empty_url_names_nothing(folder: Path) -> None:
    for store in (theirs(folder), ours(folder)):
        not_found(store, "", "^empty url$")


@pytest.mark.parametrize("url", ["..", "../a.mar", "sub/../a.mar", "http://host/../a.mar", "a..b.mar", "/x/../y"])
def test_two_dots_are_refused_wherever_they_are(folder: Path, url: str) -> None:
    for store in (theirs(folder), ours(folder)):
        not_found(store, url, f"^Relative path is not allowed in url: {url}$")


@pytest.mark.parametrize("url", ["a.mar", "some/where/a.mar", "/some/where/a.mar", "./a.mar"])
def test_only_the_last_name_counts(folder: Path, url: str) -> None:
    assert theirs(folder).find(url) == Place("archive", folder / "a.mar")


@pytest.mark.parametrize("name", ["b.tar.gz", "c.model", "d.py", "e.txt"])
def test_every_file_of_the_store_is_taken_for_an_archive(folder: Path, name: str) -> None:
    assert theirs(folder).find(name) == Place("archive", folder / name)


def test_a_folder_is_used_in_place(folder: Path, tmp_path: Path) -> None:
    store = theirs(folder)

    assert store.find("folder") == store.find(f"{folder}/folder/") == Place("folder", folder / "folder")
    assert store.find(str(tmp_path / "outside")) == Place("folder", tmp_path / "outside")


def test_the_store_goes_before_a_folder_elsewhere(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere" / "folder").mkdir(parents=True)

    assert theirs(folder).find(str(tmp_path / "elsewhere" / "folder")).path == folder / "folder"


def test_a_folder_with_nothing_but_one_other_is_that_other(folder: Path) -> None:
    (folder / "wrapped" / "model").mkdir(parents=True)
    (folder / "bare" / "MAR-INF").mkdir(parents=True)

    assert theirs(folder).find("wrapped").path == folder / "wrapped" / "model"
    assert theirs(folder).find("bare").path == folder / "bare"
    assert theirs(folder).find("sub").path == folder / "sub", "it has two"


@pytest.mark.parametrize(
    "url", ["gone.mar", "/no/such/place", ".", "/", "a\0b", "x" * 5000, "loop", "pipe", "outside", "sub/inner"]
)
def test_what_is_not_there_is_said_so(folder: Path, url: str) -> None:
    os.symlink(folder / "loop", folder / "loop")
    os.mkfifo(folder / "pipe")

    with pytest.raises(SourceNotFound) as raised:
        theirs(folder).find(url)
    assert str(raised.value) == f"Model not found at: {url}"


def test_a_url_is_a_download(folder: Path) -> None:
    for url in ("http://host/a.mar", "file:///srv/a.mar", "s3://bucket/a.mar"):
        assert theirs(folder).find(url).kind == "download"


def test_without_a_store_there_are_no_names(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()

    not_found(theirs(""), "a.mar", r"^Model store has not been configured\.$")
    assert theirs("").find(str(tmp_path / "m")).path == tmp_path / "m"
    with pytest.raises(InvalidInput, match="--model-store"):
        ours("").find("a.mar")


def test_a_link_of_the_store_is_the_operators_doing(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "big.mar").touch()
    os.symlink(tmp_path / "big.mar", folder / "link.mar")

    assert theirs(folder).find("link.mar").kind == "archive"


# -- additions --------------------------------------------------------------------------------------------------------


def test_a_name_without_its_ending_is_found(folder: Path) -> None:
    for store in (theirs(folder), ours(folder)):
        assert store.find("resnet-18_mb").path == folder / "resnet-18_mb.mar"
        assert store.find("b").path == folder / "b.tar.gz"
    assert ours(folder).find("d") == Place("file", folder / "d.py")
    not_found(theirs(folder), "d", "not found at: d")


def test_a_folder_goes_before_the_archive_of_its_name(folder: Path) -> None:
    (folder / "folder.mar").touch()

    assert theirs(folder).find("folder").kind == "folder"


def test_our_own_models_are_files_and_may_be_in_folders_of_the_store(folder: Path) -> None:
    (folder / "sub" / "y.py").touch()

    assert ours(folder).find("d.py") == Place("file", folder / "d.py")
    assert ours(folder).find("sub/y.py") == Place("file", folder / "sub" / "y.py")
    assert ours(folder).find("sub/x.mar") == Place("archive", folder / "sub" / "x.mar")
    assert Store(str(folder), "mms", python_files=False).find("sub/x.mar").path == folder / "sub" / "x.mar"
    not_found(theirs(folder), "sub/x.mar", "not found")


def test_our_own_rules_take_nothing_from_outside(folder: Path, tmp_path: Path) -> None:
    os.symlink(tmp_path / "outside", folder / "way-out")
    os.symlink(tmp_path / "outside" / "h.py", folder / "link.py")

    for url in (str(tmp_path / "outside"), "way-out", "way-out/h.py", "link.py", "link", str(folder), "/etc/passwd"):
        not_found(ours(folder), url, "Model not found at")
    assert ours(folder).find(f"{folder}/sub/inner").path == folder / "sub" / "inner"


def test_a_store_that_is_a_link_itself_is_a_store(folder: Path, tmp_path: Path) -> None:
    os.symlink(folder, tmp_path / "link")

    assert ours(tmp_path / "link").find("d.py").path == folder / "d.py"


# -- at the start -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["all", "ALL", " All "])
def test_all_is_every_archive_and_folder_of_the_store(folder: Path, word: str) -> None:
    names = ["a.mar", "b.tar.gz", "c.model", "folder", "resnet-18_mb.mar", "sub"]

    assert theirs(folder).startup([word]) == [("", name) for name in names]
    assert ours(folder).startup([word]) == [("", name) for name in sorted([*names, "d.py"])]


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        (["a.mar"], [("", "a.mar")]),
        (["x=a.mar", " y = b.tar.gz "], [("x", "a.mar"), ("y", "b.tar.gz")]),
        (["x=http://host/a.mar?k=v"], [("x", "http://host/a.mar?k=v")]),
        (["http://host/a.mar?k=v"], [("", "http://host/a.mar?k=v")]),
        (["/srv/m=1"], [("", "/srv/m=1")]),
        (["", " "], []),
        ([], []),
    ],
)
def test_entries_are_names_and_locations(folder: Path, entries: list[str], expected: list[Any]) -> None:
    assert theirs(folder).startup(entries) == expected


def test_all_of_no_store_is_nothing(tmp_path: Path) -> None:
    assert theirs("").startup(["all"]) == theirs(tmp_path / "gone").startup(["all"]) == []


@pytest.mark.parametrize(
    ("name", "stem"),
    [("a.mar", "a"), ("a.tar.gz", "a"), ("A.MAR", "A"), ("m.v1", "m.v1"), (".mar", ".mar"), ("a.py", "a"), ("f", "f")],
)
def test_the_ending_of_an_archive_is_not_part_of_its_name(name: str, stem: str) -> None:
    assert stem_of(name) == stem

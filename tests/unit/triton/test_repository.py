import os
from pathlib import Path

import pytest

from shoal.config import pbtxt
from shoal.errors import ConfigError, SourceNotFound
from shoal.triton.repository import Folders, chosen, labels_of, versions_in
from tests.unit.triton.repositories import BATCHED, PLAIN, put


def test_models_are_the_folders_that_have_a_version(tmp_path: Path) -> None:
    put(tmp_path, "b")
    put(tmp_path, "a", None)
    put(tmp_path, ".hidden")
    (tmp_path / "no_version" / "weights").mkdir(parents=True)
    (tmp_path / "file").write_text("")
    os.symlink(tmp_path / "b", tmp_path / "linked")

    assert Folders([tmp_path]).names() == ["a", "b", "linked"]


def test_versions_are_whole_numbers_without_a_leading_zero(tmp_path: Path) -> None:
    for name in ("1", "10", "2", "01", "0", "-1", "abc", "1.0", "9" * 30):
        (tmp_path / name).mkdir()
    (tmp_path / "3").write_text("no folder")

    assert versions_in(tmp_path) == [1, 2, 10]
    assert versions_in(tmp_path / "nowhere") == []


@pytest.mark.parametrize(
    ("policy", "versions"),
    [
        ("latest { num_versions: 1 }", [4]),
        ("latest { num_versions: 2 }", [3, 4]),
        ("latest { num_versions: 9 }", [1, 3, 4]),
        ("latest { num_versions: 0 }", []),
        ("all { }", [1, 3, 4]),
        ("specific { versions: [ 4, 1, 7 ] }", [1, 4]),
        ("", [1, 3, 4]),
    ],
)
def test_a_policy_chooses_versions(policy: str, versions: list[int]) -> None:
    message = pbtxt.parse(f"version_policy {{ {policy} }}", "config")

    assert chosen(message.version_policy, [3, 1, 4]) == versions


def test_without_a_policy_the_latest_is_served(tmp_path: Path) -> None:
    put(tmp_path, "m", BATCHED, "1", "2", "10")

    found = Folders([tmp_path]).find("m")

    assert found.versions == [10]
    assert found.message.name == "m"
    assert found.folder == tmp_path / "m"
    assert found.steps == []


def test_a_model_needs_no_settings_unless_that_is_said(tmp_path: Path) -> None:
    put(tmp_path, "m", None)

    assert Folders([tmp_path]).find("m").message.backend == "python"
    with pytest.raises(ConfigError, match=r"m/config\.pbtxt is missing, and settings are not to be completed"):
        Folders([tmp_path], must_have_settings=True).find("m")


def test_the_backend_is_seen_in_the_first_version_by_name(tmp_path: Path) -> None:
    put(tmp_path, "m", "", "9")
    put(tmp_path, "m", "", "10", file="model.onnx")

    assert Folders([tmp_path]).find("m").message.backend == "onnxruntime"


def test_settings_of_another_name_come_first(tmp_path: Path) -> None:
    folder = put(tmp_path, "m", PLAIN)
    (folder / "configs").mkdir()
    (folder / "configs" / "big.pbtxt").write_text(BATCHED)

    assert Folders([tmp_path], config_name="big").find("m").message.max_batch_size == 8
    assert Folders([tmp_path], config_name="small").find("m").message.max_batch_size == 0


def test_settings_name_their_own_folder(tmp_path: Path) -> None:
    put(tmp_path, "m", f'name: "other" {PLAIN}')

    with pytest.raises(ConfigError, match="unexpected directory name 'm' for model 'other'"):
        Folders([tmp_path]).find("m")


@pytest.mark.parametrize("name", ["../m", "m/1", "", ".", "..", "a b", "-\n", "m\0"])
def test_only_names_are_looked_for(tmp_path: Path, name: str) -> None:
    put(tmp_path / "inside", "m")

    with pytest.raises(ConfigError, match="a model's name is made of letters"):
        Folders([tmp_path / "inside"]).find(name)


def test_what_is_nowhere_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(SourceNotFound, match="model 'm' is in no model repository"):
        Folders([tmp_path]).find("m")
    with pytest.raises(ConfigError, match=r"model repository not found: .*/nope is no folder"):
        Folders([tmp_path / "nope"])


def test_several_repositories_are_one(tmp_path: Path) -> None:
    put(tmp_path / "x", "a")
    put(tmp_path / "y", "b")
    put(tmp_path / "y", "a")
    folders = Folders([tmp_path / "x", tmp_path / "y"])

    assert folders.names() == ["a", "b"]
    assert folders.find("b").folder == tmp_path / "y" / "b"
    assert folders.is_twice("a")
    assert not folders.is_twice("b")
    with pytest.raises(ConfigError, match=r"model 'a' is in more than one repository: .*/x/a, .*/y/a"):
        folders.find("a")


def test_a_stamp_changes_with_every_file(tmp_path: Path) -> None:
    folder = put(tmp_path, "m")
    folders = Folders([tmp_path])
    stamps = [folders.stamp("m")]

    (folder / "1" / "model.py").write_text("longer")
    stamps.append(folders.stamp("m"))
    os.utime(folder / "1" / "model.py", ns=(1, 1))
    stamps.append(folders.stamp("m"))
    (folder / "2").mkdir()
    stamps.append(folders.stamp("m"))
    (folder / "1" / "deep").mkdir()
    (folder / "1" / "deep" / "weights").write_text("")
    stamps.append(folders.stamp("m"))
    (folder / "config.pbtxt").unlink()
    stamps.append(folders.stamp("m"))

    assert len(set(stamps)) == len(stamps)
    assert folders.stamp("m") == stamps[-1]
    assert folders.stamp("gone") == ()


def test_labels_are_the_lines_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_bytes(b"cat\r\ndog\n\xff\n")

    assert labels_of(tmp_path, "labels.txt") == ["cat", "dog", "\ufffd"]
    with pytest.raises(ConfigError, match="cannot read"):
        labels_of(tmp_path, "none.txt")


def test_labels_may_not_be_huge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.triton.repository.LARGEST_LABELS", 3)
    (tmp_path / "labels.txt").write_text("abcd")

    with pytest.raises(ConfigError, match="larger than 3 bytes"):
        labels_of(tmp_path, "labels.txt")

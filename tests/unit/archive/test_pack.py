import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shoal.archive import pack
from shoal.archive.entries import Limits
from shoal.archive.manifest import read_manifest
from shoal.archive.unpack import unpack
from shoal.errors import InvalidInput
from tests.unit.archive.archives import DATA, files_in

THEIRS = Path(sys.executable).parent / "torch-model-archiver"


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    files = {
        "src/h.py": "def handle(data, context): return data\n",
        "src/net.py": "class Net: pass\n",
        "src/w.pt": "weights",
        "src/requirements.txt": "six\n",
        "src/model-config.yaml": "batchSize: 2\n",
        "extra/a.json": "{}",
        "extra/b.json": "[]",
        "folder/x.txt": "x",
        "folder/deep/y.txt": "y",
        "folder/.hidden": "h",
        "folder/__pycache__/x.pyc": "c",
        "folder/z.pyc": "c",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "out").mkdir()
    return tmp_path


def full(**changes: Any) -> pack.Parcel:
    options: dict[str, Any] = {
        "serialized_file": "src/w.pt",
        "model_file": "src/net.py",
        "extra_files": "extra/*.json, folder",
        "requirements_file": "src/requirements.txt",
        "config_file": "src/model-config.yaml",
    }
    return pack.torchserve_parcel("m", "1.0", "src/h.py", **options | changes)


FORMS: list[pack.Format] = ["default", "zip-store", "tgz", "no-archive"]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_holds_the_same_files(source: Path, form: pack.Format) -> None:
    parcel = full()
    target = pack.target_of(parcel, "out", form)
    pack.write(parcel, target, form)
    if form == "no-archive":
        found = target
    else:
        unpack(target, source / "unpacked", Limits())
        found = source / "unpacked"

    assert set(files_in(found)) == {
        "MAR-INF/MANIFEST.json",
        "h.py",
        "net.py",
        "w.pt",
        "requirements.txt",
        "model-config.yaml",
        "a.json",
        "b.json",
        "x.txt",
        "deep/y.txt",
        ".hidden",
        "z.pyc",
    }
    assert [path.name for path in (source / "out").iterdir()] == [target.name]
    assert target.name == {"tgz": "m.tar.gz", "no-archive": "m"}.get(form, "m.mar")


@pytest.mark.skipif(not THEIRS.exists(), reason="torch-model-archiver is not installed")
@pytest.mark.parametrize("form", FORMS)
def test_what_we_write_is_what_torch_model_archiver_writes(source: Path, form: pack.Format) -> None:
    options = ["--serialized-file", "src/w.pt", "--model-file", "src/net.py", "-r", "src/requirements.txt"]
    options += ["-c", "src/model-config.yaml", "--extra-files", "extra/a.json,extra/b.json,folder"]
    (source / "theirs").mkdir()
    command = [THEIRS, "--model-name", "m", "-v", "1.0", "--handler", "src/h.py", *options, "--archive-format", form]
    subprocess.run([*command, "--export-path", "theirs"], check=True, capture_output=True, timeout=60)
    parcel = full()
    pack.write(parcel, pack.target_of(parcel, "out", form), form)

    found = []
    for folder in ("theirs", "out"):
        target = pack.target_of(parcel, folder, form)
        if form != "no-archive":
            unpack(target, source / f"{folder}-unpacked", Limits())
            target = source / f"{folder}-unpacked"
        files = files_in(target)
        manifest = json.loads(files.pop("MAR-INF/MANIFEST.json"))
        assert re.fullmatch(r"\d\d/\d\d/\d{4} \d\d:\d\d:\d\d", manifest.pop("createdOn"))
        assert manifest.pop("archiverVersion")
        found.append((files, manifest, read_manifest(target, Limits())))
    assert found[0] == found[1]


def test_what_we_write_is_what_mms_model_archiver_writes(source: Path) -> None:
    unpack(DATA / "mms_echo.mar", source / "theirs", Limits())
    parcel = pack.mms_parcel("mms_echo", "theirs", "service:handle")
    pack.write(parcel, source / "ours.mar", "default")
    unpack(source / "ours.mar", source / "ours", Limits())

    theirs, ours = files_in(source / "theirs"), files_in(source / "ours")
    assert ours == theirs, "to the byte: this manifest has no date"
    (source / "theirs" / "left.pyc").touch()
    assert pack.mms_parcel("mms_echo", "theirs", "service:handle") == parcel


@pytest.mark.parametrize("form", ["default", "zip-store", "tgz"])
def test_the_same_files_give_the_same_bytes(source: Path, form: pack.Format) -> None:
    written = []
    for seconds in (1_000_000_000, 1_500_000_000):
        os.utime("src/w.pt", (seconds, seconds))
        parcel = full(environment={"SOURCE_DATE_EPOCH": "1700000000"})
        pack.write(parcel, source / "out" / str(seconds), form)
        written.append((source / "out" / str(seconds)).read_bytes())

    assert written[0] == written[1]
    assert full(environment={"SOURCE_DATE_EPOCH": "1700000000"}).manifest["createdOn"] == "14/11/2023 22:13:20"


@pytest.mark.parametrize(
    ("handler", "member", "named"),
    [
        ("src/h.py", "h.py", "h.py"),
        ("src/h", "h.py", "h"),
        ("src/h.py:run", "h.py", "h.py:run"),
        ("src/h:run", "h.py", "h:run"),
        ("image_classifier", "", "image_classifier"),
        ("base_handler", "", "base_handler"),
    ],
)
def test_a_handler_is_a_file_or_built_in(source: Path, handler: str, member: str, named: str) -> None:
    parcel = pack.torchserve_parcel("m", "1.0", handler)

    assert parcel.manifest["model"]["handler"] == named
    assert list(parcel.members) == ([member] if member else [])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"serialized_file": "gone.pt"}, r"^File does not exist: gone\.pt$"),
        ({"model_file": "gone.py"}, "File does not exist"),
        ({"extra_files": "extra/a.json,gone*.json"}, r"File does not exist: gone\*\.json"),
        ({"requirements_file": "gone.txt"}, "File does not exist"),
        ({"config_file": "folder"}, "File does not exist: folder"),
        ({"extra_files": "src/h.py,other/h.py"}, r"src/h\.py and other/h\.py would both be h\.py"),
    ],
)
def test_what_is_not_there_is_named(source: Path, change: dict[str, str], words: str) -> None:
    (source / "other").mkdir()
    (source / "other" / "h.py").write_text("other")

    with pytest.raises(InvalidInput, match=words):
        full(**change)


def test_a_handler_that_is_not_there_is_named_with_the_choices(source: Path) -> None:
    with pytest.raises(InvalidInput, match=r"File does not exist: image_clasifier\.py; .* image_classifier"):
        pack.torchserve_parcel("m", "1.0", "image_clasifier")
    with pytest.raises(InvalidInput, match=r"gone\.py"):
        pack.torchserve_parcel("m", "1.0", "src/gone.py")


@pytest.mark.parametrize("name", ["", "-a", "a b", "a/b", "../a", ".a", "ä"])
def test_a_name_is_checked_as_upstream_does(source: Path, name: str) -> None:
    with pytest.raises(InvalidInput, match=r"^Model name contains special characters\."):
        pack.torchserve_parcel(name, "1.0", "src/h.py")


def test_the_same_file_twice_is_one_member(source: Path) -> None:
    assert list(full(extra_files="src/w.pt,src/../src/w.pt").members) == sorted(
        ["h.py", "model-config.yaml", "net.py", "requirements.txt", "w.pt"]
    )


def test_what_is_there_is_replaced_only_when_told_to(source: Path) -> None:
    parcel = full()
    target = source / "out" / "m.mar"
    target.write_text("mine")

    with pytest.raises(InvalidInput, match=r"already exists\.\nPlease specify --force/-f"):
        pack.write(parcel, target, "default")
    assert target.read_text() == "mine"
    pack.write(parcel, target, "default", force=True)
    assert target.read_bytes()[:2] == b"PK"


def test_a_folder_is_replaced_by_a_folder(source: Path) -> None:
    (source / "out" / "m").mkdir()
    (source / "out" / "m" / "old").touch()
    pack.write(full(), source / "out" / "m", "no-archive", force=True)

    assert not (source / "out" / "m" / "old").exists() and (source / "out" / "m" / "h.py").exists()


def test_a_file_that_goes_away_meanwhile_leaves_no_half_of_an_archive(source: Path) -> None:
    for form in FORMS:
        parcel = full(extra_files="extra/a.json")
        (source / "extra" / "a.json").rename(source / "a")
        with pytest.raises(InvalidInput, match="cannot write"):
            pack.write(parcel, source / "out" / "m", form)
        (source / "a").rename(source / "extra" / "a.json")
        assert list((source / "out").iterdir()) == []


def test_progress_counts_every_byte(source: Path) -> None:
    parcel = full()
    total = sum(path.stat().st_size for path in parcel.members.values()) + len(parcel.manifest_bytes)
    for form in FORMS:
        counted: list[int] = []
        pack.write(parcel, source / "out" / form, form, on_bytes=counted.append)
        assert sum(counted) == total


def test_a_folder_that_is_not_there_is_refused(source: Path) -> None:
    with pytest.raises(InvalidInput, match=r"^Given export-path gone is not a directory"):
        pack.target_of(full(), "gone", "default")
    with pytest.raises(InvalidInput, match=r"^Given model-path gone is not a valid directory"):
        pack.mms_parcel("m", "gone", "service:handle")
    with pytest.raises(InvalidInput, match=r"handler nope:handle names nope\.py"):
        pack.mms_parcel("m", "src", "nope:handle")

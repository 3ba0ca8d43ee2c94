import os
import stat
import tempfile
from pathlib import Path

import pytest

from shoal.archive.work import LOCK, PREFIX, Work


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_folder_is_private_and_gone_afterwards(temporary: Path) -> None:
    work = Work()
    first, second = work.new(), work.new()
    first.mkdir()

    assert stat.S_IMODE(work.folder.stat().st_mode) == 0o700
    assert first != second and first.parent == second.parent == work.folder / "models"
    assert len(first.name) == 32
    work.close()
    assert list(temporary.iterdir()) == []
    work.close()


def test_a_folder_that_was_named_keeps_what_is_not_ours(temporary: Path) -> None:
    named = temporary / "deep" / "work"
    work = Work(named)
    mine, other = work.new(), named / "models" / "other"
    mine.mkdir()
    other.mkdir()
    work.close()

    assert not mine.exists() and other.exists()


def test_what_a_dead_server_left_is_removed(temporary: Path) -> None:
    left = temporary / f"{PREFIX}dead"
    (left / "models" / "x").mkdir(parents=True)
    (left / LOCK).touch()
    work = Work()

    assert not left.exists()
    work.close()


def test_what_a_living_server_uses_stays() -> None:
    first, second = Work(), Work()

    assert first.folder.is_dir() and second.folder.is_dir()
    first.close()
    assert second.folder.is_dir()
    second.close()


def test_what_only_looks_like_ours_stays(temporary: Path) -> None:
    precious = temporary / "precious"
    precious.mkdir()
    (precious / LOCK).touch()
    os.symlink(precious, temporary / f"{PREFIX}link")
    (temporary / f"{PREFIX}no-lock").mkdir()
    (temporary / f"{PREFIX}file").touch()
    work = Work()

    assert (precious / LOCK).exists()
    assert (temporary / f"{PREFIX}no-lock").is_dir()
    assert (temporary / f"{PREFIX}file").exists()
    work.close()

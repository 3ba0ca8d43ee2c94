import os
from pathlib import Path

import pytest

from shoal.errors import InvalidInput
from shoal.tools import files


def test_a_file_is_put_in_place_whole(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "report.md"

    files.write_whole(path, "text")
    files.write_whole(path, b"bytes")

    assert path.read_bytes() == b"bytes"
    assert os.listdir(path.parent) == ["report.md"]
    assert path.stat().st_mode & 0o600 == 0o600


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = files.write_whole(tmp_path / "report.md", "old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(InvalidInput, match="No space left"):
        files.write_whole(path, "new")

    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["report.md"]


def test_a_place_that_cannot_be_written_to_is_said_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    files.check_writable(tmp_path / "new" / "deep" / "report")
    with pytest.raises(InvalidInput, match="no folder that can be written to"):
        files.check_writable(tmp_path / "file" / "report")


@pytest.mark.parametrize(("output", "base"), [("a/r", "a/r"), ("r.json", "r"), ("r.html", "r"), ("v1.5", "v1.5")])
def test_the_files_of_a_report_share_a_name(output: str, base: str) -> None:
    assert files.base_of(output) == Path(base)

import json
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from shoal.launch.archiver import archive


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "h.py").write_text("def handle(data, context): return data\n")
    (tmp_path / "w.pt").write_text("weights")
    (tmp_path / "out").mkdir()
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(archive, ["--model-name", "m", "--export-path", "out", *arguments])


def test_an_archive_is_written_and_what_went_in_is_shown(source: Path) -> None:
    done = run("-v", "1.0", "--handler", "h.py", "--serialized-file", "w.pt")

    assert done.exit_code == 0, done.output
    assert "out/m.mar" in done.stdout
    for word in ("h.py", "w.pt", "MAR-INF/MANIFEST.json", "function handle", "7 bytes"):
        assert word in done.stderr
    with zipfile.ZipFile(source / "out" / "m.mar") as written:
        assert written.namelist() == ["h.py", "w.pt", "MAR-INF/MANIFEST.json"]
        assert json.loads(written.read("MAR-INF/MANIFEST.json"))["model"]["modelVersion"] == "1.0"


def test_a_folder_is_packed_for_mms(source: Path) -> None:
    done = run("--model-path", ".", "--handler", "h:handle", "--archive-format", "no-archive")

    assert done.exit_code == 0, done.output
    manifest = json.loads((source / "out" / "m" / "MAR-INF" / "MANIFEST.json").read_text())
    assert manifest["model"] == {"modelName": "m", "handler": "h:handle"}


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--handler", "h.py"), 2, "'--version'"),
        (("-v", "1"), 2, "'--handler'"),
        (("-v", "1", "--handler", "gone.py"), 1, "File does not exist: gone.py"),
        (("-v", "1", "--handler", "h.py", "--archive-format", "rar"), 2, "rar"),
        (("-v", "1", "--handler", "h.py", "--runtime", "LSP"), 1, "C++ are not supported"),
        (("-v", "1", "--handler", "h.py", "--runtime", "python2"), 1, "--model-path"),
        (("-v", "1", "--handler", "h", "--model-path", "."), 1, "does not go with --version"),
        (("--handler", "h", "--model-path", ".", "--extra-files", "w.pt"), 1, "does not go with --extra-files"),
        (("-v", "1", "--handler", "broken.py"), 1, "SyntaxError"),
        (("-v", "1", "--handler", "h.py", "-c", "bad.yaml"), 1, "line 1"),
        (("-v", "1", "--handler", "h.py", "-r", "bad.txt"), 1, "is not a requirement"),
        (("-v", "1", "--handler", "h.py", "--serialized-file", "empty.pt"), 1, "is empty"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_written(
    source: Path, arguments: tuple[str, ...], code: int, words: str
) -> None:
    (source / "broken.py").write_text("def handle(:")
    (source / "bad.yaml").write_text("a: [")
    (source / "bad.txt").write_text("a b c")
    (source / "empty.pt").touch()
    done = run(*arguments)

    assert (done.exit_code, words in done.output) == (code, True), done.output
    assert list((source / "out").iterdir()) == []


def test_without_checks_what_is_broken_is_written(source: Path) -> None:
    (source / "broken.py").write_text("def handle(:")

    assert run("-v", "1", "--handler", "broken.py", "--no-check").exit_code == 0
    assert (source / "out" / "m.mar").exists()


def test_an_archive_that_is_there_needs_force(source: Path) -> None:
    (source / "out" / "m.mar").write_text("mine")
    refused = run("-v", "1", "--handler", "h.py")

    assert (refused.exit_code, "--force" in refused.output) == (1, True)
    assert (source / "out" / "m.mar").read_text() == "mine"
    assert run("-v", "1", "--handler", "h.py", "-f").exit_code == 0
    assert (source / "out" / "m.mar").read_bytes()[:2] == b"PK"


def test_a_warning_does_not_stop_it(source: Path) -> None:
    (source / "c.yaml").write_text("batchsize: 4")
    done = run("-v", "1", "--handler", "image_classifier", "-c", "c.yaml", "--serialized-file", "w.pt")

    assert done.exit_code == 0, done.output
    assert "did you mean batchSize?" in done.stderr

"""In the place of another server its defaults hold; a port that lets strangers in is said in one line."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.launch import multi_model_server, torchserve, tritonserver

OPEN = "as upstream has it, whoever reaches this port can load"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of its own, nothing of this machine in the environment, and loggers as before."""
    for name in ("tmp", "store"):
        (tmp_path / name).mkdir()
    for name in os.environ:
        if name.startswith(("TS_", "MMS_", "SHOAL_", "LOG_", "METRICS_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.chdir(tmp_path)
    root = logging.getLogger("shoal")
    before = (list(root.handlers), root.level, root.propagate)
    yield tmp_path
    root.handlers[:], root.level, root.propagate = before


def test_torchserves_open_management_is_said_where_no_key_is_asked_for(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "c").write_text("model_store=store\nmanagement_address=http://0.0.0.0:8081\n")
    flags = ["--foreground", "--ts-config", "c"]

    torchserve.main([*flags, "--disable-token-auth"], lambda *_: 0)
    assert capsys.readouterr().out.count(OPEN) == 1

    torchserve.main(flags, lambda *_: 0)
    assert OPEN not in capsys.readouterr().out


def test_that_models_are_fetched_from_anywhere_is_said(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = "models are fetched from any address"
    for settings, flags, count in (
        ("", ["--enable-model-api"], 1),
        ("allowed_urls=https://models.example.com/.*\n", ["--enable-model-api"], 0),
        ("", [], 0),
    ):
        (place / "c").write_text(f"model_store=store\n{settings}")
        torchserve.main(["--foreground", "--ts-config", "c", *flags], lambda *_: 0)
        assert capsys.readouterr().out.count(words) == count


def test_mmss_open_management_is_said(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for address, count in (("http://0.0.0.0:8081", 1), ("http://127.0.0.1:8081", 0)):
        (place / "c").write_text(f"management_address={address}\n")
        multi_model_server.main(["--foreground", "--mms-config", "c"], lambda *_: 0)
        assert capsys.readouterr().out.count(OPEN) == count


def test_tritons_open_repository_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--model-repository=store", "--http-address=0.0.0.0", "--grpc-address=127.0.0.1"]
    guard = "--http-restricted-api=model-repository:key=value"
    for more, count in (([], 0), (["--model-control-mode=explicit"], 1), (["--model-control-mode=explicit", guard], 0)):
        tritonserver.main([*flags, *more], lambda *_: 0)
        assert capsys.readouterr().err.count(OPEN) == count

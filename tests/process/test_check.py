"""`shoal check` as a person runs it, on real models."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.serving import MODELS, SHOAL

TWO = ("-i", '{"x": 1}', "-i", '{"x": 2}', "--batch-sizes", "2,5")


def run(model: object, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*SHOAL, "check", str(model), *arguments], capture_output=True, text=True, timeout=90)


def written(tmp_path: Path, body: str) -> Path:
    (tmp_path / "m.py").write_text(body)
    return tmp_path / "m.py"


def test_a_handler_of_three_stages_is_checked() -> None:
    done = run(MODELS / "staged.py", *TWO)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "fine: it answers in batches as it answers alone")


def test_an_archive_of_torchserves_kind_is_checked() -> None:
    done = run(MODELS / "upstream" / "plain_class", "-i", '"x"', "-i", '"yy"', "--batch-sizes", "2,5", "--json")
    found: Any = json.loads(done.stdout)
    assert done.returncode == 0, done.stdout
    assert [row["size"] for row in found["rows"]] == [1, 2, 5]
    assert all(row["wrong"] == 0 for row in found["rows"])


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("def f(data): return data[::-1]", "it got the answer of input"),
        ("def f(data): return data + data[:len(data) - 1]", "gave 3 results for 2 requests"),
        ("import random\ndef f(data): return [random.random() for _ in data]", "NOT FINE: it does not give the same"),
        ("import os\ndef f(data):\n    if len(data) > 2: os._exit(3)\n    return data", "exited with code 3"),
        ("def f(data):\n    if len(data) > 2: raise ValueError('too many')\n    return data", "too many"),
        ("def f(data): yield from [data[0]]", ""),
    ],
)
def test_what_is_wrong_is_told_and_the_exit_code_is_1(tmp_path: Path, body: str, words: str) -> None:
    done = run(written(tmp_path, body), *TWO)
    assert done.returncode == 1, done.stdout
    assert words in done.stdout


def test_a_stream_is_checked_as_the_sum_of_its_pieces(tmp_path: Path) -> None:
    streams = "def f(data):\n    for end in ('a', 'b'):\n        yield [f'{each} {end}' for each in data]\n"
    assert run(written(tmp_path, streams), *TWO).returncode == 0


def test_a_model_that_cannot_be_loaded_and_an_input_that_is_none_are_said(tmp_path: Path) -> None:
    done = run(written(tmp_path, "raise ImportError('no such thing')"), *TWO)
    assert done.returncode == 1
    assert "no such thing" in done.stderr
    assert run(tmp_path / "nowhere.py", *TWO).returncode == 2
    assert (
        "2 to 4096 items" in run(written(tmp_path, "def f(data): return data"), *TWO[:4], "--batch-sizes", "1").stderr
    )

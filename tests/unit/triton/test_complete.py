import asyncio
import json
import sys
from pathlib import Path

import pytest

from shoal.config import pbtxt
from shoal.errors import InvalidInput, LoadFailed
from shoal.triton.complete import complete, is_complete
from tests.serving import eventually, is_alive
from tests.unit.triton.repositories import put
from tests.unit.triton.yard import Yard, run


def completed(code: str, within: float = 20.0, size: int = 0) -> bytes:
    work = complete(
        {"name": "m"},
        Path("/models/m"),
        Path("/models/m/1"),
        default_max_batch_size=size,
        within=within,
        command=(sys.executable, "-c", code),
    )
    return asyncio.run(work)


def test_the_process_is_told_the_settings_and_the_folders() -> None:
    code = "import json, sys; print(json.dumps([json.load(sys.stdin), sys.argv[1:]]))"

    assert json.loads(completed(code)) == [{"name": "m"}, ["/models/m", "/models/m/1"]]
    assert json.loads(completed(code, size=8))[1][2:] == ["--default-max-batch-size=8"]


def test_the_last_line_of_a_failure_is_its_reason() -> None:
    code = "import sys; sys.stderr.write('Traceback\\n  line\\nRuntimeError: no way\\n'); sys.exit(1)"

    with pytest.raises(LoadFailed, match=r"^RuntimeError: no way$") as raised:
        completed(code)
    assert raised.value.traceback == "Traceback\n  line"
    with pytest.raises(LoadFailed, match=r"^exit code 3$"):
        completed("import sys; sys.exit(3)")


def test_a_process_that_takes_too_long_is_ended_with_what_it_started(tmp_path: Path) -> None:
    code = (
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"open({str(tmp_path / 'pids')!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}')\n"
        "time.sleep(60)"
    )

    with pytest.raises(LoadFailed, match="not completed within 2 s"):
        completed(code, within=2.0)
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert len(pids) == 2
    eventually(lambda: not any(map(is_alive, pids)), "both are gone")


def test_an_answer_may_not_be_huge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.triton.complete.LARGEST", 10)

    assert completed("print('x' * 9)") == b"x" * 9 + b"\n"
    with pytest.raises(LoadFailed, match="larger than 10 bytes"):
        completed("print('x' * 10)")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('backend: "python"', False),
        ('backend: "python" input { } output { }', False),
        ('backend: "onnxruntime"', False),
        ('backend: "onnxruntime" input { }', False),
        ('backend: "onnxruntime" input { } output { }', True),
        ('backend: "pytorch"', True),
        ('backend: "identity"', True),
        ('platform: "ensemble"', True),
    ],
)
def test_what_can_be_asked_of_a_model(text: str, expected: bool) -> None:
    assert is_complete(pbtxt.parse(text, "config")) is expected


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("{", "the completed configuration: Failed to load JSON"),
        ('{"name": "other"}', "the completed configuration is of 'other', not of 'm'"),
        ('{"name": "m", "backend": "python", "max_batch_size": -1}', "'max_batch_size' must be non-negative"),
    ],
)
def test_what_comes_back_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, reason: str) -> None:
    async def answered(*_: object, **__: object) -> bytes:
        return answer.encode()

    async def work() -> None:
        put(tmp_path / "models", "m")
        yard = Yard(tmp_path / "models", completes=True)
        await yard.control.start()
        with pytest.raises(InvalidInput, match=reason):
            await yard.control.load("m")

    monkeypatch.setattr("shoal.triton.source.complete", answered)
    run(work())

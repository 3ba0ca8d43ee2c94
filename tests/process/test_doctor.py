"""`shoal doctor` as a person runs it: on files, and on servers that are running."""

import contextlib
import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.errors import ServingError
from shoal.tools.doctor.command import doctor
from tests.process.sequence_front import tritonserver
from tests.serving import MODELS, SHOAL, eventually, serving
from tests.unit.archive.archives import make_mar

PORTS = (
    "inference_address=http://127.0.0.1:0\nmanagement_address=http://127.0.0.1:0\nmetrics_address=http://127.0.0.1:0\n"
    "grpc_inference_port=0\ngrpc_management_port=0\n"
)
CONFIG = (
    'backend: "{backend}"\ninput [ {{ name: "x" data_type: TYPE_FP32 dims: [ 4 ] }} ]\n'
    'output [ {{ name: "x" data_type: TYPE_FP32 dims: [ 4 ] }} ]\n'
)


def run(*arguments: object) -> "subprocess.CompletedProcess[str]":
    words = [*SHOAL, "doctor", *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)


@contextlib.contextmanager
def torchserve(folder: Path) -> Iterator[dict[str, int]]:
    """Shoal in TorchServe's place; gives its ports."""
    (folder / "tmp").mkdir()
    (folder / "config.properties").write_text(
        f"{PORTS}model_store=store\nload_models=m.mar\ndefault_workers_per_model=1\n"
    )
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("TS_", "LOG_", "MMS_"))}
    environment |= {"TMPDIR": str(folder / "tmp"), "CUDA_VISIBLE_DEVICES": ""}
    flags = ("--start", "--foreground", "--ncs", "--dt", "--ts-config", "config.properties")
    log = folder / "log"
    with open(log, "wb") as file:
        process = subprocess.Popen(
            [*SHOAL, "torchserve", *flags], cwd=folder, env=environment, stdout=file, stderr=file
        )
    try:
        eventually(lambda: "Model server started." in log.read_text(), "it started", within=60)
        yield {
            name: int(port)
            for name, port in re.findall(r"(\w+) API bind to: http://127\.0\.0\.1:(\d+)", log.read_text())
        }
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def test_a_store_is_looked_at_and_the_code_says_whether_all_works(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    make_mar(tmp_path / "store" / "good.mar", modelName="good")

    done = run(tmp_path / "store")
    assert done.returncode == 0, done.stderr
    assert "good 1.0  TorchServe archive  differs" in done.stdout
    assert f"start it with: shoal torchserve --ncs --start --model-store {tmp_path / 'store'}" in done.stdout

    make_mar(tmp_path / "store" / "bad.mar", {"h.py": b"import no_such_module\n"}, modelName="bad")
    done = run(tmp_path / "store")
    assert done.returncode == 1
    assert "bad 1.0: will not work: h.py line 1 imports no_such_module, which is not installed here" in done.stdout
    assert "    -> pip install no_such_module into the server's environment" in done.stdout
    assert "1 work with differences, 1 will not work" in done.stdout
    assert "start it with" not in done.stdout


def test_json_has_everything(tmp_path: Path) -> None:
    done = run(make_mar(tmp_path / "m.mar", {"h.py": b"import no_such_module\n"}), "--json")

    assert done.returncode == 1
    made = json.loads(done.stdout)
    assert (made["level"], made["what"], made["subjects"][0]["level"]) == ("fails", "an archive", "fails")
    assert made["subjects"][0]["findings"][0]["level"] in ("works", "differs", "fails")


def test_a_repository_is_looked_at_whole_or_model_by_model(tmp_path: Path) -> None:
    for name, backend in (("one", "identity"), ("two", "tensorrt")):
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "config.pbtxt").write_text(CONFIG.format(backend=backend))

    whole = run(tmp_path)
    assert whole.returncode == 1
    assert "two 1: will not work: backend 'tensorrt': there is no such runtime here" in whole.stdout
    assert run(tmp_path / "one").returncode == 0
    assert run(tmp_path / "one" / "config.pbtxt").returncode == 0
    assert run(tmp_path / "two").returncode == 1


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("nowhere", "there is no file or folder nowhere"),
        ("empty", "empty holds no archives"),
        ("notes.txt", "notes.txt is no archive"),
        ("http://127.0.0.1:1", "no server answers at http://127.0.0.1:1: connection refused"),
    ],
)
def test_what_cannot_be_looked_at_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, problem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").touch()

    with pytest.raises(ServingError, match=re.escape(problem)) as refused:
        doctor([target], standalone_mode=False)

    assert "\n" not in str(refused.value)


def test_bad_input_has_a_code_of_its_own() -> None:
    assert run("nowhere").returncode == 2


def test_a_running_shoal_tells_of_its_models(tmp_path: Path) -> None:
    with serving(tmp_path, str(MODELS / "echo.py")) as server:
        done = run(f"http://127.0.0.1:{server.management_port}")

        assert done.returncode == 0, done.stderr
        assert "a running Shoal" in done.stdout
        assert "echo 1.0  Shoal  works" in done.stdout
        refused = run(f"http://127.0.0.1:{server.metrics_port}")
        assert refused.returncode == 2, refused.stdout


def test_a_running_torchserve_tells_what_would_differ(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    make_mar(tmp_path / "store" / "m.mar")
    with torchserve(tmp_path) as ports:
        eventually(
            lambda: "m 1.0" in run(f"http://127.0.0.1:{ports['Management']}").stdout, "the model is there", within=30
        )
        done = run(f"http://127.0.0.1:{ports['Management']}")

        assert done.returncode == 0, done.stderr
        assert "TorchServe" in done.stdout
        assert "m 1.0: works: its archive is m.mar" in done.stdout


def test_a_running_triton_tells_of_every_model(tmp_path: Path) -> None:
    (tmp_path / "r" / "one" / "1").mkdir(parents=True)
    (tmp_path / "r" / "one" / "config.pbtxt").write_text(CONFIG.format(backend="identity"))
    with tritonserver(tmp_path / "r", tmp_path / "log") as ports:
        done = run(f"http://127.0.0.1:{ports.http}")

        assert done.returncode == 0, done.stderr
        assert "a running Triton" in done.stdout
        assert "one 1  Triton model, identity  works" in done.stdout

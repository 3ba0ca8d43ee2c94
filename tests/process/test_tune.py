"""`shoal tune` as a person runs it: real servers, real loads, small models whose best setting is plain."""

import asyncio
import json
import os
import signal
import subprocess
import tomllib
import uuid
from pathlib import Path
from typing import Any

import pytest

from shoal.errors import ServingError
from shoal.tools.tune import trials
from shoal.tools.tune.command import tune
from shoal.tools.tune.trials import Trials
from tests.serving import MODELS, SHOAL, eventually

SOON = ("--start-timeout", "60s", "--timeout", "10s", "--time-limit", "8s")
LOOK = ("--window", "400ms", "--warmup", "100ms", *SOON)
LONGER = ("--time-limit", "20s")  # for what has to be found
QUICK = ("-c", "4", "--instances", "1", "--delays", "2", *LOOK)
ONE = ("--batch-sizes", "1", "--workers", "1")
MARK = "TUNE_TEST_MARK"
pytestmark = pytest.mark.timeout(300)
STUMBLES = """import time
began, calls = 0.0, 0
def predict(items):
    global began, calls
    calls += 1
    if calls == 2:  # the first of the load: before it one request is tried
        began = time.monotonic()
    if began and time.monotonic() - began >= {after}:
        began = 0.0
        time.sleep(2)
    return items
"""
SLEEPER = "import time\ndef predict(items):\n    time.sleep(0.02 * len(items))\n    return items\n"


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> str:
    """A word that every process of this test carries in its environment."""
    word = uuid.uuid4().hex
    monkeypatch.setenv(MARK, word)
    return word


@pytest.fixture(autouse=True)
def without_matplotlib(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "picture" in request.node.name:
        return
    hidden = tmp_path_factory.mktemp("hidden")
    (hidden / "sitecustomize.py").write_text(
        "import importlib.util\nfind = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *a: None if name == 'matplotlib' else find(name, *a)\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{hidden}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")


def run(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    words = [*SHOAL, "tune", *arguments, "-o", "r"]
    return subprocess.run(words, capture_output=True, text=True, timeout=240, cwd=folder, check=False)


def report(folder: Path) -> Any:
    return json.loads((folder / "r.json").read_bytes())


def left_behind(mark: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                if mark.encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def test_workers_that_pay_are_found_and_written_with_a_picture(tmp_path: Path, mark: str) -> None:
    (tmp_path / "sleeper.py").write_text(SLEEPER)

    more = ("--batch-sizes", "1", "--workers", "1,4", "--time-limit", "90s")
    done = run(tmp_path, "sleeper.py", "-i", "1", *QUICK, *more)

    assert done.returncode == 0, done.stderr
    made = report(tmp_path)
    assert made["verdict"]["setting"]["workers"] == 4
    assert made["verdict"]["gain"] > 0.5
    assert tomllib.loads(made["files"]["settings.toml"])["models"]["sleeper"]["workers"] == 4
    assert [each["knob"] for each in made["bought"]][:1] in (["workers"], ["batching"])
    first = made["runs"][0]
    assert (first["setting"], first["look"], first["is_fresh"]) == (made["default"], 1, True)
    assert [each["look"] for each in made["runs"] if each["setting"] == made["default"]][:3] == [1, 2, 3]
    assert not all(each["is_fresh"] for each in made["runs"])
    assert all(each["memory"] > 0 for each in made["runs"])
    assert "workers = 4" in done.stdout and "workers: 4 instead of 1: +" in done.stdout
    assert "maxWorkers: 4" in (tmp_path / "r.md").read_text()
    assert "<svg" in (tmp_path / "r.html").read_text()
    assert (tmp_path / "r.png").read_bytes().startswith(b"\x89PNG")
    eventually(lambda: not left_behind(mark), "no server and no load process is left")


@pytest.mark.parametrize("after", [0.0, 0.03], ids=["from the start", "in the warm-up"])
def test_a_server_that_stood_still_for_a_look_is_waited_for(after: float, tmp_path: Path) -> None:
    (tmp_path / "stumbles.py").write_text(STUMBLES.format(after=after))

    done = run(tmp_path, "stumbles.py", "-i", "1", *QUICK, "--batch-sizes", "1", "--workers", "1", "-g", "p99=5s")

    assert done.returncode == 0, done.stderr


def test_a_default_with_nothing_beside_it_is_left_alone(tmp_path: Path) -> None:
    done = run(
        tmp_path, str(MODELS / "echo.py"), "-i", "1", *QUICK, "--batch-sizes", "4", "--workers", "1", "-g", "p99=5s"
    )

    assert done.returncode == 0, done.stderr
    made = report(tmp_path)
    if made["verdict"]["is_default"]:
        assert "Change nothing" in done.stdout and "[models." not in done.stdout
    assert made["verdict"]["is_met"]
    assert "no picture: matplotlib is not installed" in done.stderr


def test_a_goal_that_nothing_keeps_is_said_and_has_its_own_code(tmp_path: Path) -> None:
    (tmp_path / "sleeper.py").write_text(SLEEPER)

    done = run(tmp_path, "sleeper.py", "-i", "1", *QUICK, *ONE, "--goal", "p99=1ms")

    assert done.returncode == 1, done.stderr
    assert "nothing that was tried keeps the goal (p99 1.00 ms at most; the most answers per second)" in done.stdout
    assert not report(tmp_path)["verdict"]["is_met"]


def test_a_rate_is_tuned_for_latency(tmp_path: Path) -> None:
    done = run(tmp_path, str(MODELS / "echo.py"), "-i", "1", "--rate", "50", *QUICK[2:], *ONE)

    assert done.returncode == 0, done.stderr
    made = report(tmp_path)
    assert made["goal"] == "the smallest p99"
    assert made["load"] == "50/s poisson"


def test_a_setting_that_cannot_be_served_is_an_outcome_and_the_others_go_on(tmp_path: Path) -> None:
    """The second worker of a server does not come up."""
    (tmp_path / "picky.py").write_text(
        "import os, pathlib\nclass M:\n    def initialize(self, context):\n"
        "        held = pathlib.Path(__file__).with_name(f'held-{os.getppid()}')\n"
        "        held.touch(exist_ok=False)\n"
        "    def inference(self, data):\n        return data\n"
    )

    done = run(tmp_path, "picky.py", "-i", "1", *QUICK, "--batch-sizes", "1", "--workers", "1,2", *LONGER)

    assert done.returncode == 0, done.stderr
    made = report(tmp_path)
    failed = [each for each in made["runs"] if each["problem"]]
    assert {each["setting"]["workers"] for each in failed} == {2}
    assert made["verdict"]["setting"]["workers"] == 1
    assert "no server could be started" in done.stderr


def test_a_setting_that_fails_beside_servers_that_are_kept_is_tried_alone(tmp_path: Path) -> None:
    """Only one server at a time can have what this model needs."""
    (tmp_path / "jealous.py").write_text(
        "import fcntl, pathlib\nheld = open(pathlib.Path(__file__).with_name('lock'), 'w')\n"
        "fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)\ndef predict(items):\n    return items\n"
    )

    done = run(tmp_path, "jealous.py", "-i", "1", *QUICK, *ONE, *LONGER)

    assert done.returncode == 0, done.stderr
    runs = report(tmp_path)["runs"]
    assert not [each["problem"] for each in runs if each["problem"]]
    assert len({json.dumps(each["setting"]) for each in runs}) == 2


def test_a_model_that_cannot_be_loaded_is_said_in_one_line(tmp_path: Path) -> None:
    done = run(tmp_path, str(MODELS / "broken" / "import_error.py"), "-i", "1", *QUICK)

    assert done.returncode == 1
    assert "import_error could not be measured: no server could be started" in done.stderr.splitlines()[-1]
    assert not (tmp_path / "r.json").exists()


def test_a_model_that_never_loads_is_given_up(tmp_path: Path, mark: str) -> None:
    (tmp_path / "stuck.py").write_text("import time\ntime.sleep(600)\n")

    done = run(tmp_path, "stuck.py", "-i", "1", *QUICK, "--start-timeout", "2s")

    assert done.returncode == 1
    assert "no server could be started within 2 s" in done.stderr
    eventually(lambda: not left_behind(mark), "nothing of it is left")


def test_a_trial_that_never_ends_says_what_it_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(trials, "SLACK", -1000.0)

    with pytest.raises(ServingError, match="the start of its server was waited for"):
        tune([str(MODELS / "echo.py"), "-i", "1", *QUICK, *LONGER], standalone_mode=False)

    assert capsys.readouterr().err.count("did not end") == 2


def test_a_trial_that_stood_still_is_tried_once_more(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = Trials._measured

    async def stand_still_once(self: Trials, *more: Any) -> Any:
        if trials.SLACK < 0:
            monkeypatch.setattr(trials, "SLACK", 10.0)
            await asyncio.sleep(600)
        return await measured(self, *more)

    monkeypatch.setattr(trials, "SLACK", -1000.0)
    monkeypatch.setattr(Trials, "_measured", stand_still_once)

    tune([str(MODELS / "echo.py"), "-i", "1", *QUICK, *ONE, "-g", "p99=5s"], standalone_mode=False)

    said = capsys.readouterr()
    assert said.err.count("did not end") == 1
    assert "the best" in said.out or "Change nothing" in said.out


def test_the_time_limit_ends_the_search_but_not_the_report(tmp_path: Path) -> None:
    (tmp_path / "sleeper.py").write_text(SLEEPER)

    done = run(tmp_path, "sleeper.py", "-i", "1", *QUICK, "--time-limit", "100ms")

    assert done.returncode == 0, done.stderr
    made = report(tmp_path)
    assert made["problem"] == "the time limit of 0.1 s"
    assert [each["look"] for each in made["runs"]] == [1, 2]


def test_ctrl_c_prints_the_best_so_far_and_leaves_files_whole(tmp_path: Path, mark: str) -> None:
    (tmp_path / "sleeper.py").write_text(SLEEPER)
    words = [*SHOAL, "tune", "sleeper.py", "-i", "1", *QUICK, *LONGER, "--window", "2s", "-o", "r"]
    with open(tmp_path / "err", "w") as err:
        working = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=err, text=True, cwd=tmp_path)
    try:
        eventually(
            lambda: "adaptive, 1 worker:" in (tmp_path / "err").read_text(), "the default is measured", within=60
        )
        working.send_signal(signal.SIGINT)
        out, _ = working.communicate(timeout=120)
    finally:
        working.kill()

    assert working.returncode == 130, out
    assert "ended early: interrupted" in out
    assert "the default is already best" in out
    made = report(tmp_path)
    assert made["problem"] == "interrupted"
    assert 1 <= len(made["runs"]) < 5
    assert made["best"] == made["default"]
    eventually(lambda: not left_behind(mark), "no server and no load process is left")


def test_a_tuner_that_is_killed_takes_its_server_and_load_with_it(tmp_path: Path, mark: str) -> None:
    (tmp_path / "sleeper.py").write_text(
        "import pathlib, time\ncalls = []\ndef predict(items):\n    calls.append(1)\n"
        f"    if len(calls) == 5:\n        pathlib.Path({str(tmp_path / 'up')!r}).touch()\n"
        "    time.sleep(0.02)\n    return items\n"
    )
    words = [*SHOAL, "tune", "sleeper.py", "-i", "1", *QUICK, *LONGER, "--window", "20s"]
    with open(tmp_path / "err", "w") as err:
        working = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=err, cwd=tmp_path)
    try:
        eventually((tmp_path / "up").exists, "a load has begun", within=60)
    finally:
        working.kill()
        working.wait()

    eventually(lambda: not left_behind(mark), "no server and no load process is left")
    assert "Traceback" not in (tmp_path / "err").read_text()


def test_a_model_of_a_settings_file_is_tuned_from_what_the_file_says(tmp_path: Path) -> None:
    (tmp_path / "sleeper.py").write_text(SLEEPER)
    (tmp_path / "shoal.toml").write_text(
        'port = 1\n[models.mine]\npath = "sleeper.py"\nworkers = 2\nbatching = {batch_size = 2, max_batch_delay = 1}\n'
    )

    done = run(tmp_path, "mine", "--config", "shoal.toml", "-i", "1", *QUICK, "--batch-sizes", "1", "--workers", "2")

    assert done.returncode == 0, done.stderr
    default = report(tmp_path)["default"]
    assert (default["limit"], default["delay"], default["workers"]) == (2, 1.0, 2)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("nowhere.py", "-i", "1"), "no model at 'nowhere.py'"),
        (("{echo}", "-i", "cat.jpg"), "no input at 'cat.jpg'"),
        (("{echo}", "-i", "1", "-g", "p99=fast"), "a duration is written as"),
        (("{echo}", "-i", "1", "-g", "speed=5"), "--goal is p99=50ms"),
        (("{echo}", "-i", "1", "-c", "1,2"), "a model is tuned for one load"),
        (("{echo}",), "say what to send: --input"),
        (("{echo}", "--tensors", "json"), "say what to send: --input"),
        (("{echo}", "-i", "1", "--delays", "x"), "--delays are milliseconds"),
        (("{echo}", "-i", "1", "--workers", "0"), "--workers must be 1 or more"),
        (("{echo}", "-i", "1", "-o", __file__ + "/r"), "cannot write"),
        (("m", "-i", "1", "--config", "no.toml"), "cannot read no.toml"),
    ],
)
def test_bad_input_is_refused_before_any_server_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], problem: str
) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(ServingError) as refused:
        tune([word.format(echo=MODELS / "echo.py") for word in arguments], standalone_mode=False)

    assert problem in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_a_settings_file_without_the_model_names_those_it_has(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text('[models.one]\npath = "x.py"\n')

    with pytest.raises(ServingError, match="has no model 'two'; it has: one"):
        tune(["two", "--config", str(tmp_path / "s.toml"), "-i", "1"], standalone_mode=False)


def test_a_model_of_a_triton_repository_is_tuned_by_its_settings(tmp_path: Path, mark: str) -> None:
    folder = tmp_path / "repository" / "slow"
    (folder / "1").mkdir(parents=True)
    config = (
        'backend: "python"\nmax_batch_size: 8\ninput [ { name: "x" data_type: TYPE_FP32 dims: [ 4 ] } ]\n'
        'output [ { name: "y" data_type: TYPE_FP32 dims: [ 4 ] } ]\n'
    )
    (folder / "config.pbtxt").write_text(config)
    (folder / "1" / "model.py").write_text(
        "import time\nimport triton_python_backend_utils as pb\nclass TritonPythonModel:\n"
        "    def execute(self, requests):\n        time.sleep(0.03)\n"
        "        return [pb.InferenceResponse([pb.Tensor('y', pb.get_input_tensor_by_name(each, 'x').as_numpy())])\n"
        "                for each in requests]\n"
    )

    more = ("--batch-sizes", "8", "--workers", "1", "--tensors", "json", "--time-limit", "90s")
    done = run(tmp_path, "repository/slow", *QUICK, "-c", "8", *more)

    assert done.returncode == 0, done.stderr
    made = report(tmp_path)
    assert (made["default"]["limit"], made["default"]["delay"]) == (1, 0.0)
    assert made["verdict"]["setting"]["limit"] == 8, done.stderr
    assert "max_batch_size: 8\ndynamic_batching {" in done.stdout
    assert (folder / "config.pbtxt").read_text() == config
    eventually(lambda: not left_behind(mark), "no server and no load process is left")

"""`shoal bench`, `shoal profile` and `shoal models` as a person runs them, against real servers and real models."""

import csv
import json
import os
import signal
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal.errors import ServingError
from shoal.tools.bench.command import bench
from shoal.tools.models import models as manage
from tests.serving import MODELS, SHOAL, Served, eventually, serving

QUICK = ("--window", "300ms", "--warmup", "100ms", "--max-windows", "3")
MARK = "TOOLS_TEST_MARK"


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> str:
    """A word that every process of this test carries in its environment."""
    word = uuid.uuid4().hex
    monkeypatch.setenv(MARK, word)
    return word


@pytest.fixture
def pictures() -> None:
    """For tests that look at pictures; the others do without matplotlib, which takes its time."""


@pytest.fixture(autouse=True)
def plain(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "pictures" in request.fixturenames:
        return
    hidden = tmp_path_factory.mktemp("hidden")
    (hidden / "sitecustomize.py").write_text(
        "import importlib.util\nfind = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *a: None if name == 'matplotlib' else find(name, *a)\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{hidden}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("server"), str(MODELS / "tricks.py")) as served:
        yield served


def run(*arguments: str, cwd: Path | None = None, timeout: float = 60) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*SHOAL, *arguments], capture_output=True, text=True, timeout=timeout, cwd=cwd, check=False)


def start(*arguments: str, cwd: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen([*SHOAL, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd)


def left_behind(mark: str) -> list[int]:
    """Processes of a test that are still there, besides this one."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                if mark.encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def url(server: Served, model: str = "tricks") -> str:
    return f"http://127.0.0.1:{server.port}/predictions/{model}"


def report(path: Path) -> Any:
    return json.loads(path.read_bytes())


# -- bench ----------------------------------------------------------------------------------------------------------


def test_a_closed_loop_is_measured_and_reported_in_every_form(server: Served, tmp_path: Path, pictures: None) -> None:
    done = run("bench", url(server), "-i", '{"a": 1}', "-c", "1,4", *QUICK, "-o", "out/r", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert "4 connections" in done.stdout and "answers by rows" in done.stdout
    made = report(tmp_path / "out" / "r.json")
    assert [level["label"] for level in made["levels"]] == ["1 connection", "4 connections"]
    for level in made["levels"]:
        assert level["answered"] > 0
        assert level["errors"] == {}
        assert 0 < level["latency"]["p50"] <= level["latency"]["p99"] <= level["latency"]["max"]
        assert sum(piece["answered"] for piece in level["pieces"]) == level["answered"]
        assert level["server"]["p50"]["queue"] >= 0
        assert level["server"]["rows"] and level["server"]["reasons"]
    rows = list(csv.DictReader((tmp_path / "out" / "r.csv").read_text().splitlines()))
    assert [row["load"] for row in rows] == ["1 connection", "4 connections"]
    assert "| 4 connections |" in (tmp_path / "out" / "r.md").read_text()
    assert "<svg" in (tmp_path / "out" / "r.html").read_text()
    assert (tmp_path / "out" / "r.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(path.suffix for path in (tmp_path / "out").iterdir()) == [".csv", ".html", ".json", ".md", ".png"]


def test_every_arrival_of_a_trace_is_answered_by_several_processes(server: Served, tmp_path: Path) -> None:
    (tmp_path / "trace").write_text("".join(f"{number / 100}\n" for number in range(50)))

    done = run("bench", url(server), "-i", "1", "--trace", "trace", "--processes", "2", "-o", "r", *QUICK, cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    (level,) = report(tmp_path / "r.json")["levels"]
    assert (level["answered"], level["errors"]) == (50, {})


def test_a_rate_is_kept_whatever_the_arrivals(server: Served, tmp_path: Path) -> None:
    for arrivals in ("poisson", "constant"):
        more = ("--arrivals", arrivals, "--burst", "2", "--processes", "2", "--stability", "50%")
        done = run("bench", url(server), "-i", "1", "-r", "100", *more, "-o", "r", *QUICK, cwd=tmp_path)

        assert done.returncode == 0, done.stderr
        (level,) = report(tmp_path / "r.json")["levels"]
        assert level["offered"] > 0
        assert level["answered"] > 0
        assert arrivals in level["label"]


@pytest.mark.parametrize("load", [("-c", "1"), ("-r", "1")], ids=["closed", "open"])
def test_a_model_slower_than_all_windows_is_waited_for(load: tuple[str, str], server: Served, tmp_path: Path) -> None:
    slow = json.dumps({"do": "sleep", "seconds": 1.5})
    done = run("bench", url(server), "-i", slow, *load, *QUICK, "-o", "r", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    (level,) = report(tmp_path / "r.json")["levels"]
    assert level["answered"] > 0


def test_a_folder_of_bodies_is_sent_in_turn(server: Served, tmp_path: Path) -> None:
    bodies, touched = tmp_path / "bodies", tmp_path / "touched"
    bodies.mkdir()
    touched.mkdir()
    for name in "abc":
        (bodies / f"{name}.json").write_text(json.dumps({"do": "touch", "path": str(touched / name)}))

    done = run("bench", url(server), "-i", str(bodies), "-c", "2", *QUICK, cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in touched.iterdir()) == ["a", "b", "c"]


def test_a_model_is_served_for_the_bench_alone(tmp_path: Path, mark: str) -> None:
    model = tmp_path / "loud model.py"
    model.write_text("def predict(items):\n    return [str(item).upper() for item in items]\n")

    done = run("bench", str(model), "-i", '"x"', "-c", "2", "--serve", "--workers 2", *QUICK, cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert "2 connections" in done.stdout
    eventually(lambda: not left_behind(mark), "the server and the load processes end")


def test_a_model_that_cannot_be_served_is_said_in_one_line(tmp_path: Path, mark: str) -> None:
    done = run("bench", str(MODELS / "broken" / "import_error.py"), "-i", '"x"', cwd=tmp_path)

    assert done.returncode != 0
    assert "import_error.py" in done.stderr
    eventually(lambda: not left_behind(mark), "nothing of it is left")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (
            ("http://127.0.0.1:1/predictions/x", "-i", "1"),
            "no server answers at http://127.0.0.1:1: connection refused",
        ),
        (("{url}/predictions/nope", "-i", "1"), "answered 404 to the first request: Model not found: nope"),
        (("{url}/predictions/tricks", "-i", "cat.jpg"), "no input at 'cat.jpg'"),
        (("{url}", "-i", "1"), "add --model NAME"),
        (("{url}/predictions/tricks",), "say what to send"),
        (("no-such-model.py", "-i", "1"), "no model at 'no-such-model.py'"),
        (("{url}/predictions/tricks", "-i", "1", "-c", "0"), "--concurrency"),
        (("{url}/predictions/tricks", "-i", "1", "-o", __file__ + "/r"), "cannot write"),
        (("{url}/predictions/tricks", "-i", '{{"do": "raise", "message": "no"}}'), "answered 500 to the first request"),
        (("--compare", "a.json", "b.json"), "cannot read a.json"),
    ],
)
def test_bad_input_is_refused_before_any_load(
    server: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], problem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [word.format(url=f"http://127.0.0.1:{server.port}") for word in arguments]

    with pytest.raises(ServingError) as refused:
        bench(words, standalone_mode=False)

    assert problem in str(refused.value)
    assert "\n" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_what_is_refused_is_one_line_and_a_code() -> None:
    done = run("bench", "http://127.0.0.1:1/predictions/x", "-i", "1")

    assert done.returncode == 2
    assert done.stderr == "error: no server answers at http://127.0.0.1:1: connection refused\n"


def test_a_server_that_dies_leaves_partial_results(tmp_path: Path, mark: str) -> None:
    (tmp_path / "server").mkdir()
    with serving(tmp_path / "server", str(MODELS / "echo.py")) as server:
        bench = start(
            *("bench", url(server, "echo"), "-i", "1", "-c", "4,8", "--window", "300ms", "--warmup", "100ms"),
            *("--stability", "0.001%", "--max-windows", "1000", "-o", "r"),
            cwd=tmp_path,
        )
        assert bench.stderr is not None and bench.stdout is not None
        assert bench.stderr.readline() == "4 connections ...\n"
        eventually(lambda: server.metric("shoal_requests_total") > 100, "the load is there")
        server.process.kill()
        _, err = bench.communicate(timeout=60)

    assert bench.returncode == 1
    assert err.splitlines()[-1] == f"error: http://127.0.0.1:{server.port} stopped answering: connection refused" + (
        "; the results so far are in r.json"
    )
    made = report(tmp_path / "r.json")
    assert "stopped answering" in made["problem"]
    assert made["levels"][0]["answered"] > 0
    assert "Ended early" in (tmp_path / "r.md").read_text()
    eventually(lambda: not left_behind(mark), "the load processes end")


@pytest.mark.parametrize(("window", "said"), [("300ms", "2 connections ...\n"), ("600s", "")])  # with no slice whole
def test_ctrl_c_keeps_what_there_is(window: str, said: str, server: Served, tmp_path: Path, mark: str) -> None:
    before = server.metric("shoal_requests_total")
    bench = start(
        *("bench", url(server), "-i", "1", "-c", "2,4", "--window", window, "--warmup", "100ms"),
        *("--stability", "0.001%", "--max-windows", "1000", "-o", "r"),
        cwd=tmp_path,
    )
    assert bench.stderr is not None
    assert not said or bench.stderr.readline() == said
    eventually(lambda: server.metric("shoal_requests_total") > before + 100, "the load is there")
    bench.send_signal(signal.SIGINT)
    _, err = bench.communicate(timeout=60)

    assert bench.returncode == 130
    assert "error: interrupted" in err
    made = report(tmp_path / "r.json")
    assert (made["problem"], len(made["levels"])) == ("interrupted", 1)
    assert made["levels"][0]["answered"] > 0
    eventually(lambda: not left_behind(mark), "the load processes end")


def test_two_reports_are_compared(server: Served, tmp_path: Path) -> None:
    for name in ("a", "b"):
        assert run("bench", url(server), "-i", "1", "-c", "2", *QUICK, "-o", name, cwd=tmp_path).returncode == 0

    done = run("bench", "--compare", "a.json", "b.json", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[2] for line in lines[1:]] == ["answers/s", "p50", "p90", "p99"]
    assert all("%" in line for line in lines[1:])


# -- profile --------------------------------------------------------------------------------------------------------


def profile(tmp_path: Path, model: object, *more: str) -> "subprocess.CompletedProcess[str]":
    quick = ("--seconds", "10ms", "-o", "p")
    return run("profile", str(model), "-i", '"x"', *quick, *more, cwd=tmp_path)


def test_a_handler_of_three_stages_is_profiled_without_a_server(tmp_path: Path, mark: str, pictures: None) -> None:
    done = profile(tmp_path, MODELS / "staged.py", "--batch-sizes", "1,2,4", "--latency-goal", "10s")

    assert done.returncode == 0, done.stderr
    made = report(tmp_path / "p.json")
    assert [row["size"] for row in made["rows"]] == [1, 2, 4]
    for row in made["rows"]:
        assert row["runs"] >= 5
        assert row["low"] <= row["total"] <= row["high"]
        assert all(row["stages"][name] > 0 for name in ("preprocess", "inference", "postprocess"))
        assert row["per_item"] == pytest.approx(row["total"] / row["size"])
    assert made["knee"] in (1, 2, 4)
    assert made["best"]["size"] in (1, 2, 4)
    assert (made["handler"], made["device"], made["stopped"]) == ("Staged", "cpu", "")
    assert "knee: batch size" in done.stdout
    assert "| 4 |" in (tmp_path / "p.md").read_text()
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    assert left_behind(mark) == []


def test_a_size_that_was_disturbed_is_measured_again(tmp_path: Path) -> None:
    model, seen = tmp_path / "m.py", tmp_path / "seen"
    model.write_text(  # its first runs, all of the first size, take as long as on a machine with better things to do
        "import time\nruns = []\ndef predict(items):\n    runs.append(str(len(items)))\n"
        "    time.sleep(0.1 if len(runs) <= 8 else 0)\n"
        f"    open({str(seen)!r}, 'w').write(' '.join(runs))\n    return items\n"
    )

    done = profile(tmp_path, model, "--batch-sizes", "1,2")

    assert done.returncode == 0, done.stderr
    runs = seen.read_text().split()
    assert runs[:8] == ["1"] * 8 and runs[8] == "2" and runs[-1] == "1"
    first, _ = report(tmp_path / "p.json")["rows"]
    assert first["total"] < 0.1, "the better of the two counts"


def test_a_model_that_dies_when_it_is_measured_again_keeps_what_there_is(tmp_path: Path) -> None:
    model = tmp_path / "m.py"
    model.write_text(
        "import os, time\nruns = []\ndef predict(items):\n    runs.append(len(items))\n"
        "    if len(items) == 1 and 2 in runs:\n        os._exit(7)\n"
        "    time.sleep(0.1 if len(items) == 1 else 0)\n    return items\n"
    )

    done = profile(tmp_path, model, "--batch-sizes", "1,2")

    assert done.returncode == 0, done.stderr
    made = report(tmp_path / "p.json")
    assert [row["size"] for row in made["rows"]] == [1, 2]
    assert made["rows"][0]["total"] >= 0.1
    assert made["stopped"].startswith("batch size 1: its process exited with code 7")


def test_an_archive_of_torchserves_kind_is_profiled(tmp_path: Path) -> None:
    done = profile(tmp_path, MODELS / "upstream" / "plain_class", "--batch-sizes", "1,2")

    assert done.returncode == 0, done.stderr
    assert [row["size"] for row in report(tmp_path / "p.json")["rows"]] == [1, 2]


def test_a_packed_archive_is_unpacked_for_the_profile_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "h.py").write_text("def handle(data, context):\n    return ['y'] * len(data or [])\n")
    made = run("archive", "--model-name", "h", "-v", "1.0", "--handler", "h.py", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))

    done = profile(tmp_path, tmp_path / "h.mar", "--batch-sizes", "1", "--keep")

    assert done.returncode == 0, done.stderr
    assert report(tmp_path / "h.profile.json") == report(tmp_path / "p.json")
    assert list((tmp_path / "tmp").iterdir()) == []


def test_parameters_reach_the_handler(tmp_path: Path) -> None:
    model = tmp_path / "m.py"
    model.write_text(
        "import shoal\nclass M(shoal.Handler):\n    def initialize(self, context):\n"
        "        assert context.parameters == {'a': 1, 'b': 'x'}, context.parameters\n"
        "    def inference(self, data):\n        return data\n"
    )

    assert profile(tmp_path, model, "--batch-sizes", "1", "-p", "a=1", "-p", "b=x").returncode == 0
    assert profile(tmp_path, model, "--batch-sizes", "1", "-p", "a=2").returncode != 0


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("raise MemoryError", "batch size 4: out of memory"),
        ("raise RuntimeError('too many')", "batch size 4: predict raised RuntimeError: too many"),
        ("print('the last words'); sys.stdout.flush(); os._exit(7)", "exited with code 7: the last words"),
        ("os.kill(os.getpid(), 9)", "batch size 4: its process was killed, most likely for want of memory"),
    ],
)
def test_a_batch_that_fails_ends_the_profile_and_keeps_the_others(tmp_path: Path, line: str, problem: str) -> None:
    model = tmp_path / "m.py"
    model.write_text(f"import os, sys\ndef predict(items):\n    if len(items) > 2:\n        {line}\n    return items\n")

    done = profile(tmp_path, model, "--batch-sizes", "1,2,4,8")

    assert done.returncode == 0, done.stderr
    made = report(tmp_path / "p.json")
    assert [row["size"] for row in made["rows"]] == [1, 2]
    assert problem in made["stopped"]
    assert problem in done.stdout


def test_a_device_is_waited_for_in_every_stage(tmp_path: Path) -> None:
    """A stand-in for torch on a GPU: work that is asked for is done when somebody waits for it."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "torch.py").write_text(
        "import time\nclass cuda:\n    pending = 0.0\n    is_initialized = staticmethod(lambda: True)\n"
        "    get_device_name = staticmethod(lambda: 'Slow GPU')\n"
        "    max_memory_allocated = staticmethod(lambda: 2_000_000)\n"
        "    reset_peak_memory_stats = staticmethod(lambda: None)\n"
        "    @classmethod\n    def synchronize(cls):\n        time.sleep(cls.pending)\n        cls.pending = 0.0\n"
    )
    (folder / "model.py").write_text(
        "import torch\nclass M:\n    def decode(self, item):\n        return item\n"
        "    def inference(self, data):\n        torch.cuda.pending = 0.005\n        return data\n"
        "    def encode(self, output):\n        return output\n"
    )

    done = profile(tmp_path, folder, "--batch-sizes", "1,2")

    assert done.returncode == 0, done.stderr
    made = report(tmp_path / "p.json")
    assert made["device"] == "Slow GPU"
    for row in made["rows"]:
        assert row["device_memory"] == 2_000_000
        assert row["stages"]["inference"] >= 0.005
    assert "GPU memory" in done.stdout


def test_a_profile_stops_in_time(tmp_path: Path) -> None:
    model = tmp_path / "m.py"
    model.write_text("import time\ndef predict(items):\n    time.sleep(0.02 * len(items))\n    return items\n")

    done = profile(tmp_path, model, "--time-limit", "1s")

    assert done.returncode == 0, done.stderr
    made = report(tmp_path / "p.json")
    assert made["stopped"].startswith("time: batch size")
    assert made["rows"][0]["size"] == 1


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        (MODELS / "broken" / "import_error.py", "import_error.py"),
        (MODELS / "broken" / "missing_method.py", "inference"),
        ("nowhere.py", "no model at 'nowhere.py'"),
    ],
)
def test_a_model_that_cannot_be_loaded_is_said_to_be_one(tmp_path: Path, model: object, problem: str) -> None:
    done = profile(tmp_path, model)

    assert done.returncode != 0
    assert problem in done.stderr.splitlines()[-1]
    assert not (tmp_path / "p.json").exists()


def test_a_model_that_fails_its_first_batch_has_no_profile(tmp_path: Path) -> None:
    model = tmp_path / "m.py"
    model.write_text("def predict(items):\n    return 5\n")

    done = profile(tmp_path, model)

    assert done.returncode != 0
    assert "must give a list with one result per request" in done.stderr
    assert not (tmp_path / "p.json").exists()


def test_ctrl_c_keeps_the_sizes_that_are_done(tmp_path: Path, mark: str) -> None:
    model, begun = tmp_path / "m.py", tmp_path / "begun"
    model.write_text(
        "import pathlib, time\ndef predict(items):\n    if len(items) > 1:\n"
        f"        pathlib.Path({str(begun)!r}).touch()\n        time.sleep(60)\n    return items\n"
    )
    working = start("profile", str(model), "-i", "1", "--seconds", "10ms", "-o", "p", cwd=tmp_path)
    eventually(begun.exists, "the second size has begun", within=40)
    working.send_signal(signal.SIGINT)
    _, err = working.communicate(timeout=30)

    assert working.returncode == 130, err
    made = report(tmp_path / "p.json")
    assert ([row["size"] for row in made["rows"]], made["stopped"]) == ([1], "interrupted")
    assert left_behind(mark) == []


def test_without_matplotlib_the_picture_alone_is_missing(tmp_path: Path) -> None:
    done = profile(tmp_path, MODELS / "echo.py", "--batch-sizes", "1")

    assert done.returncode == 0
    assert "no picture: matplotlib is not installed; pip install 'shoal[pictures]'" in done.stderr
    assert (tmp_path / "p.md").exists() and not (tmp_path / "p.png").exists()


# -- models ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("store")
    (folder / "loud.py").write_text("def predict(items):\n    return [item.decode().upper() for item in items]\n")
    with serving(tmp_path_factory.mktemp("managed"), str(MODELS / "echo.py"), "--model-store", str(folder)) as served:
        yield served


def models(server: Served, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return run("models", "--url", f"http://127.0.0.1:{server.management_port}", *arguments)


def test_models_are_listed_registered_scaled_described_and_removed(store: Served) -> None:
    assert models(store).stdout.splitlines()[1].split()[:4] == ["echo", "1.0", "*", "ready"]

    assert models(store, "register", "loud", "--workers", "1").returncode == 0
    assert store.ask("/predictions/loud", "x").body == b"X"
    assert models(store, "scale", "loud", "2").returncode == 0
    listed = {row["name"]: row for row in json.loads(models(store, "list", "--json").stdout)}
    assert (listed["loud"]["ready"], listed["loud"]["workers"], listed["loud"]["is_default"]) == (2, 2, True)
    assert listed["loud"]["answered"] == 1
    assert json.loads(models(store, "describe", "loud", "--json").stdout)[0]["modelName"] == "loud"
    described = models(store, "describe", "loud").stdout
    assert "minWorkers" in described and "READY, pid" in described
    assert "default" in models(store, "default", "loud", "1.0").stdout.lower()
    watched = models(store, "watch", "--count", "2", "--interval", "50ms").stdout
    assert watched.count("answers/s") == 2 and "loud" in watched
    assert models(store, "remove", "loud").returncode == 0
    assert "loud" not in models(store).stdout


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("describe", "nope"), "404: Model not found: nope"),
        (("scale", "nope", "2"), "404: Model not found: nope"),
        (("remove", "nope"), "404: Model not found: nope"),
        (("default", "echo", "9"), "404: Model version 9 does not exist for model echo"),
        (("register", "nothing"), "404: Model not found at: nothing"),
    ],
)
def test_what_the_server_refuses_is_told_in_its_words(store: Served, arguments: tuple[str, ...], problem: str) -> None:
    where = ("--url", f"http://127.0.0.1:{store.management_port}")

    with pytest.raises(ServingError, match=f"^{problem}$"):
        manage([*where, *arguments], standalone_mode=False)


@pytest.mark.parametrize("command", ["list", "watch"])
def test_a_management_api_that_is_not_there_is_said_to_be_missing(command: str) -> None:
    with pytest.raises(ServingError, match=r"^no server answers at http://127\.0\.0\.1:1: connection refused$"):
        manage(["--url", "http://127.0.0.1:1", command], standalone_mode=False)


def test_a_key_opens_what_it_is_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = tmp_path / "keys.json"
    config = f'token_authorization = true\nkey_file = "{keys}"\n'
    with serving(tmp_path, str(MODELS / "echo.py"), config=config) as server:
        eventually(keys.exists, "the keys are written")
        told = {api: report(keys)[api]["key"] for api in ("management", "inference")}

        assert "401" in models(server).stderr
        assert "echo" in models(server, "--token", told["management"]).stdout
        monkeypatch.setenv("MANAGEMENT_TOKEN", told["management"])
        assert "echo" in models(server).stdout
        refused = run("bench", url(server, "echo"), "-i", "1", "-c", "1", *QUICK)
        assert "answered 401" in refused.stderr
        done = run("bench", url(server, "echo"), "-i", "1", "-c", "1", "--token", told["inference"], *QUICK)
        assert done.returncode == 0, done.stderr


def test_help_fits_one_screen_and_has_examples() -> None:
    for command in ("bench", "check", "profile", "models", "tune", "doctor"):
        text = run(command, "--help").stdout

        assert len(text.splitlines()) <= 40
        assert "Examples:" in text
        assert max(map(len, text.splitlines())) <= 100


def test_a_kept_profile_is_what_the_server_begins_with(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("def predict(items):\n    return items\n")
    (tmp_path / "slow.profile.json").write_text('{"rows": [{"size": 1, "total": 0.5}, {"size": 64, "total": 1.0}]}')

    with serving(tmp_path, str(tmp_path / "slow.py")) as served:
        (described,) = served.manage("/models/slow").json

    assert described["batching"]["milliseconds"] == {"1": 500.0, "64": 1000.0}

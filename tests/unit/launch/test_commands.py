"""What the commands make of their flags, files and variables: the server itself is left out."""

import json
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from shoal.app import App
from shoal.config.deployment import Deployment
from shoal.errors import ServingError
from shoal.launch import multi_model_server, torchserve

Main = Callable[..., int]


class Runs:
    """Stands where the server runs: keeps what it was given."""

    def __init__(self) -> None:
        self.given: list[Deployment] = []
        self.error: Exception | None = None

    def __call__(self, deployment: Deployment, on_started: Callable[[App], None]) -> int:
        self.given.append(deployment)
        if self.error:
            raise self.error
        return 7

    @property
    def last(self) -> Deployment:
        return self.given[-1]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of its own to be in, with nothing of this machine in the environment."""
    (tmp_path / "tmp").mkdir()
    (tmp_path / "store").mkdir()
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


@pytest.fixture
def run() -> Runs:
    return Runs()


def write(path: Path, **values: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
    return path


def snapshot(name: str, **values: str) -> Path:
    path = Path("logs/config", name)
    return write(path, model_snapshot=json.dumps({"models": {}}), model_store="store", **values)


def queue_size(run: Runs, *arguments: str) -> int:
    assert torchserve.main(["--foreground", *arguments], run) == 7
    return run.last.defaults.queue_size


# -- torchserve: flags ---------------------------------------------------------------------------------------------


def test_the_command_of_the_micro_batching_guide(run: Runs) -> None:
    words = "--start --ncs --model_store store --models resnet-18_mb --foreground"

    assert torchserve.main(words.split(), run) == 7
    assert run.last.server.model_store == "store"
    assert run.last.startup == [("", "resnet-18_mb")]
    assert run.last.snapshots == ""


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            "--models a.mar b=c.mar d.mar,e=f.mar",
            {"startup": [("", "a.mar"), ("b", "c.mar"), ("", "d.mar"), ("e", "f.mar")]},
        ),
        ("--models all", {"startup": [("", "all")]}),
        ("--workflow-store flows", {"workflow_store": "flows"}),
        ("--workflow flows", {"workflow_store": "flows"}),
        ("--disable-token-auth", {"server.token_authorization": False}),
        ("--dt", {"server.token_authorization": False}),
        ("--disable", {"server.token_authorization": False}),
        ("--enable-model-api", {"server.model_api": True}),
        ("--enable", {"server.model_api": True}),
        ("--no-config-snapshots", {"snapshots": ""}),
        ("--ncs", {"snapshots": ""}),
        ("", {"snapshots": "logs/config", "server.token_authorization": True, "server.model_api": False, "notes": []}),
    ],
)
def test_flags_are_upstreams_in_full_and_cut_short(
    run: Runs, place: Path, arguments: str, expected: dict[str, Any]
) -> None:
    (place / "flows").mkdir()

    assert torchserve.main(["--foreground", "--model-store=store", *arguments.split()], run) == 7
    for names, value in expected.items():
        found: Any = run.last
        for name in names.split("."):
            found = getattr(found, name)
        assert found == value


def test_underscores_are_dashes_in_flags_alone(run: Runs, place: Path) -> None:
    (place / "the_store").mkdir()

    assert torchserve.main(["--foreground", "--model_store=the_store", "--models=a_b=c_d.mar"], run) == 7
    assert (run.last.server.model_store, run.last.startup) == ("the_store", [("a_b", "c_d.mar")])


@pytest.mark.parametrize(
    ("flag", "says"),
    [
        ("--log-config=l.xml", "--log-config has no effect: "),
        ("--cpp-log-config=c", "cpp_log_config has no effect: "),
        ("--plugins-path=p", "plugins_path has no effect: "),
        ("--ppath=p", "plugins_path has no effect: "),
    ],
)
def test_a_flag_without_effect_is_noted(run: Runs, place: Path, flag: str, says: str) -> None:
    (place / "l.xml").touch()

    assert torchserve.main(["--foreground", "--model-store", "store", flag], run) == 7
    assert [note.startswith(says) for note in run.last.notes] == [True]
    assert "log_config" not in run.last.properties


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("--start", "Missing mandatory parameter --model-store"),
        ("", "Missing mandatory parameter --model-store"),
        ("--model-store nowhere", "--model-store directory not found: nowhere"),
        ("--model-store store --workflow-store nowhere", "--workflow-store directory not found: nowhere"),
        ("--model-store store --ts-config gone", "--ts-config file not found: gone"),
        ("--model-store store --log-config gone", "--log-config file not found: gone"),
        ("--ts-config config.properties", "model_store directory not found: elsewhere"),
    ],
)
def test_what_is_missing_is_said_and_nothing_is_started(
    run: Runs, place: Path, capsys: pytest.CaptureFixture[str], arguments: str, says: str
) -> None:
    if "config.properties" in arguments:
        write(place / "config.properties", model_store="elsewhere")

    assert torchserve.main(arguments.split(), run) == 1
    assert capsys.readouterr().out == f"{says}\n"
    assert run.given == []
    assert not (place / "logs").exists()


@pytest.mark.parametrize("arguments", ["--start --stop", "--bogus", "--model store", "--models", "-v --start"])
def test_flags_that_cannot_be_understood_leave_with_2(run: Runs, arguments: str) -> None:
    with pytest.raises(SystemExit) as left:
        torchserve.main(arguments.split(), run)
    assert left.value.code == 2
    assert run.given == []


@pytest.mark.parametrize("flag", ["--version", "-v", "--vers"])
def test_the_version_is_that_which_is_compatible(run: Runs, capsys: pytest.CaptureFixture[str], flag: str) -> None:
    assert torchserve.main([flag], run) == 0
    assert capsys.readouterr().out.splitlines()[0] == "TorchServe Version is 0.12.0"


def test_a_setting_that_is_wrong_leaves_with_1(run: Runs, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(place / "c", model_store="store", job_queue_size="many")

    assert torchserve.main(["--ts-config", "c"], run) == 1
    assert capsys.readouterr().err == "error: job_queue_size must be a whole number, got 'many'\n"


@pytest.mark.parametrize(
    ("error", "says"),
    [(OSError("address in use"), "cannot listen: address in use"), (ServingError("no keys"), "no keys")],
)
def test_a_server_that_cannot_start_leaves_with_1_and_no_file(
    run: Runs, place: Path, capsys: pytest.CaptureFixture[str], error: Exception, says: str
) -> None:
    run.error = error
    (place / "key_file.json").write_text("another's")

    assert torchserve.main(["--foreground", "--model-store", "store"], run) == 1
    assert capsys.readouterr().err == f"error: {says}\n"
    assert list((place / "tmp").iterdir()) == []
    assert (place / "key_file.json").read_text() == "another's"


def test_notes_are_logged_each_once(run: Runs, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(place / "c", model_store="store", io_ratio="50", vmargs="-Xmx1g")
    torchserve.main(["--foreground", "--ts-config", "c"], run)

    warned = [line for line in capsys.readouterr().out.splitlines() if "[WARN ]" in line]
    assert len(warned) == 2
    assert (place / "logs" / "ts_log.log").read_text().count("has no effect") == 2


# -- torchserve: which file ----------------------------------------------------------------------------------------


def test_the_file_is_the_first_of_variable_flag_snapshot_and_folder(
    run: Runs, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert queue_size(run, "--model-store", "store") == 100
    write(place / "config.properties", model_store="store", job_queue_size="1")
    assert queue_size(run) == 1
    snapshot("20240101000000000-startup.cfg", job_queue_size="2")
    assert queue_size(run) == 2
    snapshot("20240101000000001-snapshot.cfg", job_queue_size="3")
    assert queue_size(run) == 3
    assert run.last.snapshot == {"models": {}}
    assert queue_size(run, "--ncs") == 1
    write(place / "named", model_store="store", job_queue_size="4")
    assert queue_size(run, "--ts-config", "named") == 4
    write(place / "variable", model_store="store", job_queue_size="5")
    monkeypatch.setenv("TS_CONFIG_FILE", "variable")
    assert queue_size(run, "--ts-config", "named") == 5


def test_snapshots_are_where_the_logs_are(run: Runs, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot("20240101000000000-startup.cfg", job_queue_size="2")
    monkeypatch.setenv("LOG_LOCATION", "elsewhere")

    assert queue_size(run, "--model-store", "store") == 100
    assert run.last.snapshots == "elsewhere/config"


def test_a_variable_that_names_no_file_is_said(
    run: Runs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TS_CONFIG_FILE", "gone")

    assert torchserve.main(["--model-store", "store"], run) == 1
    assert capsys.readouterr().out == "TS_CONFIG_FILE file not found: gone\n"


def test_a_snapshot_whose_archive_is_gone_does_not_start(run: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    content = {"models": {"m": {"1.0": {"defaultVersion": True, "marName": "gone.mar"}}}}
    write(Path("logs/config/20240101000000000-startup.cfg"), model_store="store", model_snapshot=json.dumps(content))

    assert torchserve.main([], run) == 1
    assert "'gone.mar', is not in store" in capsys.readouterr().err
    assert run.given == []


def test_an_https_address_without_a_certificate_gets_one(run: Runs, place: Path) -> None:
    (place / "tmp" / f"shoal-tls-{os.getuid()}").mkdir(mode=0o700)
    for name in ("certificate.pem", "key.pem"):
        (place / "tmp" / f"shoal-tls-{os.getuid()}" / name).touch()
    write(place / "c", model_store="store", inference_address="https://127.0.0.1:0")

    assert torchserve.main(["--foreground", "--ts-config", "c"], run) == 7
    assert run.last.server.certificate_file.endswith("/certificate.pem")
    assert run.last.server.tls_on == ("inference",)


# -- multi-model-server --------------------------------------------------------------------------------------------


def test_the_command_of_the_batching_guide(run: Runs, place: Path) -> None:
    write(
        place / "config.properties",
        inference_address="http://0.0.0.0:8080",
        management_address="http://0.0.0.0:8081",
    )

    assert multi_model_server.main(["--start", "--foreground"], run) == 7
    assert (run.last.server.compat, run.last.server.host, run.last.server.management_port) == ("mms", "0.0.0.0", 8081)
    assert (place / "logs" / "mms_log.log").exists()


def test_mms_takes_its_flags(run: Runs) -> None:
    words = "--model_store store --models a=b.mar all --foreground --mms-config sagemaker"
    assert multi_model_server.main(words.split(), run) == 1  # no variable of SageMaker is set
    assert multi_model_server.main(words.split()[:-2], run) == 7
    assert (run.last.server.model_store, run.last.startup) == ("store", [("a", "b.mar"), ("", "all")])


def test_mms_needs_no_store(run: Runs) -> None:
    assert multi_model_server.main(["--foreground"], run) == 7
    assert run.last.server.model_store == ""


def test_mms_chooses_its_file(run: Runs, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(place / "named", job_queue_size="4")
    multi_model_server.main(["--foreground", "--mms-config", "named"], run)
    assert run.last.defaults.queue_size == 4
    write(place / "variable", job_queue_size="5")
    monkeypatch.setenv("MMS_CONFIG_FILE", "variable")
    multi_model_server.main(["--foreground", "--mms-config", "sagemaker"], run)
    assert run.last.defaults.queue_size == 5


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("--model-store nowhere", "--model-store directory not found: nowhere"),
        ("--mms-config gone", "--mms-config file not found: gone"),
        ("--log-config gone", "--log-config file not found: gone"),
    ],
)
def test_what_mms_misses_is_said(run: Runs, capsys: pytest.CaptureFixture[str], arguments: str, says: str) -> None:
    assert multi_model_server.main(arguments.split(), run) == 1
    assert capsys.readouterr().out == f"{says}\n"


def test_mms_knows_no_version_flag(run: Runs) -> None:
    with pytest.raises(SystemExit) as left:
        multi_model_server.main(["--version"], run)
    assert left.value.code == 2


# -- as commands of click ------------------------------------------------------------------------------------------


def test_click_leaves_every_flag_to_the_command() -> None:
    done = CliRunner().invoke(torchserve.torchserve, ["--version"])

    assert (done.exit_code, done.output.splitlines()[0]) == (0, "TorchServe Version is 0.12.0")
    assert "--no-config-snapshots" in CliRunner().invoke(torchserve.torchserve, ["--help"]).output
    assert "--mms-config" in CliRunner().invoke(multi_model_server.multi_model_server, ["-h"]).output
    assert CliRunner().invoke(torchserve.torchserve, ["--bogus"]).exit_code == 2


def test_the_old_name_of_mms_says_that_it_is_old() -> None:
    done = CliRunner().invoke(multi_model_server.mxnet_model_server, ["--stop"])

    assert done.exit_code == 0
    assert done.output.splitlines() == [
        "Warning: Calling MMS with mxnet-model-server. Please move to multi-model-server.",
        "Model server is not currently running.",
    ]

"""What `shoal tritonserver` makes of its flags: the server itself is left out."""

import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from shoal.app import App
from shoal.config.deployment import Deployment
from shoal.config.devices import Machine
from shoal.config.triton import RateResource, Restriction, TritonSettings
from shoal.config.tritonserver import KNOWN, WITHOUT_EFFECT, deployment, parse
from shoal.errors import ConfigError, LoadFailed
from shoal.launch import tritonserver


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


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name in os.environ:
        if name.startswith("SHOAL_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.chdir(tmp_path)
    root = logging.getLogger("shoal")
    before = (list(root.handlers), root.level, root.propagate)
    yield tmp_path
    root.handlers[:], root.level, root.propagate = before


def made(*flags: str, gpus: int = 0) -> Deployment:
    return deployment(parse(["--model-repository=/models", *flags]), {}, Machine(gpus, 2))


def triton(*flags: str, gpus: int = 0) -> TritonSettings:
    settings = made(*flags, gpus=gpus).triton
    assert settings is not None
    return settings


def test_a_repository_is_enough() -> None:
    found = made()

    assert found.triton == TritonSettings(repositories=["/models"])
    server = found.server
    assert (server.compat, server.port, server.grpc_port, server.metrics_port) == ("triton", 8000, 8001, 8002)
    assert (server.host, server.grpc_host, server.metrics_host) == ("127.0.0.1",) * 3
    assert (server.management_port, server.grpc_management_port) == (-1, -1)
    assert (server.max_request_size, server.drain_timeout) == (64 * 2**20, 30.0)
    assert any("loopback" in note for note in found.notes)


@pytest.mark.parametrize(
    ("flags", "field", "value"),
    [
        (["--http-port=1234"], "port", 1234),
        (["--http-port", "1234"], "port", 1234),
        (["--http_port=1234"], "port", 1234),
        (["--http-port=0"], "port", 0),
        (["--allow-http=false"], "port", -1),
        (["--http-address=0.0.0.0"], "host", "0.0.0.0"),
        (["--http-address=0.0.0.0"], "metrics_host", "0.0.0.0"),
        (["--http-address=0.0.0.0", "--metrics-address=::1"], "metrics_host", "::1"),
        (["--grpc-port=1"], "grpc_port", 1),
        (["--allow-grpc=0"], "grpc_port", -1),
        (["--grpc-address=::"], "grpc_host", "::"),
        (["--metrics-port=5"], "metrics_port", 5),
        (["--allow-metrics=False"], "metrics_port", -1),
        (["--allow-metrics=false"], "enable_metrics_api", False),
        (["--allow-cpu-metrics=false"], "disable_system_metrics", True),
        ([], "disable_system_metrics", False),
        (["--metrics-interval-ms=500"], "metric_time_interval", 0.5),
        (["--exit-timeout-secs=3"], "drain_timeout", 3.0),
        (["--http-max-input-size=1000"], "max_request_size", 1000),
        (["--log-verbose=1"], "log_level", "debug"),
        (["--log-info=false"], "log_level", "warning"),
        (["--grpc-max-connection-age=1500"], "grpc_max_connection_age", 1.5),
        (["--grpc-max-connection-age=2147483647"], "grpc_max_connection_age", 0.0),
    ],
)
def test_flags_of_the_server(flags: list[str], field: str, value: Any) -> None:
    assert getattr(made(*flags).server, field) == value


@pytest.mark.parametrize(
    ("flags", "field", "value"),
    [
        (["--model-repository=/more", "--model-store=/other"], "repositories", ["/models", "/more", "/other"]),
        (["--model-control-mode=poll", "--repository-poll-secs=2"], "poll_every", 2.0),
        (["--model-control-mode=explicit", "--load-model=a", "--load-model", "b"], "load_models", ["a", "b"]),
        (["--model-control-mode=EXPLICIT"], "mode", "explicit"),
        (["--exit-on-error=false"], "exit_on_error", False),
        (["--strict-readiness=false"], "strict_readiness", False),
        (["--disable-auto-complete-config"], "completes", False),
        (["--disable-auto-complete-config=false"], "completes", True),
        (["--strict-model-config=true"], "completes", False),
        (["--model-config-name=h100"], "config_name", "h100"),
        (["--model-load-thread-count=9"], "loads_at_once", 9),
        (["--backend-config=default-max-batch-size=16"], "default_max_batch_size", 16),
        (["--backend-config=onnxruntime,default-max-batch-size=16"], "default_max_batch_size", 16),
        (["--id=mine"], "id", "mine"),
        (["--cache-config=local,size=1048576"], "cache_size", 1048576),
        (["--cache-config", "size=5"], "cache_size", 5),
        (["--response-cache-byte-size=7"], "cache_size", 7),
        (["--allow-client-shm=true"], "client_shared_memory", True),
        (["--http-header-forward-pattern=x-.*"], "http_header_forward", "x-.*"),
        (["--rate-limit=execution_count"], "rate_limit", True),
        (
            ["--rate-limit-resource=R1:10:0", "--rate-limit-resource=R2:5"],
            "rate_resources",
            [RateResource("R1", 10, 0), RateResource("R2", 5)],
        ),
        (
            ["--http-restricted-api=health,model-config:key=a=b"],
            "http_restrictions",
            [Restriction(frozenset({"health", "model-config"}), "key", "a=b")],
        ),
        (
            ["--grpc-restricted-protocol=inference:k=v"],
            "grpc_restrictions",
            [Restriction(frozenset({"inference"}), "k", "v")],
        ),
        (
            ["--metrics-config=summary_latencies=true", "--metrics-config=counter_latencies=false"],
            "metrics",
            {"summary_latencies": "true", "counter_latencies": "false"},
        ),
    ],
)
def test_flags_of_the_repositories(flags: list[str], field: str, value: Any) -> None:
    assert getattr(triton(*flags), field) == value


def test_the_machine_s_gpus_are_counted() -> None:
    assert triton(gpus=3).gpus == 3
    assert made(gpus=3).defaults.gpus == 3


def test_grpc_may_speak_tls() -> None:
    server = made("--grpc-use-ssl=true", "--grpc-server-cert=c.pem", "--grpc-server-key=k.pem").server

    assert (server.grpc_tls, server.certificate_file, server.private_key_file) == (True, "c.pem", "k.pem")
    assert server.tls_on == (), "HTTP does not"
    with pytest.raises(ConfigError, match="--grpc-use-ssl needs --grpc-server-cert and --grpc-server-key"):
        made("--grpc-use-ssl=true", "--grpc-server-cert=c.pem")


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--nope=1"], "unknown flag --nope; tritonserver has no such flag"),
        (["--model-control-mod=none"], "unknown flag --model-control-mod; did you mean --model-control-mode?"),
        (["explicit"], "expected a flag that begins with --, got 'explicit'"),
        (["--http-port"], "--http-port must be followed by a value"),
        (["--http-port=x"], "--http-port must be a whole number, got 'x'"),
        (["--http-port=70000"], "--http-port must be between 0 and 65535, got 70000"),
        (["--http-port=1", "--http-port=2"], "--http-port is given more than once"),
        (["--strict-readiness=maybe"], "--strict-readiness must be true or false, got 'maybe'"),
        (["--disable-auto-complete-config=maybe"], "--disable-auto-complete-config must be true or false, got 'maybe'"),
        (["--model-control-mode=odd"], "--model-control-mode must be one of none, poll, explicit, got 'odd'"),
        (["--model-repository=s3://bucket/models"], "s3://bucket/models: repositories are local folders"),
        (["--cache-config=redis,host=x"], "there is only the cache 'local', got 'redis'"),
        (["--cache-config=local,host=x"], "the cache 'local' has only 'size', got 'host'"),
        (["--cache-config=local,size=x"], "--cache-config size must be a whole number, got 'x'"),
        (["--metrics-config=x"], "--metrics-config takes KEY=VALUE, got 'x'"),
        (["--rate-limit-resource=x"], "--rate-limit-resource takes NAME:COUNT[:DEVICE], got 'x'"),
        (["--rate-limit=on"], "--rate-limit must be one of off, execution_count, got 'on'"),
        (["--http-restricted-api=health"], "--http-restricted-api takes API[,API...]:HEADER=VALUE, got 'health'"),
        (["--http-restricted-api=nope:a=b"], "--http-restricted-api: unknown API 'nope'; known are: health, "),
        (["--allow-sagemaker=true"], "--allow-sagemaker cannot be used: SageMaker's routes are not served"),
        (["--allow-vertex-ai=true"], "--allow-vertex-ai cannot be used"),
        (["--model-namespacing=true"], "--model-namespacing cannot be used"),
        (["--grpc-use-ssl-mutual=true"], "--grpc-use-ssl-mutual cannot be used"),
    ],
)
def test_what_cannot_be_done_is_said(flags: list[str], reason: str) -> None:
    with pytest.raises(ConfigError) as raised:
        made(*flags)

    assert reason in str(raised.value)


@pytest.mark.parametrize("name", sorted(WITHOUT_EFFECT))
def test_a_flag_without_effect_is_noted_once(name: str) -> None:
    notes = made(f"--{name}=1").notes

    assert [note for note in notes if note.startswith(f"--{name} has no effect: ")] == [
        f"--{name} has no effect: {WITHOUT_EFFECT[name]}"
    ]
    assert len(notes) == len(made().notes) + 1


def test_settings_of_what_is_switched_off_are_taken() -> None:
    made("--allow-sagemaker=false", "--sagemaker-port=8080", "--vertex-ai-port", "8081", "--allow-vertex-ai=false")


def test_resources_mean_something_where_rates_are_limited_only() -> None:
    given = "--rate-limit-resource=R:1"
    assert any(note.startswith("--rate-limit-resource has no effect") for note in made(given).notes)
    assert not any("rate-limit" in note for note in made(given, "--rate-limit=execution_count").notes)


def test_names_to_load_mean_something_in_explicit_mode_only() -> None:
    assert any("--load-model has no effect" in note for note in made("--load-model=a").notes)
    assert not any("--load-model" in n for n in made("--load-model=a", "--model-control-mode=explicit").notes)


def test_an_address_that_is_given_is_not_noted() -> None:
    assert made("--http-address=127.0.0.1", "--grpc-address=127.0.0.1").notes == []


# -- the command -----------------------------------------------------------------------------------------------------


def test_the_server_is_run_and_its_code_given_back(caplog: pytest.LogCaptureFixture) -> None:
    run = Runs()

    assert tritonserver.main(["--model-repository=models", "--http-thread-count=3"], run) == 7
    assert run.given[0].triton is not None
    assert run.given[0].triton.repositories == ["models"]


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ([], None, "error: at least one --model-repository must be given"),
        (["--nope"], None, "error: unknown flag --nope"),
        (["--model-repository=m"], LoadFailed("creating server: no way"), "error: creating server: no way"),
        (["--model-repository=m"], OSError("address in use"), "error: cannot listen: address in use"),
    ],
)
def test_what_goes_wrong_is_one_line_and_code_1(
    arguments: list[str], error: Exception | None, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Runs()
    run.error = error

    assert tritonserver.main(arguments, run) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith(words)


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    run = Runs()

    assert tritonserver.main(["--help"], run) == 0
    text = capsys.readouterr().out
    assert all(f"--{name}" in text for name in KNOWN)
    assert tritonserver.main(["--version"], run) == 0
    assert "2.51" in capsys.readouterr().out
    assert run.given == []


def test_the_command_takes_flags_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, ...]] = []

    def main(arguments: tuple[str, ...]) -> int:
        seen.append(arguments)
        return 5

    monkeypatch.setattr(tritonserver, "main", main)

    result = CliRunner().invoke(
        tritonserver.tritonserver, ["--model-repository", "m", "--help", "--strict-readiness=1"]
    )

    assert result.exit_code == 5
    assert seen == [("--model-repository", "m", "--help", "--strict-readiness=1")]


def test_the_lines_that_scripts_wait_for(caplog: pytest.LogCaptureFixture) -> None:
    class Running:
        def __init__(self) -> None:
            self.addresses = {
                "inference": "http://0.0.0.0:8000",
                "grpc inference": "grpc://0.0.0.0:8001",
                "metrics": "http://0.0.0.0:8002",
            }

    logging.getLogger("shoal").propagate = True
    with caplog.at_level(logging.INFO, "shoal"):
        tritonserver.announce(Running())  # type: ignore[arg-type]

    assert caplog.messages == [
        "Started GRPCInferenceService at 0.0.0.0:8001",
        "Started HTTPService at 0.0.0.0:8000",
        "Started Metrics Service at 0.0.0.0:8002",
    ]

from typing import Any

import pytest

from shoal.config.deployment import Deployment
from shoal.config.devices import Machine
from shoal.config.mms import SAGEMAKER, deployment
from shoal.config.properties import parse
from shoal.errors import ConfigError

MACHINE = Machine(gpus=0, cpus=6)


def read(file: dict[str, str] | None = None, environment: dict[str, str] | None = None, **flags: str) -> Deployment:
    return deployment(file or {}, environment or {}, flags, machine=MACHINE)


def look(found: Deployment, names: str) -> Any:
    value: Any = found
    for name in names.split("."):
        value = getattr(value, name)
    return value


def test_without_a_word_the_server_is_mms() -> None:
    found = read()
    server, defaults = found.server, found.defaults

    assert (server.compat, server.token_authorization, server.model_api) == ("mms", False, True)
    assert [server.port, server.management_port, server.metrics_port] == [8080, 8081, -1]
    assert (server.grpc_port, server.grpc_management_port) == (-1, -1)
    assert (server.metrics_mode, server.enable_metrics_api, server.disable_system_metrics) == ("log", False, False)
    assert (server.allowed_urls, server.max_request_size) == (["http(s)?://.*"], 6553500)
    assert (defaults.flavour, defaults.response_timeout, defaults.queue_size) == ("mms", 7200, 100)
    assert (defaults.registered_workers, defaults.startup_workers) == (0, 6)
    assert (server.model_store, found.snapshots, found.notes) == ("", "", [])


SHOWN: list[tuple[dict[str, str], str, Any]] = [
    ({"inference_address": "http://h:1"}, "server.port", 1),
    ({"management_address": "unix:/m"}, "server.management_unix_socket", "/m"),
    ({"load_models": "a=b.mar"}, "startup", [("a", "b.mar")]),
    ({"model_store": "s"}, "server.model_store", "s"),
    ({"default_workers_per_model": "2"}, "defaults.startup_workers", 2),
    ({"default_response_timeout": "2"}, "defaults.response_timeout", 120.0),
    ({"default_response_timeout_seconds": "2"}, "defaults.response_timeout", 2.0),
    ({"unregister_model_timeout": "3"}, "server.unregister_timeout", 3.0),
    ({"job_queue_size": "4"}, "defaults.queue_size", 4),
    ({"number_of_gpu": "0"}, "defaults.gpus", 0),
    ({"max_request_size": "5"}, "server.max_request_size", 5),
    ({"max_response_size": "6"}, "defaults.max_response_size", 6),
    ({"decode_input_request": "false"}, "defaults.decode_input", False),
    ({"default_service_handler": "h"}, "defaults.handler", "h"),
    ({"blacklist_env_vars": "A.*"}, "defaults.hidden_environment", "A.*"),
    ({"metric_time_interval": "7"}, "server.metric_time_interval", 7.0),
    ({"async_logging": "true"}, "server.async_logging", True),
    ({"cors_allowed_origin": "*"}, "server.cors_origin", "*"),
    ({"cors_allowed_methods": "GET"}, "server.cors_methods", "GET"),
    ({"cors_allowed_headers": "X"}, "server.cors_headers", "X"),
    (
        {"inference_address": "https://h", "certificate_file": "c", "private_key_file": "k"},
        "server.tls_on",
        ("inference",),
    ),
    ({"enable_envvars_config": "true"}, "notes", []),
]


@pytest.mark.parametrize(("file", "names", "expected"), SHOWN, ids=lambda value: str(value))
def test_a_key_that_means_something_here_shows(file: dict[str, str], names: str, expected: Any) -> None:
    assert look(read(file), names) == expected
    assert read(file).notes == []


@pytest.mark.parametrize(
    "key",
    [
        *("number_of_netty_threads", "netty_client_threads", "prefer_direct_buffer", "use_native_io", "io_ratio"),
        *("vmargs", "plugins_path", "debug", "model_server_home", "preload_model", "keystore"),
    ],
)
def test_a_key_without_effect_is_noted_once(key: str) -> None:
    found = read({key: "true"})

    assert len(found.notes) == 1
    assert found.notes[0].startswith(f"{key} has no effect: ")


def test_keys_of_torchserve_are_none_of_mms() -> None:
    found = read({"metrics_mode": "prometheus", "grpc_inference_port": "1"})

    assert found.server.grpc_port == -1
    assert found.notes == [
        "grpc_inference_port is not used: Multi Model Server has no such setting",
        "metrics_mode is not used: Multi Model Server has no such setting",
    ]


def test_seconds_win_over_minutes() -> None:
    file = {"default_response_timeout": "2", "default_response_timeout_seconds": "5"}

    assert read(file).defaults.response_timeout == 5.0


def test_variables_have_their_own_prefix_and_win_over_flags() -> None:
    environment = {"MMS_JOB_QUEUE_SIZE": "7", "TS_JOB_QUEUE_SIZE": "8", "MMS_MODEL_STORE": "variable"}
    file = {"enable_envvars_config": "true"}

    found = read(file, environment, model_store="flag")
    assert (found.defaults.queue_size, found.server.model_store) == (7, "variable")
    found = read({}, environment, model_store="flag")
    assert (found.defaults.queue_size, found.server.model_store) == (100, "flag")


SAGEMAKERS = {
    "SAGEMAKER_MODEL_STORE": "/models",
    "SAGEMAKER_BIND_TO_PORT": "9090",
    "SAGEMAKER_RESPONSE_TIMEOUT": "3",
    "SAGEMAKER_NUM_MODEL_WORKERS": "2",
    "SAGEMAKER_HANDLER": "service:handle",
    "SAGEMAKER_MAX_RESPONSE_SIZE": "11",
    "SAGEMAKER_MAX_REQUEST_SIZE": "12",
}


def test_the_settings_for_sagemaker_come_from_its_variables() -> None:
    found = read(SAGEMAKER, SAGEMAKERS)
    server, defaults = found.server, found.defaults

    assert (server.host, server.port) == (server.management_host, server.management_port) == ("0.0.0.0", 9090)
    assert (server.model_store, server.max_request_size, server.async_logging) == ("/models", 12, True)
    assert (defaults.response_timeout, defaults.startup_workers, defaults.handler) == (180.0, 2, "service:handle")
    assert (defaults.max_response_size, defaults.decode_input) == (11, False)


@pytest.mark.parametrize("name", SAGEMAKERS)
def test_a_variable_of_sagemaker_that_is_missing_is_named(name: str) -> None:
    with pytest.raises(ConfigError, match=f"the environment variable {name} is not set"):
        read(SAGEMAKER, {key: value for key, value in SAGEMAKERS.items() if key != name})


def test_the_settings_of_the_batching_guide() -> None:
    text = (
        "model_store=/opt/ml/model\n"
        "inference_address=http://0.0.0.0:8080\n"
        "management_address=http://0.0.0.0:8081\n"
        "number_of_netty_threads=32\n"
        "job_queue_size=1000\n"
        "async_logging=true\n"
    )
    found = read(parse(text))

    assert (found.server.host, found.server.management_host) == ("0.0.0.0", "0.0.0.0")
    assert (found.server.model_store, found.defaults.queue_size, found.server.async_logging) == (
        "/opt/ml/model",
        1000,
        True,
    )
    assert len(found.notes) == 1


def test_the_container_of_the_ants_and_bees() -> None:
    found = read(None, {"BATCH_SIZE": "32", "WORKERS": "2", "LINGER_MS": "10"})

    assert (found.defaults.batch_size, found.defaults.startup_workers, found.defaults.max_batch_delay) == (32, 2, 10.0)

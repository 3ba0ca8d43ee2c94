"""Every key of TorchServe's config.properties: it shows in the deployment, or a note says why it does not."""

import json
from pathlib import Path
from typing import Any

import pytest

from shoal.config.deployment import Deployment
from shoal.config.devices import Machine
from shoal.config.properties import parse
from shoal.config.server import ServerConfig
from shoal.config.torchserve import deployment
from shoal.errors import ConfigError

MACHINE = Machine(gpus=0, cpus=6)
CERTIFICATE = {"certificate_file": "c.pem", "private_key_file": "k.pem"}


def read(
    file: dict[str, str] | None = None,
    environment: dict[str, str] | None = None,
    machine: Machine = MACHINE,
    **flags: str,
) -> Deployment:
    return deployment({"model_store": "store", **(file or {})}, environment or {}, flags, machine=machine)


def look(found: Deployment, names: str) -> Any:
    value: Any = found
    for name in names.split("."):
        value = getattr(value, name)
    return value


# -- keys ----------------------------------------------------------------------------------------------------------

SHOWN: list[tuple[dict[str, str], dict[str, Any]]] = [
    ({"inference_address": "http://0.0.0.0:1"}, {"server.host": "0.0.0.0", "server.port": 1}),
    ({"management_address": "http://h:2"}, {"server.management_host": "h", "server.management_port": 2}),
    ({"metrics_address": "http://h:3"}, {"server.metrics_host": "h", "server.metrics_port": 3}),
    ({"inference_address": "unix:/i"}, {"server.port": -1, "server.unix_socket": "/i"}),
    ({"management_address": "unix:/m"}, {"server.management_port": -1, "server.management_unix_socket": "/m"}),
    ({"metrics_address": "unix:/x"}, {"server.metrics_port": -1, "server.metrics_unix_socket": "/x"}),
    ({"grpc_inference_address": "0.0.0.0"}, {"server.grpc_host": "0.0.0.0"}),
    ({"grpc_management_address": "[::1]"}, {"server.grpc_management_host": "::1"}),
    ({"grpc_inference_port": "9"}, {"server.grpc_port": 9}),
    ({"grpc_management_port": "0"}, {"server.grpc_management_port": 0}),
    ({"grpc_inference_max_connection_age_ms": "1500"}, {"server.grpc_max_connection_age": 1.5}),
    ({"grpc_inference_max_connection_age_grace_ms": "500"}, {"server.grpc_max_connection_age_grace": 0.5}),
    ({"grpc_management_max_connection_age_ms": "2000"}, {"server.grpc_management_max_connection_age": 2.0}),
    ({"grpc_management_max_connection_age_grace_ms": "1"}, {"server.grpc_management_max_connection_age_grace": 0.001}),
    ({"enable_grpc_ssl": "true", **CERTIFICATE}, {"server.grpc_tls": True, "server.certificate_file": "c.pem"}),
    ({"load_models": "ALL"}, {"startup": [("", "all")]}),
    ({"load_models": "a.mar, b=c.mar"}, {"startup": [("", "a.mar"), ("b", "c.mar")]}),
    ({"model_store": "elsewhere"}, {"server.model_store": "elsewhere", "workflow_store": "elsewhere"}),
    ({"workflow_store": "w"}, {"workflow_store": "w", "server.model_store": "store"}),
    ({"models": '{"m":{"1.0":{"batchSize":4}}}'}, {"tuning": {"m": {"1.0": {"batchSize": 4}}}}),
    ({"model_snapshot": '{"models":{}}'}, {"snapshot": {"models": {}}}),
    ({"default_workers_per_model": "3"}, {"defaults.registered_workers": 3, "defaults.startup_workers": 3}),
    ({"default_response_timeout": "9"}, {"defaults.response_timeout": 9.0}),
    ({"default_startup_timeout": "8"}, {"defaults.startup_timeout": 8.0}),
    ({"unregister_model_timeout": "7"}, {"server.unregister_timeout": 7.0}),
    ({"job_queue_size": "1000"}, {"defaults.queue_size": 1000}),
    ({"max_request_size": "10"}, {"server.max_request_size": 10}),
    ({"max_response_size": "11"}, {"defaults.max_response_size": 11}),
    ({"limit_max_image_pixels": "false"}, {"defaults.limit_image_pixels": False}),
    ({"decode_input_request": "false"}, {"defaults.decode_input": False}),
    ({"default_service_handler": "h.py:handle"}, {"defaults.handler": "h.py:handle"}),
    ({"service_envelope": "KServe"}, {"defaults.envelope": "kserve"}),
    ({"install_py_dep_per_model": "true"}, {"defaults.install_requirements": True}),
    ({"allowed_urls": "https://a/.*,https://b/.*"}, {"server.allowed_urls": ["https://a/.*", "https://b/.*"]}),
    ({"blacklist_env_vars": ".*KEY.*"}, {"defaults.hidden_environment": ".*KEY.*"}),
    ({"disable_token_authorization": "true"}, {"server.token_authorization": False}),
    ({"token_expiration_min": "0.5"}, {"server.token_expiration": 0.5}),
    ({"enable_model_api": "TRUE"}, {"server.model_api": True}),
    ({"ts_open_inference_protocol": "true"}, {"server.open_inference": True}),
    ({"metrics_mode": "Prometheus"}, {"server.metrics_mode": "prometheus"}),
    ({"metrics_config": "m.yaml"}, {"server.metrics_config": "m.yaml"}),
    ({"model_metrics_auto_detect": "true"}, {"server.model_metrics_auto_detect": True}),
    ({"enable_metrics_api": "false"}, {"server.enable_metrics_api": False, "server.metrics_port": -1}),
    ({"disable_system_metrics": "true"}, {"server.disable_system_metrics": True}),
    ({"metric_time_interval": "5"}, {"server.metric_time_interval": 5.0}),
    ({"async_logging": "true"}, {"server.async_logging": True}),
    ({"cors_allowed_origin": "*"}, {"server.cors_origin": "*"}),
    ({"cors_allowed_methods": "GET, POST"}, {"server.cors_methods": "GET, POST"}),
    ({"cors_allowed_headers": "X-A"}, {"server.cors_headers": "X-A"}),
    (
        {"inference_address": "https://h:1", **CERTIFICATE},
        {"server.certificate_file": "c.pem", "server.private_key_file": "k.pem", "server.tls_on": ("inference",)},
    ),
    ({"initial_worker_port": "9500"}, {"defaults.first_worker_id": 9500}),
    ({"ipex_enable": "true"}, {"defaults.environment": {"TS_IPEX_ENABLE": "true"}}),
    ({"ipex_gpu_enable": "true"}, {"defaults.environment": {"TS_IPEX_GPU_ENABLE": "true"}}),
    ({"enable_envvars_config": "true"}, {}),
    ({"use_env_allowed_urls": "true"}, {}),
    ({"number_of_gpu": "0"}, {"defaults.gpus": 0}),
]
NOTED = {
    "number_of_netty_threads": "32",
    "netty_client_threads": "4",
    "prefer_direct_buffer": "true",
    "use_native_io": "false",
    "io_ratio": "50",
    "vmargs": "-Xmx1g",
    "plugins_path": "/p",
    "debug": "true",
    "model_server_home": "/home",
    "cpp_log_config": "l",
    "cpu_launcher_enable": "true",
    "cpu_launcher_args": "--x",
    "system_metrics_cmd": "c",
    "initial_distribution_port": "29500",
    "ts_header_key_sequence_id": "a",
    "ts_header_key_sequence_start": "b",
    "ts_header_key_sequence_end": "c",
    "keystore": "k.p12",
}
IN_COMPANY = {"keystore_pass", "keystore_type"}  # of keystore: nothing to say on their own
TABLE = """
inference_address management_address metrics_address grpc_inference_address grpc_management_address grpc_inference_port
grpc_management_port grpc_inference_max_connection_age_ms grpc_inference_max_connection_age_grace_ms
grpc_management_max_connection_age_ms grpc_management_max_connection_age_grace_ms enable_grpc_ssl load_models
model_store workflow_store models model_snapshot default_workers_per_model default_response_timeout
default_startup_timeout unregister_model_timeout job_queue_size number_of_gpu number_of_netty_threads
netty_client_threads max_request_size max_response_size limit_max_image_pixels decode_input_request
default_service_handler service_envelope install_py_dep_per_model allowed_urls use_env_allowed_urls
blacklist_env_vars disable_token_authorization token_expiration_min enable_model_api ts_open_inference_protocol
ts_header_key_sequence_id ts_header_key_sequence_start ts_header_key_sequence_end metrics_mode metrics_config
model_metrics_auto_detect enable_metrics_api disable_system_metrics system_metrics_cmd metric_time_interval
async_logging cors_allowed_origin cors_allowed_methods cors_allowed_headers keystore keystore_pass keystore_type
private_key_file certificate_file initial_worker_port initial_distribution_port prefer_direct_buffer use_native_io
io_ratio ipex_enable ipex_gpu_enable cpu_launcher_enable cpu_launcher_args cpp_log_config enable_envvars_config debug
model_server_home vmargs plugins_path
"""


@pytest.mark.parametrize(("file", "shown"), SHOWN, ids=lambda value: ",".join(value))
def test_a_key_that_means_something_here_shows(file: dict[str, str], shown: dict[str, Any]) -> None:
    found = read(file)

    assert {names: look(found, names) for names in shown} == shown
    assert found.notes == []


@pytest.mark.parametrize(("key", "value"), NOTED.items())
def test_a_key_without_effect_is_noted_once_and_changes_nothing(key: str, value: str) -> None:
    found = read({key: value})

    assert len(found.notes) == 1
    assert found.notes[0].startswith(f"{key} has no effect: ")
    assert (found.server, found.defaults) == (read().server, read().defaults)


def test_no_key_is_forgotten() -> None:
    shown = {key for file, _ in SHOWN for key in file}

    assert shown | NOTED.keys() | IN_COMPANY == set(TABLE.split())


def test_a_key_that_is_none_is_kept_and_noted() -> None:
    found = read({"foo_bar": "abc", "version": "0.12.0", "python": "/usr/bin/python", "tsConfigFile": "c"})

    assert found.properties["foo_bar"] == "abc"
    assert found.notes == ["foo_bar is not used: TorchServe has no such setting"]


def test_without_a_word_the_server_is_torchserves() -> None:
    found = read()
    server, defaults = found.server, found.defaults

    assert [server.host, server.management_host, server.metrics_host] == ["127.0.0.1"] * 3
    assert [server.port, server.management_port, server.metrics_port] == [8080, 8081, 8082]
    assert [server.grpc_host, server.grpc_port] == ["127.0.0.1", 7070]
    assert [server.grpc_management_host, server.grpc_management_port] == ["127.0.0.1", 7071]
    assert (server.compat, server.token_authorization, server.model_api) == ("torchserve", True, False)
    assert server.allowed_urls == ["file://.*|http(s)?://.*"]
    assert (server.metrics_mode, server.disable_system_metrics, server.enable_metrics_api) == ("log", False, True)
    assert (server.max_request_size, defaults.max_response_size, defaults.queue_size) == (6553500, 6553500, 100)
    assert (defaults.registered_workers, defaults.startup_workers) == (0, 6)
    assert (defaults.response_timeout, defaults.startup_timeout, server.unregister_timeout) == (120, 120, 120)
    assert (defaults.flavour, defaults.batch_size, defaults.max_batch_delay) == ("torchserve", 0, 100)
    assert (server.log_location, server.metrics_location, found.snapshots) == ("logs", "logs", "logs/config")
    assert (server.token_expiration, server.certificate_file, server.tls_on) == (60, "", ())
    assert (found.startup, found.tuning, found.snapshot) == ([], {}, None)


def test_shoals_own_defaults_are_not_torchserves() -> None:
    native = ServerConfig()

    assert (native.metrics_mode, native.disable_system_metrics, native.compat) == ("prometheus", True, "")
    assert native.tls_on == ("inference", "management", "metrics")


# -- values --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ({"job_queue_size": "many"}, "job_queue_size must be a whole number, got 'many'"),
        ({"job_queue_size": "0"}, "job_queue_size must be 1 or more, got 0"),
        ({"default_response_timeout": "soon"}, "default_response_timeout must be a number, got 'soon'"),
        ({"default_response_timeout": "-1"}, "default_response_timeout must be above 0, got -1"),
        ({"token_expiration_min": "inf"}, "token_expiration_min must be above 0, got inf"),
        ({"metrics_mode": "graphite"}, "metrics_mode must be one of log, prometheus, legacy, got 'graphite'"),
        ({"service_envelope": "x"}, "service_envelope must be one of body, json, kserve, kservev2, got 'x'"),
        ({"inference_address": "localhost"}, "inference_address must be http://host"),
        ({"grpc_inference_port": "70000"}, "grpc_port must be between 0 and 65535"),
        ({"models": "{"}, "models is not JSON"),
        ({"models": "[]"}, "models: expected"),
        ({"models": '{"m": 1}'}, "got 1 for 'm'"),
        (
            {"models": '{"m": {"1.0": {"batchSize": "x"}}}'},
            "models: batchSize of m 1.0 must be a whole number, got 'x'",
        ),
        (
            {"models": '{"m": {"1.0": {"batchSize": 1e999}}}'},
            "models: batchSize of m 1.0 must be a whole number, got inf",
        ),
        ({"inference_address": "http://0.0.0.0:8081"}, "give it a port of its own"),
    ],
)
def test_a_value_that_means_nothing_is_refused_with_its_key(file: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(file)
    assert says in str(refused.value)


def test_an_empty_value_is_no_value() -> None:
    found = read({"job_queue_size": " ", "number_of_netty_threads": "", "enable_metrics_api": ""})

    assert (found.server, found.defaults, found.notes) == (read().server, read().defaults, [])


def test_a_switch_is_on_for_true_alone_and_other_words_are_noted() -> None:
    found = read({"enable_model_api": "yes", "disable_token_authorization": "False"})

    assert (found.server.model_api, found.server.token_authorization) == (False, True)
    assert found.notes == ["enable_model_api=yes counts as false, as it always did; only true switches it on"]


def test_equal_addresses_share_a_port() -> None:
    found = read(dict.fromkeys(("inference_address", "management_address"), "http://0.0.0.0:8080"))

    assert (found.server.port, found.server.management_port) == (8080, 8080)
    assert found.server.management_host == "0.0.0.0"


def test_numbers_of_models_that_are_not_above_0_are_left_out() -> None:
    settings = {"defaultVersion": True, "marName": "m.mar", "minWorkers": 0, "batchSize": "4", "maxBatchDelay": -1}
    found = read({"models": json.dumps({"m": {"1.0": settings}})})

    assert found.tuning == {"m": {"1.0": {"defaultVersion": True, "marName": "m.mar", "batchSize": 4}}}


@pytest.mark.parametrize(
    ("text", "startup"),
    [
        ("a.mar", [("", "a.mar")]),
        ("a=https://h/x.mar?k=v", [("a", "https://h/x.mar?k=v")]),
        ("https://h/x.mar?k=v", [("", "https://h/x.mar?k=v")]),
        ("a.mar,,b=b.mar,", [("", "a.mar"), ("b", "b.mar")]),
        ("all", [("", "all")]),
        ("all,a.mar", [("", "all"), ("", "a.mar")]),
    ],
)
def test_models_to_load_are_names_and_locations(text: str, startup: list[tuple[str, str]]) -> None:
    assert read({"load_models": text}).startup == startup


# -- where values come from -----------------------------------------------------------------------------------------


def test_flags_win_over_the_file() -> None:
    found = read({"load_models": "a.mar"}, model_store="flag", load_models="b.mar", disable_token_authorization="true")

    assert (found.server.model_store, found.startup) == ("flag", [("", "b.mar")])
    assert not found.server.token_authorization


def test_variables_count_only_where_the_file_allows_them() -> None:
    environment = {"TS_JOB_QUEUE_SIZE": "7", "TS_MODEL_STORE": "variable"}

    assert read({"job_queue_size": "5"}, environment).defaults.queue_size == 5
    found = read({"job_queue_size": "5", "enable_envvars_config": "true"}, environment, model_store="flag")
    assert (found.defaults.queue_size, found.server.model_store) == (7, "variable")


def test_variables_win_even_over_the_flags_that_switch_on() -> None:
    environment = {"TS_DISABLE_TOKEN_AUTHORIZATION": "false", "TS_ENABLE_MODEL_API": "false"}
    file = {"enable_envvars_config": "true"}
    found = read(file, environment, disable_token_authorization="true", enable_model_api="true")

    assert (found.server.token_authorization, found.server.model_api) == (True, False)


def test_allowed_urls_need_a_second_permission() -> None:
    environment = {"TS_ALLOWED_URLS": "https://x/.*"}
    file = {"enable_envvars_config": "true", "allowed_urls": "https://y/.*"}

    assert read(file, environment).server.allowed_urls == ["https://y/.*"]
    assert read({**file, "use_env_allowed_urls": "true"}, environment).server.allowed_urls == ["https://x/.*"]


@pytest.mark.parametrize(
    ("variable", "value", "names", "expected"),
    [
        ("TS_TOKEN_EXPIRATION_TIME_MIN", "5", "server.token_expiration", 5.0),
        ("TS_TOKEN_EXPIRATION_MIN", "5", "server.token_expiration", 60.0),
        ("TS_OPEN_INFERENCE_PROTOCOL", "true", "server.open_inference", True),
        ("TS_INFERENCE_ADDRESS", "http://h:1", "server.port", 1),
        ("TS_METRIC_TIME_INTERVAL", "5", "server.metric_time_interval", 60.0),
        ("TS_MODELS", '{"m":{}}', "tuning", {}),
    ],
)
def test_variables_have_upstreams_names(variable: str, value: str, names: str, expected: Any) -> None:
    assert look(read({"enable_envvars_config": "true"}, {variable: value}), names) == expected


def test_the_open_inference_protocol_has_a_variable_of_its_own() -> None:
    assert read(None, {"TS_OPEN_INFERENCE_PROTOCOL": "oip"}).server.open_inference
    assert not read(None, {"TS_OPEN_INFERENCE_PROTOCOL": "true"}).server.open_inference


def test_variables_in_values_are_replaced() -> None:
    found = read({"inference_address": "http://0.0.0.0:$$PORT$$"}, {"PORT": "81"})

    assert found.server.port == 81
    assert found.properties["inference_address"] == "http://0.0.0.0:81"


def test_shoals_own_variables_set_what_upstream_has_no_key_for() -> None:
    found = read({"enable_envvars_config": "false"}, {"SHOAL_DRAIN_TIMEOUT": "3", "SHOAL_LOG_LEVEL": "debug"})

    assert (found.server.drain_timeout, found.server.log_level) == (3.0, "debug")


def test_locations_come_from_variables() -> None:
    found = read(None, {"LOG_LOCATION": "/l", "METRICS_LOCATION": "/m"})

    assert (found.server.log_location, found.server.metrics_location) == ("/l", "/m")
    assert found.snapshots == "/l/config"
    assert deployment({}, {}, {}, machine=MACHINE, keep_snapshots=False).snapshots == ""


# -- the machine, and the container ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "gpus", "workers"),
    [
        ({}, 4, 4),
        ({"number_of_gpu": "2"}, 2, 2),
        ({"number_of_gpu": "9"}, 4, 4),
        ({"number_of_gpu": "0"}, 0, 6),
        ({"default_workers_per_model": "1"}, 4, 1),
    ],
)
def test_a_model_starts_with_a_worker_on_each_gpu_else_on_each_processor(
    file: dict[str, str], gpus: int, workers: int
) -> None:
    defaults = read(file, machine=Machine(gpus=4, cpus=6)).defaults

    assert (defaults.gpus, defaults.startup_workers) == (gpus, workers)


def test_a_container_is_told_by_variables() -> None:
    found = read(None, {"BATCH_SIZE": "64", "WORKERS": "1", "LINGER_MS": "10"})

    assert (found.defaults.batch_size, found.defaults.max_batch_delay) == (64, 10.0)
    assert (found.defaults.startup_workers, found.defaults.registered_workers) == (1, 0)
    assert [note.split(" ")[0] for note in found.notes] == ["BATCH_SIZE=64", "LINGER_MS=10", "WORKERS=1"]


def test_a_delay_of_nothing_is_a_delay() -> None:
    assert read(None, {"LINGER_MS": "0"}).defaults.max_batch_delay == 0.0


def test_the_settings_know_better_how_many_workers_there_are() -> None:
    found = read({"default_workers_per_model": "3"}, {"WORKERS": "9"})

    assert found.defaults.startup_workers == 3
    assert found.notes == ["WORKERS=9 of the environment gives way to default_workers_per_model"]


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("BATCH_SIZE", "big", "BATCH_SIZE must be a whole number, got 'big'"),
        ("BATCH_SIZE", "0", "BATCH_SIZE must be 1 or more, got 0"),
        ("WORKERS", "-1", "WORKERS must be 1 or more, got -1"),
        ("LINGER_MS", "-5", "LINGER_MS must be 0 or more, got -5"),
        ("LINGER_MS", "10ms", "LINGER_MS must be a whole number, got '10ms'"),
    ],
)
def test_a_container_told_nonsense_does_not_start(name: str, value: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        read(None, {name: value})


# -- TLS -----------------------------------------------------------------------------------------------------------


def test_a_key_store_must_be_exported() -> None:
    with pytest.raises(ConfigError, match=r"keystore: k\.p12 \(JKS\) cannot be read here; export it as PEM"):
        read({"inference_address": "https://h:1", "keystore": "k.p12", "keystore_type": "JKS", "keystore_pass": "x"})


def test_files_win_over_a_key_store() -> None:
    found = read({"inference_address": "https://h:1", "keystore": "k.p12", **CERTIFICATE})

    assert found.server.certificate_file == "c.pem"
    assert found.notes == ["keystore has no effect: certificate_file and private_key_file are used"]


@pytest.mark.parametrize("file", [{}, {"certificate_file": "c.pem"}, {"private_key_file": "k.pem"}])
def test_an_https_address_needs_both_files(file: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="needs certificate_file and private_key_file"):
        read({"management_address": "https://h:1", **file})


def test_our_own_certificate_is_used_where_none_is_named_and_not_kept() -> None:
    file = {"management_address": "https://h:1", "metrics_address": "https://h:2"}
    found = deployment(file, {}, {}, machine=MACHINE, own_certificate=("own.pem", "key.pem"))

    assert (found.server.certificate_file, found.server.private_key_file) == ("own.pem", "key.pem")
    assert found.server.tls_on == ("management", "metrics")
    assert "certificate_file" not in found.properties


def test_without_https_a_certificate_is_not_used() -> None:
    assert read(CERTIFICATE).server.certificate_file == ""


# -- whole files ---------------------------------------------------------------------------------------------------


def test_the_settings_of_upstreams_container() -> None:
    text = """
    inference_address=http://0.0.0.0:8080
    management_address=http://0.0.0.0:8081
    metrics_address=http://0.0.0.0:8082
    number_of_netty_threads=32
    job_queue_size=1000
    model_store=/home/model-server/model-store
    workflow_store=/home/model-server/wf-store
    """
    found = read(parse(text))

    assert [found.server.host, found.server.management_host, found.server.metrics_host] == ["0.0.0.0"] * 3
    assert (found.defaults.queue_size, found.workflow_store) == (1000, "/home/model-server/wf-store")
    assert len(found.notes) == 1


def test_the_example_of_models_settings() -> None:
    line = (
        r'models={"resnet":{"1.0":{"defaultVersion":true,"marName":"resnet.mar","minWorkers":1,"maxWorkers":2,'
        "\\\n"
        r'   "batchSize":4,"maxBatchDelay":100,"responseTimeout":120,"startupTimeout":120,"runtimeType":"python"}}}'
    )
    tuned = read(parse(line)).tuning["resnet"]["1.0"]

    assert (tuned["minWorkers"], tuned["maxWorkers"], tuned["batchSize"], tuned["maxBatchDelay"]) == (1, 2, 4, 100)


def test_a_snapshot_is_restored_and_models_to_load_are_not(tmp_path: Path) -> None:
    (tmp_path / "m.mar").touch()
    content = {"models": {"m": {"1.0": {"defaultVersion": True, "marName": "m.mar"}}}}
    found = read({"model_store": str(tmp_path), "model_snapshot": json.dumps(content), "load_models": "all"})

    assert found.snapshot is not None
    assert found.snapshot["models"]["m"]["1.0"]["responseTimeout"] == 120
    assert found.notes == ["load_models has no effect: the models of the snapshot are restored instead"]

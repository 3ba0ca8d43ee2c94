import json
import math
from pathlib import Path
from typing import Any

import pytest

from shoal.config.load import model_config, read_file, server_config, with_own_settings
from shoal.config.model import Batching, ModelConfig
from shoal.config.server import ServerConfig
from shoal.errors import ConfigError


def write(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def server(**values: Any) -> ServerConfig:
    return server_config(values, {}, {})


def model(**values: Any) -> ModelConfig:
    return model_config({"name": "m", "path": "m.py", **values}, "models.m")


# -- layers --------------------------------------------------------------------------------------------------------


def test_without_anything_said_the_defaults_hold() -> None:
    assert server() == ServerConfig()
    assert server().host == server().management_host == "127.0.0.1"


def test_flags_win_over_the_environment_and_that_over_the_file() -> None:
    file = {"port": 1, "management_port": 2, "metrics_port": 3}
    environment = {"SHOAL_PORT": "11", "SHOAL_MANAGEMENT_PORT": "12"}
    config = server_config(file, environment, {"port": 21})

    assert (config.port, config.management_port, config.metrics_port) == (21, 12, 3)


def test_a_flag_that_was_not_given_hides_nothing() -> None:
    config = server_config({"port": 1}, {}, {"port": None, "development": False})

    assert config.port == 1


def test_the_environment_is_text_and_becomes_what_the_setting_is() -> None:
    environment = {"SHOAL_DRAIN_TIMEOUT": "2.5", "SHOAL_DEVELOPMENT": "true", "SHOAL_PAGE": "0", "SHOAL_HOST": "::1"}
    config = server_config({}, environment, {})

    assert (config.drain_timeout, config.development, config.page, config.host) == (2.5, True, False, "::1")


def test_other_variables_of_the_environment_are_not_settings() -> None:
    assert server_config({}, {"PORT": "1", "HOME": "/root", "SHOALPORT": "2"}, {}) == ServerConfig()


def test_the_models_of_a_file_are_no_setting_of_the_server() -> None:
    assert server(models={"m": {"path": "m.py"}}) == ServerConfig()


# -- files ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("s.toml", 'port = 9\n[models.m]\npath = "m.py"\n'),
        ("s.yaml", "port: 9\nmodels:\n  m:\n    path: m.py\n"),
        ("s.YML", "port: 9\nmodels: {m: {path: m.py}}\n"),
        ("s.json", json.dumps({"port": 9, "models": {"m": {"path": "m.py"}}})),
    ],
)
def test_a_file_is_toml_yaml_or_json(tmp_path: Path, name: str, text: str) -> None:
    assert read_file(write(tmp_path, name, text)) == {"port": 9, "models": {"m": {"path": "m.py"}}}


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("s.toml", "port = ", "s.toml: "),
        ("s.yaml", "port: [", "s.yaml: "),
        ("s.json", "{", "s.json: "),
        ("s.yaml", "", "expected settings by name, got NoneType"),
        ("s.json", "[1]", "expected settings by name, got list"),
        ("s.ini", "port=1", "are .toml, .yaml or .json, not .ini"),
        ("settings", "port=1", "not a file without ending"),
    ],
)
def test_a_file_that_cannot_be_understood_is_named_and_the_reason_told(
    tmp_path: Path, name: str, text: str, says: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        read_file(write(tmp_path, name, text))
    assert name in str(refused.value)
    assert says in str(refused.value)


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_bytes(b"\xff\xfe\x00")

    with pytest.raises(ConfigError, match=r"s\.toml"):
        read_file(str(tmp_path / "s.toml"))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*gone\.toml: No such file"):
        read_file(str(tmp_path / "gone.toml"))


def test_yaml_makes_no_objects(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        read_file(write(tmp_path, "s.yaml", "port: !!python/object/apply:os.getpid []"))


# -- names ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "near"), [("prt", "port"), ("managment_port", "management_port"), ("max_conections", "max_connections")]
)
def test_an_unknown_key_is_refused_with_the_nearest_name(key: str, near: str) -> None:
    with pytest.raises(ConfigError, match=f"settings: unknown key '{key}'; did you mean '{near}'?"):
        server(**{key: 1})


def test_an_unknown_key_unlike_any_is_refused_with_all_names() -> None:
    with pytest.raises(
        ConfigError, match=r"unknown key 'zzz'; known are: allowed_urls, async_logging, body_memory, certificate_file"
    ):
        server(zzz=1)


def test_an_unknown_flag_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown key 'ports'"):
        server_config({}, {}, {"ports": 1})


def test_an_unknown_key_inside_a_section_is_refused_with_its_place() -> None:
    with pytest.raises(ConfigError, match=r"models\.m\.batching: unknown key 'batch_sise'; did you mean 'batch_size'?"):
        model(batching={"batch_sise": 4})
    with pytest.raises(ConfigError, match=r"models\.m\.micro_batching: unknown key 'size'"):
        model(micro_batching={"size": 4})


def test_a_key_that_is_no_text_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown key 7"):
        model_config({7: 1}, "models.m")  # type: ignore[dict-item]  # as a YAML file may have it


# -- values --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"port": "abc"}, "settings: Expected `int`, got `str` - at `port`"),
        ({"port": 70_000}, "port must be between 0 and 65535 (0: any free one, -1: none), got 70000"),
        ({"metrics_port": -2}, "metrics_port must be between 0 and 65535"),
        ({"log_level": "loud"}, "at `log_level`; it is one of: debug, error, info, warning"),
        ({"log_format": "xml"}, "it is one of: json, plain"),
        ({"development": "perhaps"}, "Expected `bool`, got `str` - at `development`"),
        ({"max_request_size": 0}, "max_request_size is in bytes and must be above 0, got 0"),
        ({"max_connections": 0}, "max_connections must be 1 or more, got 0"),
        ({"shared_memory": -1}, "shared_memory is in bytes and must be 0 or more, got -1"),
        ({"body_memory": -1}, "body_memory is in bytes and must be 0 or more, got -1"),
        ({"idle_timeout": 0}, "idle_timeout is in seconds and must be above 0, got 0"),
        ({"idle_timeout": math.inf}, "idle_timeout is in seconds"),
        ({"drain_timeout": -1}, "drain_timeout is in seconds and must be 0 or more, got -1"),
        ({"drain_timeout": math.nan}, "drain_timeout is in seconds"),
        ({"shutdown_delay": -1}, "shutdown_delay is in seconds and must be 0 or more, got -1"),
        ({"host": "0.0.0.0", "port": 8081}, "give it a port of its own"),
        ({"metrics_host": "0.0.0.0", "metrics_port": 8081}, "set management_host to the host of metrics"),
        ({"metrics_host": "0.0.0.0", "metrics_port": 8080}, "port and metrics_port are both 8080, but on 127.0.0.1"),
        ({"metric_time_interval": 0}, "metric_time_interval is in seconds and must be above 0, got 0"),
        ({"unregister_timeout": -1}, "unregister_timeout is in seconds and must be 0 or more, got -1"),
        ({"grpc_max_connection_age": math.nan}, "grpc_max_connection_age is in seconds"),
    ],
)
def test_a_bad_value_of_the_server_says_what_is_right(values: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        server(**values)
    assert says in str(refused.value)
    assert "$" not in str(refused.value)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"name": ""}, "a model's name is made of letters, digits"),
        ({"name": "../m"}, "a model's name is made of letters, digits"),
        ({"name": ".m"}, "a model's name is made of letters, digits"),
        ({"name": "a b"}, "got 'a b'"),
        ({"version": "1/0"}, "a version is made of letters, digits"),
        ({"workers": -1}, "workers must be 0 or more, got -1"),
        ({"instances": 0}, "instances must be 1 or more, got 0"),
        ({"queue_size": 0}, "queue_size must be 1 or more, got 0"),
        ({"max_attempts": 0}, "max_attempts must be 1 or more, got 0"),
        ({"response_timeout": 0}, "response_timeout is in seconds and must be above 0, got 0"),
        ({"startup_timeout": -3}, "startup_timeout is in seconds and must be above 0, got -3"),
        ({"response_timeout": math.nan}, "response_timeout is in seconds and must be above 0, got nan"),
        ({"startup_timeout": math.inf}, "startup_timeout is in seconds"),
        ({"request_timeout": -1}, "request_timeout is in seconds and must be 0 or more, got -1"),
        ({"request_timeout": math.nan}, "request_timeout is in seconds"),
        ({"poison_for": -1}, "poison_for is in seconds and must be 0 or more, got -1"),
        ({"poison_after": -1}, "poison_after must be 0 or more, got -1"),
        ({"client_share": 0}, "client_share is a part of the queue, above 0 and at most 1, got 0"),
        ({"client_share": 1.5}, "client_share is a part of the queue, above 0 and at most 1, got 1.5"),
        ({"canary": {"weight": 0}}, "canary.weight is in percent, above 0 and at most 100, got 0"),
        ({"canary": {"weight": 101}}, "canary.weight is in percent, above 0 and at most 100, got 101"),
        ({"canary": {"min_requests": 0}}, "canary.min_requests must be 1 or more, got 0"),
        ({"canary": {"max_errors": -1}}, "canary.max_errors is in percentage points, 0 to 100, got -1"),
        ({"canary": {"max_slowdown": 0.5}}, "canary.max_slowdown must be 1 or more, or 0 for any, got 0.5"),
        ({"canary": {"window": 0.5}}, "canary.window is in seconds, 1 to 86400, got 0.5"),
        ({"recycle": {"requests": -1}}, "recycle.requests must be 0 or more, got -1"),
        ({"recycle": {"memory": -1}}, "recycle.memory must be 0 or more, got -1"),
        ({"recycle": {"device_memory": -1}}, "recycle.device_memory must be 0 or more, got -1"),
        ({"recycle": {"age": math.inf}}, "recycle.age is in seconds and must be 0 or more, got inf"),
        ({"batching": {"batch_size": -1}}, "batch_size must be between 1 and 65536, got -1 - at `batching`"),
        ({"batching": {"batch_size": 65537}}, "batch_size must be between 1 and 65536"),
        ({"batching": {"max_batch_delay": -1}}, "max_batch_delay is in milliseconds"),
        ({"batching": {"max_batch_delay": math.nan}}, "max_batch_delay is in milliseconds"),
        ({"batching": {"policy": "magic"}}, "at `batching.policy`; it is one of: adaptive, fixed, single"),
        ({"batching": 3}, "Expected `object`, got `int` - at `batching`"),
        ({"micro_batching": {"micro_batch_size": -1}}, "micro_batch_size must be 1 or more"),
        ({"micro_batching": {"parallelism": {"inference": 0}}}, "parallelism.inference must be between 1 and 256"),
        ({"micro_batching": {"parallelism": {"infer": 2}}}, "it is one of: inference, postprocess, preprocess"),
        ({"path": 3}, "Expected `str`, got `int` - at `path`"),
    ],
)
def test_a_bad_value_of_a_model_says_where_and_what_is_right(values: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        model(**values)
    assert str(refused.value).startswith("models.m: ")
    assert says in str(refused.value)
    assert "$" not in str(refused.value)


def test_a_model_needs_a_name_and_a_path() -> None:
    with pytest.raises(ConfigError, match="missing required field `path`"):
        model_config({"name": "m"}, "models.m")


def test_the_edges_of_what_is_allowed_are_allowed() -> None:
    config = model(workers=0, request_timeout=0, batching={"batch_size": 65536, "max_batch_delay": 0})
    assert (config.workers, config.batching.batch_size) == (0, 65536)

    assert server(port=0, drain_timeout=0, shared_memory=0, management_port=65535).port == 0


def test_management_may_share_a_port_when_it_shares_the_host() -> None:
    assert server(port=9000, management_port=9000).management_port == 9000
    both = {"host": "0.0.0.0", "management_host": "0.0.0.0", "port": 9000, "management_port": 9000}
    assert server(**both, token_authorization=True).port == 9000


def test_a_model_section_is_read_whole() -> None:
    config = model(
        version="2.0",
        batching={"batch_size": "8", "max_batch_delay": "5"},
        micro_batching={"micro_batch_size": 2, "parallelism": {"preprocess": 4}},
        parameters={"depth": [1, {"a": None}]},
        environment={"OMP_NUM_THREADS": "1"},
    )

    assert config.batching == Batching(batch_size=8, max_batch_delay=5.0)
    assert config.micro_batching.parallelism == {"preprocess": 4}
    assert config.parameters == {"depth": [1, {"a": None}]}


@pytest.mark.parametrize(
    ("values", "rule"),
    [
        ({}, "adaptive"),
        ({"batch_size": 4}, "fixed"),
        ({"batch_size": 4, "policy": "adaptive"}, "adaptive"),
        ({"policy": "single"}, "single"),
        ({"policy": "fixed"}, "fixed"),
    ],
)
def test_a_batch_size_alone_means_the_fixed_rule_and_nothing_means_adaptive(values: dict[str, Any], rule: str) -> None:
    assert model(batching=values).batching.rule == rule


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        server().port = 1  # type: ignore[misc]  # the point


def test_a_misspelt_setting_in_the_environment_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match=r"SHOAL_.*unknown key 'prot'; did you mean 'port'"):
        server_config({}, {"SHOAL_PROT": "80"}, {})


@pytest.mark.parametrize("frontends", [0, -1, 65])
def test_a_number_of_front_processes_that_cannot_be_is_refused(frontends: int) -> None:
    with pytest.raises(ConfigError, match=f"frontends must be between 1 and 64, got {frontends}"):
        server_config({"frontends": frontends}, {}, {})


def test_another_server_s_settings_take_the_front_processes_from_the_environment() -> None:
    triton = server_config({"compat": "triton", "port": 8000}, {}, {})

    assert with_own_settings(triton, {"HOME": "/"}) is triton
    assert with_own_settings(triton, {"SHOAL_FRONTENDS": "3"}) == server_config(
        {"compat": "triton", "port": 8000, "frontends": 3}, {}, {}
    )
    with pytest.raises(ConfigError, match="SHOAL_"):
        with_own_settings(triton, {"SHOAL_FRONTENDS": "many"})

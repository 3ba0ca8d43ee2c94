"""TorchServe's settings (config.properties, `TS_*` variables, flags) turned into a Deployment."""

import json
from collections.abc import Mapping
from typing import Any

from shoal.config.address import addresses, listening
from shoal.config.deployment import Defaults, Deployment
from shoal.config.devices import Machine
from shoal.config.devices import machine as look
from shoal.config.load import convert, server_config
from shoal.config.snapshot import read_snapshot
from shoal.config.upstream import certificate, effective, shared_defaults, shared_settings, startup, variables
from shoal.config.values import Values
from shoal.errors import ConfigError

NO_SEQUENCES = "requests that must meet the same worker (sequence batching) are not served"
NO_CPP = "there are no C++ workers here"
WITHOUT_EFFECT = {
    "cpp_log_config": NO_CPP,
    "cpu_launcher_enable": "workers are started without Intel's launcher; set their CPU affinity and threads outside",
    "cpu_launcher_args": "workers are started without Intel's launcher; set their CPU affinity and threads outside",
    "system_metrics_cmd": "the server reads CPU, memory, disk and GPUs itself",
    "initial_distribution_port": "models spread over several processes (torchrun) are not served",
    "ts_header_key_sequence_id": NO_SEQUENCES,
    "ts_header_key_sequence_start": NO_SEQUENCES,
    "ts_header_key_sequence_end": NO_SEQUENCES,
}
WRITTEN_BY_ITSELF = {"version", "python", "tsConfigFile"}  # in the snapshots of upstream
BY_VARIABLE = (
    "debug inference_address management_address metrics_address load_models blacklist_env_vars "
    "default_workers_per_model default_response_timeout default_startup_timeout unregister_model_timeout "
    "number_of_netty_threads netty_client_threads job_queue_size number_of_gpu metrics_config metrics_mode "
    "model_metrics_auto_detect disable_system_metrics ipex_enable cpu_launcher_enable cpu_launcher_args "
    "ipex_gpu_enable async_logging cors_allowed_origin cors_allowed_methods cors_allowed_headers decode_input_request "
    "keystore keystore_pass keystore_type certificate_file private_key_file max_request_size max_response_size "
    "limit_max_image_pixels default_service_handler service_envelope model_server_home model_store "
    "prefer_direct_buffer allowed_urls install_py_dep_per_model enable_metrics_api grpc_inference_address "
    "grpc_management_address grpc_inference_port grpc_management_port grpc_inference_max_connection_age_ms "
    "grpc_management_max_connection_age_ms grpc_inference_max_connection_age_grace_ms "
    "grpc_management_max_connection_age_grace_ms enable_grpc_ssl initial_worker_port initial_distribution_port "
    "workflow_store cpp_log_config ts_open_inference_protocol ts_header_key_sequence_id ts_header_key_sequence_start "
    "ts_header_key_sequence_end disable_token_authorization enable_model_api token_expiration_min"
)
VARIABLES = variables("TS_", BY_VARIABLE.split(), {"TS_TOKEN_EXPIRATION_TIME_MIN": "token_expiration_min"})
ENVELOPES = ("body", "json", "kserve", "kservev2")
TUNED = ("minWorkers", "maxWorkers", "batchSize", "maxBatchDelay", "responseTimeout", "startupTimeout")


def properties(file: Mapping[str, str], environment: Mapping[str, str], flags: Mapping[str, str]) -> dict[str, str]:
    """Give the properties that hold: file < flags < `TS_*`, the last where the file says enable_envvars_config."""
    return effective(file, environment, flags, VARIABLES)


def deployment(
    file: Mapping[str, str],
    environment: Mapping[str, str],
    flags: Mapping[str, str],
    *,
    machine: Machine | None = None,
    keep_snapshots: bool = True,
    own_certificate: tuple[str, str] | None = None,
) -> Deployment:
    """Turn everything TorchServe can be told into what starts a server. Flags are given by the key they stand for.

    `own_certificate` (a certificate and its key) is used where TLS is asked for and nothing is named to do it with.
    """
    held = properties(file, environment, flags)
    values = Values(held)
    logs = environment.get("LOG_LOCATION") or "logs"
    store = values.text("model_store")
    server = _server(values, environment, logs, own_certificate)
    defaults = _defaults(values, environment, machine or look(environment))
    models, tuned, snapshot = startup(values), tuning(values.text("models")), values.text("model_snapshot")
    workflow_store = values.text("workflow_store", store)
    for key in ("enable_envvars_config", "use_env_allowed_urls"):
        values.switch(key, False)
    values.note_unknown("TorchServe", WRITTEN_BY_ITSELF)
    if models and snapshot:
        values.notes.append("load_models has no effect: the models of the snapshot are restored instead")
    return Deployment(
        server=server_config(server, environment, {}),
        defaults=convert(Defaults, defaults, "settings"),
        startup=models,
        tuning=tuned,
        snapshot=read_snapshot(snapshot, store) if snapshot else None,
        workflow_store=workflow_store,
        properties=held,
        snapshots=f"{logs}/config" if keep_snapshots else "",
        notes=values.notes,
    )


def tuning(text: str) -> dict[str, dict[str, dict[str, Any]]]:
    """Read `models`: settings by model and version. Numbers that are not above 0 are left out, as upstream does."""
    if not text:
        return {}
    try:
        models = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"models is not JSON: {error}") from None
    shape = 'expected {"name": {"version": {"minWorkers": 1, ...}}}'
    if not isinstance(models, dict):
        raise ConfigError(f"models: {shape}, got {type(models).__name__}")
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for name, versions in models.items():
        if not isinstance(versions, dict) or not all(isinstance(settings, dict) for settings in versions.values()):
            raise ConfigError(f"models: {shape}, got {versions!r} for {name!r}")
        found[name] = {version: _tuned(settings, f"{name} {version}") for version, settings in versions.items()}
    return found


def _tuned(settings: Mapping[str, Any], where: str) -> dict[str, Any]:
    kept = dict(settings)
    for key in TUNED:
        if key not in kept:
            continue
        try:
            kept[key] = int(kept[key])
        except (TypeError, ValueError, OverflowError):
            raise ConfigError(f"models: {key} of {where} must be a whole number, got {kept[key]!r}") from None
        if kept[key] <= 0:
            del kept[key]
    return kept


def _server(
    values: Values, environment: Mapping[str, str], logs: str, own_certificate: tuple[str, str] | None
) -> dict[str, Any]:
    has_metrics = values.switch("enable_metrics_api", True)
    found = addresses(values, ("inference", "management", "metrics"))
    if not has_metrics:
        found.pop("metrics")
    listeners = listening(found)
    grpc_tls = values.switch("enable_grpc_ssl", False)
    values.without_effect(WITHOUT_EFFECT)
    return {
        **shared_settings(values),
        **listeners,
        **certificate(values, own_certificate, is_wanted=bool(listeners["tls_on"]) or grpc_tls),
        **_grpc(values),
        "grpc_tls": grpc_tls,
        "compat": "torchserve",
        "open_inference": values.switch("ts_open_inference_protocol", False)
        or environment.get("TS_OPEN_INFERENCE_PROTOCOL", "").lower() == "oip",
        "model_api": values.switch("enable_model_api", False),
        "token_authorization": not values.switch("disable_token_authorization", False),
        "token_expiration": values.number("token_expiration_min", 60.0),
        "allowed_urls": values.words("allowed_urls", "file://.*|http(s)?://.*"),
        "log_location": logs,
        "metrics_location": environment.get("METRICS_LOCATION") or "logs",
        "metrics_mode": values.choice("metrics_mode", "log", ("log", "prometheus", "legacy")),
        "metrics_config": values.text("metrics_config"),
        "model_metrics_auto_detect": values.switch("model_metrics_auto_detect", False),
        "enable_metrics_api": has_metrics,
        "disable_system_metrics": values.switch("disable_system_metrics", False),
    }


def _grpc(values: Values) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for name, prefix, port in (("inference", "grpc_", 7070), ("management", "grpc_management_", 7071)):
        settings[f"{prefix}host"] = values.text(f"grpc_{name}_address", "127.0.0.1").strip("[]")
        settings[f"{prefix}port"] = values.whole(f"grpc_{name}_port", port)
        for key in ("max_connection_age", "max_connection_age_grace"):
            settings[f"{prefix}{key}"] = values.number(f"grpc_{name}_{key}_ms", 0.0) / 1000
    return settings


def _defaults(values: Values, environment: Mapping[str, str], machine: Machine) -> dict[str, Any]:
    intel = {f"TS_{key.upper()}": "true" for key in ("ipex_enable", "ipex_gpu_enable") if values.switch(key, False)}
    return {
        **shared_defaults(values, environment, machine),
        "flavour": "torchserve",
        "response_timeout": values.number("default_response_timeout", 120.0),
        "startup_timeout": values.number("default_startup_timeout", 120.0),
        "envelope": values.choice("service_envelope", "", ENVELOPES),
        "limit_image_pixels": values.switch("limit_max_image_pixels", True),
        "install_requirements": values.switch("install_py_dep_per_model", False),
        "first_worker_id": values.whole("initial_worker_port", 9000),
        "environment": intel,
    }

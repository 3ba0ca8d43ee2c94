"""Multi Model Server's settings (config.properties, `MMS_*` variables, flags) turned into a Deployment."""

from collections.abc import Mapping
from typing import Any

from shoal.config.address import addresses, listening
from shoal.config.deployment import Defaults, Deployment
from shoal.config.devices import Machine
from shoal.config.devices import machine as look
from shoal.config.load import convert, server_config
from shoal.config.upstream import certificate, effective, shared_defaults, shared_settings, startup, variables
from shoal.config.values import Values

SAGEMAKER = {
    "model_store": "$$SAGEMAKER_MODEL_STORE$$",
    "inference_address": "http://0.0.0.0:$$SAGEMAKER_BIND_TO_PORT$$",
    "management_address": "http://0.0.0.0:$$SAGEMAKER_BIND_TO_PORT$$",
    "default_response_timeout": "$$SAGEMAKER_RESPONSE_TIMEOUT$$",
    "unregister_model_timeout": "$$SAGEMAKER_RESPONSE_TIMEOUT$$",
    "default_workers_per_model": "$$SAGEMAKER_NUM_MODEL_WORKERS$$",
    "default_service_handler": "$$SAGEMAKER_HANDLER$$",
    "max_response_size": "$$SAGEMAKER_MAX_RESPONSE_SIZE$$",
    "max_request_size": "$$SAGEMAKER_MAX_REQUEST_SIZE$$",
    "decode_input_request": "false",
    "async_logging": "true",
}  # what `--mms-config sagemaker` stands for
WITHOUT_EFFECT = {"preload_model": "each worker loads its own copy of the model"}
BY_VARIABLE = (
    "debug inference_address management_address load_models blacklist_env_vars default_workers_per_model "
    "default_response_timeout default_response_timeout_seconds unregister_model_timeout number_of_netty_threads "
    "netty_client_threads job_queue_size number_of_gpu async_logging cors_allowed_origin cors_allowed_methods "
    "cors_allowed_headers decode_input_request keystore keystore_pass keystore_type certificate_file "
    "private_key_file max_request_size max_response_size default_service_handler preload_model model_store "
    "prefer_direct_buffer"
)
VARIABLES = variables("MMS_", BY_VARIABLE.split(), {})


def properties(file: Mapping[str, str], environment: Mapping[str, str], flags: Mapping[str, str]) -> dict[str, str]:
    """Give the properties that hold: file < flags < `MMS_*`, the last where the file says enable_envvars_config."""
    return effective(file, environment, flags, VARIABLES)


def deployment(
    file: Mapping[str, str],
    environment: Mapping[str, str],
    flags: Mapping[str, str],
    *,
    machine: Machine | None = None,
    own_certificate: tuple[str, str] | None = None,
) -> Deployment:
    """Turn everything MMS can be told into what starts a server. Flags are given by the key they stand for.

    `own_certificate` (a certificate and its key) is used where TLS is asked for and nothing is named to do it with.
    """
    held = properties(file, environment, flags)
    values = Values(held)
    server = _server(values, environment, own_certificate)
    defaults = {
        **shared_defaults(values, environment, machine or look(environment)),
        "flavour": "mms",
        "response_timeout": _response_timeout(values),
    }
    models = startup(values)
    values.switch("enable_envvars_config", False)
    values.note_unknown("Multi Model Server")
    return Deployment(
        server=server_config(server, environment, {}),
        defaults=convert(Defaults, defaults, "settings"),
        startup=models,
        properties=held,
        notes=values.notes,
    )


def _server(values: Values, environment: Mapping[str, str], own_certificate: tuple[str, str] | None) -> dict[str, Any]:
    listeners = listening(addresses(values, ("inference", "management")))
    values.without_effect(WITHOUT_EFFECT)
    return {
        **shared_settings(values),
        **listeners,
        **certificate(values, own_certificate, is_wanted=bool(listeners["tls_on"])),
        "compat": "mms",
        "allowed_urls": ["http(s)?://.*"],
        "log_location": environment.get("LOG_LOCATION") or "logs",
        "metrics_location": environment.get("METRICS_LOCATION") or "logs",
        "metrics_mode": "log",
        "enable_metrics_api": False,
        "disable_system_metrics": False,
    }


def _response_timeout(values: Values) -> float:
    """Seconds where they are given as such; the older key counts minutes."""
    minutes = values.number("default_response_timeout", 120.0)
    return values.number("default_response_timeout_seconds", minutes * 60)

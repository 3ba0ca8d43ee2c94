"""What TorchServe and MMS have in common: where a value comes from, and the keys that mean the same to both."""

from collections.abc import Collection, Mapping
from typing import Any

from shoal.config.devices import Machine
from shoal.config.properties import replace_variables
from shoal.config.values import Values
from shoal.errors import ConfigError

NO_JVM = "there is no JVM here"
NO_NETTY = "one event loop serves every connection"
WITHOUT_EFFECT = {
    "number_of_netty_threads": NO_NETTY,
    "netty_client_threads": NO_NETTY,
    "prefer_direct_buffer": NO_JVM,
    "use_native_io": NO_JVM,
    "io_ratio": NO_JVM,
    "vmargs": NO_JVM,
    "plugins_path": "plug-ins are Java classes, and there is no JVM here",
    "debug": "workers are always started by the server, with their time-outs",
    "model_server_home": "the server finds its own files",
}


def effective(
    file: Mapping[str, str],
    environment: Mapping[str, str],
    flags: Mapping[str, str],
    variables: Mapping[str, str],
) -> dict[str, str]:
    """Put the layers together: file < flags < environment, the last only where the file allows it.

    `variables` gives the key of each variable that is looked at.
    """
    values = {**replace_variables(file, environment), **flags}
    if is_true(values.get("enable_envvars_config")):
        may_set_urls = is_true(values.get("use_env_allowed_urls"))
        for variable, key in variables.items():
            if variable in environment and (key != "allowed_urls" or may_set_urls):
                values[key] = environment[variable]
    return values


def is_true(text: str | None) -> bool:
    """Say whether a switch is on, in Java's sense."""
    return (text or "").strip().lower() == "true"


def variables(prefix: str, keys: Collection[str], others: Mapping[str, str]) -> dict[str, str]:
    """Name the variable of each key: the prefix and the key in capitals, apart from `others`."""
    named = {(key if key.startswith(prefix.lower()) else f"{prefix}{key}").upper(): key for key in keys}
    return {variable: key for variable, key in named.items() if key not in others.values()} | dict(others)


def shared_settings(values: Values) -> dict[str, Any]:
    """Give the settings of the server that both name alike."""
    values.without_effect(WITHOUT_EFFECT)
    return {
        "model_store": values.text("model_store"),
        "max_request_size": values.whole("max_request_size", 6553500, 1),
        "unregister_timeout": values.number("unregister_model_timeout", 120.0),
        "async_logging": values.switch("async_logging", False),
        "metric_time_interval": values.number("metric_time_interval", 60.0),
        "cors_origin": values.text("cors_allowed_origin"),
        "cors_methods": values.text("cors_allowed_methods"),
        "cors_headers": values.text("cors_allowed_headers"),
    }


def shared_defaults(values: Values, environment: Mapping[str, str], machine: Machine) -> dict[str, Any]:
    """Give what both say about models that say nothing themselves."""
    gpus = min(machine.gpus, values.whole("number_of_gpu", machine.gpus))
    workers = values.whole("default_workers_per_model", 0)
    defaults = {
        "gpus": gpus,
        "registered_workers": workers,
        "startup_workers": workers or gpus or machine.cpus,
        "queue_size": values.whole("job_queue_size", 100, 1),
        "handler": values.text("default_service_handler"),
        "decode_input": values.switch("decode_input_request", True),
        "max_response_size": values.whole("max_response_size", 6553500, 1),
        "hidden_environment": values.text("blacklist_env_vars"),
    }
    return defaults | _container(values, environment, is_fixed=bool(workers))


def _container(values: Values, environment: Mapping[str, str], *, is_fixed: bool) -> dict[str, Any]:
    """Read what containers are told by: BATCH_SIZE, LINGER_MS, and WORKERS where the settings give no number."""
    found: dict[str, Any] = {}
    given = Values({name: environment[name] for name in ("BATCH_SIZE", "LINGER_MS", "WORKERS") if name in environment})
    if size := given.whole("BATCH_SIZE", 0, 1):
        found["batch_size"] = size
        values.notes.append(f"BATCH_SIZE={size} of the environment is the batch size of models that name none")
    if given.text("LINGER_MS"):
        found["max_batch_delay"] = delay = given.whole("LINGER_MS", 0)
        values.notes.append(f"LINGER_MS={delay} of the environment is the batch delay of models that name none")
    if workers := given.whole("WORKERS", 0, 1):
        if is_fixed:
            values.notes.append(f"WORKERS={workers} of the environment gives way to default_workers_per_model")
        else:
            found["startup_workers"] = workers
            values.notes.append(f"WORKERS={workers} of the environment is how many each model starts with")
    return found


def needs_certificate(values: Mapping[str, str]) -> bool:
    """Say whether something is to speak TLS and nothing names a certificate to do it with."""
    names = ("inference_address", "management_address", "metrics_address")
    is_tls = any(values.get(name, "").strip().lower().startswith("https:") for name in names)
    wanted = is_tls or is_true(values.get("enable_grpc_ssl"))
    return wanted and not any(values.get(key) for key in ("certificate_file", "private_key_file", "keystore"))


def certificate(values: Values, own: tuple[str, str] | None, *, is_wanted: bool) -> dict[str, str]:
    """Give the files TLS is done with, our `own` where none are named; a Java key store cannot be read."""
    files = {key: values.text(key) for key in ("certificate_file", "private_key_file")}
    store = values.text("keystore")
    kind = values.text("keystore_type", "PKCS12")
    values.text("keystore_pass")
    if not is_wanted:
        values.without_effect({"keystore": "no address is https"})
        return {}
    if store and not all(files.values()):
        raise ConfigError(
            f"keystore: {store} ({kind}) cannot be read here; export it as PEM and set certificate_file and "
            f"private_key_file: openssl pkcs12 -in {store} -nokeys -out cert.pem; "
            f"openssl pkcs12 -in {store} -nocerts -nodes -out key.pem"
        )
    if store:
        values.without_effect({"keystore": "certificate_file and private_key_file are used"})
    if own is not None and not any(files.values()):
        return {"certificate_file": own[0], "private_key_file": own[1]}
    if not all(files.values()):
        raise ConfigError("an https address needs certificate_file and private_key_file, both in PEM form")
    return files


def startup(values: Values) -> list[tuple[str, str]]:
    """Read `load_models`: `all`, or a list of `[name=]location`."""
    if values.text("load_models").lower() == "all":
        return [("", "all")]
    entries = []
    for word in values.words("load_models"):
        name, equals, location = word.partition("=")
        is_named = equals and not set(name) & set("/:?")  # a location may hold an equals sign of its own
        entries.append((name.strip(), location.strip()) if is_named else ("", word))
    return entries

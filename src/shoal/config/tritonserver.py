"""tritonserver's flags turned into a Deployment."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from shoal.config.deployment import Defaults, Deployment
from shoal.config.devices import Machine
from shoal.config.load import convert, server_config
from shoal.config.triton import RateResource, Restriction, TritonSettings
from shoal.config.values import Values
from shoal.errors import ConfigError

AGAIN = (  # flags that may be given again and again
    "model-repository model-store load-model backend-config cache-config metrics-config trace-config host-policy "
    "rate-limit-resource http-restricted-api grpc-restricted-protocol model-load-gpu-limit "
    "cuda-memory-pool-byte-size cuda-virtual-address-size"
)
ONCE = (
    "id exit-timeout-secs log-verbose log-info exit-on-error "
    "strict-readiness model-control-mode repository-poll-secs model-config-name model-load-thread-count "
    "strict-model-config allow-http http-address http-port http-header-forward-pattern http-max-input-size "
    "allow-grpc grpc-address grpc-port grpc-header-forward-pattern grpc-use-ssl grpc-use-ssl-mutual "
    "grpc-server-cert grpc-server-key grpc-root-cert grpc-max-connection-age grpc-max-connection-age-grace "
    "allow-metrics allow-gpu-metrics allow-cpu-metrics metrics-address metrics-port metrics-interval-ms "
    "rate-limit response-cache-byte-size allow-client-shm"
)
BARE = ("disable-auto-complete-config", "help", "version")
ONE_LOOP = "one event loop serves every connection"
OWN_BACKENDS = "backends are part of the server"
OWN_MEMORY = "memory is taken as it is needed"
KEEPALIVE = "connections are kept alive by the system's own rules"
NO_TRACE = "traces are not written"
WITHOUT_EFFECT = {
    "http-thread-count": ONE_LOOP,
    "grpc-infer-thread-count": ONE_LOOP,
    "grpc-infer-allocation-pool-size": OWN_MEMORY,
    "grpc-infer-response-compression-level": "answers are not compressed",
    "reuse-http-port": "a port is listened on by one server",
    "reuse-grpc-port": "a port is listened on by one server",
    "grpc-keepalive-time": KEEPALIVE,
    "grpc-keepalive-timeout": KEEPALIVE,
    "grpc-keepalive-permit-without-calls": KEEPALIVE,
    "grpc-http2-max-pings-without-data": KEEPALIVE,
    "grpc-http2-min-recv-ping-interval-without-data": KEEPALIVE,
    "grpc-http2-max-ping-strikes": KEEPALIVE,
    "backend-directory": OWN_BACKENDS,
    "repoagent-directory": "there are no repository agents",
    "cache-directory": "the cache is part of the server",
    "model-load-retry-count": "a failed load is not tried again",
    "model-load-gpu-limit": OWN_MEMORY,
    "enable-peer-access": "tensors do not go from GPU to GPU",
    "pinned-memory-pool-byte-size": OWN_MEMORY,
    "cuda-memory-pool-byte-size": OWN_MEMORY,
    "cuda-virtual-address-size": OWN_MEMORY,
    "min-supported-compute-capability": "the frameworks know what GPUs they can use",
    "buffer-manager-thread-count": ONE_LOOP,
    "host-policy": "set CPU affinity outside",
    "trace-config": NO_TRACE,
    "trace-file": NO_TRACE,
    "trace-level": NO_TRACE,
    "trace-rate": NO_TRACE,
    "trace-count": NO_TRACE,
    "trace-log-frequency": NO_TRACE,
    "log-file": "logs go to standard error; redirect them",
    "log-format": "logs have the server's own form",
    "log-warning": "set --log-info",
    "log-error": "errors are always logged",
    "allow-gpu-metrics": "metrics of the machine follow --allow-cpu-metrics",
}
REFUSED = {
    "allow-sagemaker": "SageMaker's routes are not served",
    "allow-vertex-ai": "Vertex AI's routes are not served",
    "model-namespacing": "models are known by their names alone",
    "grpc-use-ssl-mutual": "certificates of clients are not asked for",
}
IGNORED_WITH = {"sagemaker-": "allow-sagemaker", "vertex-ai-": "allow-vertex-ai"}  # mean nothing without those
MANY = frozenset(AGAIN.split())
KNOWN = {*MANY, *ONCE.split(), *BARE, *WITHOUT_EFFECT, *REFUSED}
INPUT_LIMIT = 64 * 2**20  # bytes
APIS = (
    *("health", "metadata", "inference", "shared-memory", "model-config"),
    *("model-repository", "statistics", "trace", "logging"),
)


def parse(arguments: Sequence[str]) -> dict[str, list[str]]:
    """Read `--flag=value` and `--flag value`; the values of each flag, in order."""
    flags: dict[str, list[str]] = {}
    words = iter(arguments)
    for word in words:
        if not word.startswith("--") or word == "--":
            raise ConfigError(f"expected a flag that begins with --, got {word!r}")
        name, equals, value = word[2:].partition("=")
        name = name.replace("_", "-")
        if name not in KNOWN and not name.startswith(tuple(IGNORED_WITH)):
            near = get_close_matches(name, KNOWN, n=1, cutoff=0.6)
            hint = f"did you mean --{near[0]}?" if near else "tritonserver has no such flag"
            raise ConfigError(f"unknown flag --{name}; {hint}")
        if name in BARE:
            if equals and not _true(f"--{name}", value):
                continue
        elif not equals:
            value = next(words, "")
            if not value:
                raise ConfigError(f"--{name} must be followed by a value")
        if name in flags and name not in MANY and name not in WITHOUT_EFFECT:
            raise ConfigError(f"--{name} is given more than once")
        flags.setdefault(name, []).append(value)
    return flags


def deployment(flags: Mapping[str, Sequence[str]], environment: Mapping[str, str], machine: Machine) -> Deployment:
    """Turn the flags into what starts a server."""
    repositories = [*flags.get("model-repository", ()), *flags.get("model-store", ())]
    if not repositories:
        raise ConfigError("at least one --model-repository must be given")
    for path in repositories:
        if "://" in path:
            raise ConfigError(f"--model-repository {path}: repositories are local folders; copy or mount it")
    values = _Flags(flags)
    for name, why in REFUSED.items():
        if values.switch(f"--{name}", False):
            raise ConfigError(f"--{name} cannot be used: {why}")
    values.without_effect({f"--{name}": why for name, why in WITHOUT_EFFECT.items()})
    server = _server(values)
    triton = convert(TritonSettings, _triton(values, repositories, machine), "flags")
    return Deployment(
        server=server_config(server, environment, {}),
        defaults=Defaults(gpus=machine.gpus),
        triton=triton,
        notes=values.notes,
    )


class _Flags(Values):
    """Flags by name, typed."""

    def __init__(self, flags: Mapping[str, Sequence[str]]) -> None:
        super().__init__({f"--{name}": given[-1] for name, given in flags.items() if given})
        self.many = flags

    def switch(self, key: str, default: bool) -> bool:
        """Give true or false; other words are refused."""
        text = self.text(key)
        return _true(key, text) if text else default


def _true(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false", "1", "0"):
        raise ConfigError(f"{name} must be true or false, got {text!r}")
    return text.lower() in ("true", "1")


def _server(values: _Flags) -> dict[str, Any]:
    host = values.text("--http-address", "127.0.0.1")
    if not values.text("--http-address"):
        values.notes.append("HTTP is on loopback only; --http-address=0.0.0.0 opens it to the network")
    if values.switch("--allow-grpc", True) and not values.text("--grpc-address"):
        values.notes.append("gRPC is on loopback only; --grpc-address=0.0.0.0 opens it to the network")
    level = "debug" if values.whole("--log-verbose", 0) else "info" if values.switch("--log-info", True) else "warning"
    metrics = values.switch("--allow-metrics", True)
    return {
        "compat": "triton",
        "host": host,
        "port": _port(values, "http", 8000),
        "grpc_host": values.text("--grpc-address", "127.0.0.1"),
        "grpc_port": _port(values, "grpc", 8001),
        "metrics_host": values.text("--metrics-address", host),
        "metrics_port": _port(values, "metrics", 8002),
        "enable_metrics_api": metrics,
        "disable_system_metrics": not metrics or not values.switch("--allow-cpu-metrics", True),
        "metric_time_interval": values.number("--metrics-interval-ms", 2000.0) / 1000,
        "management_port": -1,
        "max_request_size": values.whole("--http-max-input-size", INPUT_LIMIT, 1),
        "drain_timeout": float(values.whole("--exit-timeout-secs", 30)),
        "grpc_max_connection_age": _milliseconds(values, "--grpc-max-connection-age"),
        "grpc_max_connection_age_grace": _milliseconds(values, "--grpc-max-connection-age-grace"),
        "log_level": level,
        **_tls(values),
    }


def _port(values: _Flags, name: str, default: int) -> int:
    port = values.whole(f"--{name}-port", default)
    if port > 65535:
        raise ConfigError(f"--{name}-port must be between 0 and 65535, got {port}")
    return port if values.switch(f"--allow-{name}", True) else -1


def _milliseconds(values: _Flags, key: str) -> float:
    """Read a time in ms, as seconds; the largest number there is means never, as does 0."""
    milliseconds = values.whole(key, 0)
    return 0.0 if milliseconds >= 2**31 - 1 else milliseconds / 1000


def _tls(values: _Flags) -> dict[str, Any]:
    values.text("--grpc-root-cert")
    files = (values.text("--grpc-server-cert"), values.text("--grpc-server-key"))
    if not values.switch("--grpc-use-ssl", False):
        return {}
    if not all(files):
        raise ConfigError("--grpc-use-ssl needs --grpc-server-cert and --grpc-server-key, both in PEM form")
    return {"grpc_tls": True, "certificate_file": files[0], "private_key_file": files[1], "tls_on": ()}


def _triton(values: _Flags, repositories: Sequence[str], machine: Machine) -> dict[str, Any]:
    mode = values.choice("--model-control-mode", "none", ("none", "poll", "explicit"))
    names = list(values.many.get("load-model", ()))
    if names and mode != "explicit":
        values.notes.append("--load-model has no effect: it is for --model-control-mode=explicit")
    if _all(values, "rate-limit-resource") and values.text("--rate-limit", "off") == "off":
        values.notes.append("--rate-limit-resource has no effect: it is for --rate-limit=execution_count")
    return {
        "repositories": list(repositories),
        "mode": mode,
        "load_models": names,
        "poll_every": float(values.whole("--repository-poll-secs", 15)),
        "exit_on_error": values.switch("--exit-on-error", True),
        "strict_readiness": values.switch("--strict-readiness", True),
        "completes": "disable-auto-complete-config" not in values.many
        and not values.switch("--strict-model-config", False),
        "config_name": values.text("--model-config-name"),
        "loads_at_once": values.whole("--model-load-thread-count", 4, 1),
        "default_max_batch_size": _default_max_batch_size(values),
        "gpus": machine.gpus,
        "id": values.text("--id", "triton"),
        "cache_size": _cache_size(values),
        "client_shared_memory": values.switch("--allow-client-shm", False),
        "http_header_forward": values.text("--http-header-forward-pattern"),
        "grpc_header_forward": values.text("--grpc-header-forward-pattern"),
        "http_restrictions": [
            _restriction(text, "http-restricted-api") for text in _all(values, "http-restricted-api")
        ],
        "grpc_restrictions": [
            _restriction(text, "grpc-restricted-protocol") for text in _all(values, "grpc-restricted-protocol")
        ],
        "rate_limit": values.choice("--rate-limit", "off", ("off", "execution_count")) == "execution_count",
        "rate_resources": [_resource(text) for text in _all(values, "rate-limit-resource")],
        "metrics": dict(_pair(text, "metrics-config") for text in _all(values, "metrics-config")),
    }


def _all(values: _Flags, name: str) -> Sequence[str]:
    return values.many.get(name, ())


def _pair(text: str, name: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise ConfigError(f"--{name} takes KEY=VALUE, got {text!r}")
    return key.strip(), value.strip()


def _named(text: str, name: str) -> tuple[str, str, str]:
    """Read `<owner>,<key>=<value>`; the owner may be left out."""
    owner, comma, rest = text.partition(",")
    key, value = _pair(rest if comma else text, name)
    return (owner.strip() if comma else ""), key, value


def _default_max_batch_size(values: _Flags) -> int:
    """Read what --backend-config says that means anything here; the rest is noted."""
    size = 0
    for text in _all(values, "backend-config"):
        owner, key, value = _named(text, "backend-config")
        if key == "default-max-batch-size" and owner in ("", "onnxruntime"):
            size = _count(value, "--backend-config default-max-batch-size")
        else:
            values.notes.append(f"--backend-config={text} has no effect here")
    return size


def _cache_size(values: _Flags) -> int:
    size = values.whole("--response-cache-byte-size", 0)
    for text in _all(values, "cache-config"):
        owner, key, value = _named(text, "cache-config")
        if owner not in ("", "local"):
            raise ConfigError(f"--cache-config: there is only the cache 'local', got {owner!r}")
        if key != "size":
            raise ConfigError(f"--cache-config: the cache 'local' has only 'size', got {key!r}")
        size = _count(value, "--cache-config size")
    return size


def _count(text: str, what: str) -> int:
    return Values({what: text}).whole(what, 0)


def _restriction(text: str, name: str) -> Restriction:
    words, colon, rest = text.partition(":")
    header, equals, value = rest.partition("=")
    apis = [word.strip() for word in words.split(",") if word.strip()]
    if not colon or not equals or not header.strip() or not apis:
        raise ConfigError(f"--{name} takes API[,API...]:HEADER=VALUE, got {text!r}")
    for api in apis:
        if api not in APIS:
            raise ConfigError(f"--{name}: unknown API {api!r}; known are: {', '.join(APIS)}")
    return Restriction(frozenset(apis), header.strip(), value.strip())


def _resource(text: str) -> RateResource:
    name, _, rest = text.partition(":")
    count, _, device = rest.partition(":")
    if not name or not count.isdecimal() or (device and not device.isdecimal()):
        raise ConfigError(f"--rate-limit-resource takes NAME:COUNT[:DEVICE], got {text!r}")
    return RateResource(name, int(count), int(device) if device else None)

"""ServerConfig: addresses, limits, timeouts. Frozen; unknown keys are refused."""

import math
from typing import Literal

import msgspec

from shoal.config.exposure import open_management
from shoal.config.model import WorkerLimits

MAX_FRONTENDS = 64


class ServerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One server. Loopback unless told otherwise."""

    host: str = "127.0.0.1"
    port: int = 8080  # of this and the two below: 0: any free one, -1: no TCP listener
    management_host: str = "127.0.0.1"  # stays on loopback unless it is named itself
    management_port: int = 8081
    metrics_host: str = ""  # empty: as `host`
    metrics_port: int = 8082
    grpc_host: str = "127.0.0.1"
    grpc_port: int = -1  # -1: no gRPC
    grpc_management_host: str = "127.0.0.1"
    grpc_management_port: int = -1
    grpc_tls: bool = False  # with certificate_file
    grpc_max_connection_age: float = 0.0  # s after which a connection is asked to leave; 0: never
    grpc_max_connection_age_grace: float = 0.0  # s that its calls get to end; 0: as long as they take
    grpc_management_max_connection_age: float = 0.0
    grpc_management_max_connection_age_grace: float = 0.0
    compat: Literal["", "torchserve", "mms", "triton"] = ""  # whose words, defaults and quirks the APIs have
    open_inference: bool = False  # TorchServe's ts_open_inference_protocol
    model_api: bool = True  # models may be registered and removed by clients of the management API
    token_authorization: bool = False  # keys are asked for, TorchServe's way
    token_expiration: float = 60.0  # minutes
    key_file: str = "key_file.json"
    cors_origin: str = ""
    cors_methods: str = ""
    cors_headers: str = ""
    allowed_urls: list[str] = []  # regular expressions, matched whole; archives are fetched from nowhere else
    unix_socket: str = ""  # a path: inference is served there as well
    management_unix_socket: str = ""  # the same for management
    metrics_unix_socket: str = ""
    certificate_file: str = ""  # with private_key_file: the ports of `tls_on` speak TLS
    private_key_file: str = ""
    tls_on: tuple[Literal["inference", "management", "metrics"], ...] = ("inference", "management", "metrics")
    model_store: str = ""  # where `url` and NAME=PATH of models are looked up
    max_request_size: int = 32 * 2**20  # bytes of one body
    max_connections: int = 20_000
    frontends: int = 1  # processes that accept and speak with clients; 1: the server's own
    shared_memory: int = (
        2 * 2**30
    )  # bytes of request bodies in flight kept in shared memory; memory is used when needed
    body_memory: int = 2 * 2**30  # bytes of large request bodies in flight that found no room there; more get 503
    idle_timeout: float = 75.0  # s a connection may be silent between requests
    drain_timeout: float = 30.0  # s that SIGTERM gives to what was admitted
    shutdown_delay: float = 0.0  # s before that: requests are served, but health says that the server is not ready
    unregister_timeout: float = 0.0  # s that the removal of a model gives to what it admitted; 0: as drain_timeout
    development: bool = False  # tracebacks in error bodies
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["plain", "json"] = "plain"
    log_location: str = ""  # a folder for TorchServe's log files; empty: none are written
    metrics_location: str = ""  # the same for its files of metrics
    async_logging: bool = False  # log files are written by a thread of their own
    metrics_mode: Literal["log", "prometheus", "legacy"] = "prometheus"  # where metrics go, TorchServe's words
    metrics_config: str = ""  # TorchServe's YAML of metrics; empty: its default ones
    model_metrics_auto_detect: bool = False  # metrics of handlers that metrics_config does not name are taken too
    enable_metrics_api: bool = True  # /metrics answers
    disable_system_metrics: bool = True  # no CPU, memory, disk and GPU gauges
    metric_time_interval: float = 60.0  # s between two readings of them
    worker_user: str = ""  # that workers run as, of models that name none themselves; the server must be root's
    worker_limits: WorkerLimits = WorkerLimits()  # of workers of models that have none of their own
    page: bool = False  # the demo page at /

    @property
    def removal_timeout(self) -> float:
        """Seconds that the removal of a model gives to what it admitted."""
        return self.unregister_timeout or self.drain_timeout

    def __post_init__(self) -> None:
        for field in ("grpc_port", "grpc_management_port"):
            if not -1 <= getattr(self, field) <= 65535:
                raise ValueError(f"{field} must be between 0 and 65535 (0: any free one, -1: none)")
        if not 0 < self.token_expiration < math.inf:
            raise ValueError(f"token_expiration is in minutes and must be above 0, got {self.token_expiration}")
        for field in ("port", "management_port", "metrics_port"):
            if not -1 <= getattr(self, field) <= 65535:
                raise ValueError(
                    f"{field} must be between 0 and 65535 (0: any free one, -1: none), got {getattr(self, field)}"
                )
        metrics_host = self.metrics_host or self.host
        for name, host, port in (("inference", self.host, self.port), ("metrics", metrics_host, self.metrics_port)):
            if port > 0 and port == self.management_port and host != self.management_host:
                raise ValueError(
                    f"management_port {port} is shared with a listener on {host}, but management belongs on "
                    f"{self.management_host}; give it a port of its own, or set management_host to the host of {name}"
                )
        if self.port > 0 and self.port == self.metrics_port and self.host != metrics_host:
            raise ValueError(
                f"port and metrics_port are both {self.port}, but on {self.host} and {metrics_host}; "
                "give metrics a port of its own, or the same host"
            )
        if self.compat == "" and (found := open_management(self)):
            raise ValueError(
                f"{' and '.join(found)}: other machines could load code into this server without a key; set "
                "token_authorization, which asks for the keys in key_file, or stay on loopback"
            )
        if bool(self.certificate_file) != bool(self.private_key_file):
            raise ValueError(
                "TLS needs certificate_file and private_key_file, both in PEM form; only one of them is set"
            )
        if self.max_request_size < 1:
            raise ValueError(f"max_request_size is in bytes and must be above 0, got {self.max_request_size}")
        if self.max_connections < 1:
            raise ValueError(f"max_connections must be 1 or more, got {self.max_connections}")
        if not 1 <= self.frontends <= MAX_FRONTENDS:
            raise ValueError(f"frontends must be between 1 and {MAX_FRONTENDS}, got {self.frontends}")
        for field in ("shared_memory", "body_memory"):
            if getattr(self, field) < 0:
                raise ValueError(f"{field} is in bytes and must be 0 or more, got {getattr(self, field)}")
        if not 0 < self.idle_timeout < math.inf:
            raise ValueError(f"idle_timeout is in seconds and must be above 0, got {self.idle_timeout}")
        if not 0 < self.metric_time_interval < math.inf:
            raise ValueError(f"metric_time_interval is in seconds and must be above 0, got {self.metric_time_interval}")
        for field in (
            "drain_timeout",
            "shutdown_delay",
            "unregister_timeout",
            *("grpc_max_connection_age", "grpc_max_connection_age_grace"),
            *("grpc_management_max_connection_age", "grpc_management_max_connection_age_grace"),
        ):
            if not 0 <= getattr(self, field) < math.inf:
                raise ValueError(f"{field} is in seconds and must be 0 or more, got {getattr(self, field)}")

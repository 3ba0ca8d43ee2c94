"""ServerConfig: addresses, limits, timeouts. Frozen; unknown keys are refused."""

import math
from typing import Literal

import msgspec


class ServerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One server. Loopback unless told otherwise."""

    host: str = "127.0.0.1"
    port: int = 8080
    management_host: str = "127.0.0.1"  # stays on loopback unless it is named itself
    management_port: int = 8081
    metrics_host: str = ""  # empty: as `host`
    metrics_port: int = 8082
    grpc_host: str = "127.0.0.1"
    grpc_port: int = -1  # -1: no gRPC
    grpc_management_host: str = "127.0.0.1"
    grpc_management_port: int = -1
    grpc_tls: bool = False  # with certificate_file
    compat: Literal["", "torchserve", "mms"] = ""  # whose words, defaults and quirks the APIs have
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
    certificate_file: str = ""  # with private_key_file: every port speaks TLS
    private_key_file: str = ""
    model_store: str = ""  # where `url` and NAME=PATH of models are looked up
    max_request_size: int = 32 * 2**20  # bytes of one body
    max_connections: int = 20_000
    shared_memory: int = (
        2 * 2**30
    )  # bytes of request bodies in flight kept in shared memory; memory is used when needed
    idle_timeout: float = 75.0  # s a connection may be silent between requests
    drain_timeout: float = 30.0  # s that SIGTERM gives to what was admitted
    development: bool = False  # tracebacks in error bodies
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["plain", "json"] = "plain"
    page: bool = False  # the demo page at /

    def __post_init__(self) -> None:
        for field in ("grpc_port", "grpc_management_port"):
            if not -1 <= getattr(self, field) <= 65535:
                raise ValueError(f"{field} must be between 0 and 65535 (0: any free one, -1: none)")
        if not 0 < self.token_expiration < math.inf:
            raise ValueError(f"token_expiration is in minutes and must be above 0, got {self.token_expiration}")
        for field in ("port", "management_port", "metrics_port"):
            if not 0 <= getattr(self, field) <= 65535:
                raise ValueError(f"{field} must be between 0 and 65535 (0: any free one), got {getattr(self, field)}")
        shares = self.management_port and self.management_port in (self.port, self.metrics_port)
        if shares and self.management_host != self.host:
            raise ValueError(
                f"management_port {self.management_port} is shared with a listener on {self.host}, but management "
                f"belongs on {self.management_host}; give it a port of its own, or set management_host to {self.host}"
            )
        if bool(self.certificate_file) != bool(self.private_key_file):
            raise ValueError(
                "TLS needs certificate_file and private_key_file, both in PEM form; only one of them is set"
            )
        if self.max_request_size < 1:
            raise ValueError(f"max_request_size is in bytes and must be above 0, got {self.max_request_size}")
        if self.max_connections < 1:
            raise ValueError(f"max_connections must be 1 or more, got {self.max_connections}")
        if self.shared_memory < 0:
            raise ValueError(f"shared_memory is in bytes and must be 0 or more, got {self.shared_memory}")
        if not 0 < self.idle_timeout < math.inf:
            raise ValueError(f"idle_timeout is in seconds and must be above 0, got {self.idle_timeout}")
        if not 0 <= self.drain_timeout < math.inf:
            raise ValueError(f"drain_timeout is in seconds and must be 0 or more, got {self.drain_timeout}")

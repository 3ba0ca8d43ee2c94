"""Exposure: who could reach the calls that manage a server, and whether these ask for a key."""

import re
from ipaddress import ip_address
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal.config.server import ServerConfig
    from shoal.config.triton import TritonSettings

SOMEWHERE = "https://nobody.invalid/model.mar"
REPOSITORY = "model-repository"  # Triton's word for the calls that load and unload


def is_loopback(host: str) -> bool:
    """Whether a listener bound to this host can be reached from its own machine alone."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def open_management(server: "ServerConfig") -> list[str]:
    """Name the settings that let other machines manage this server without a key."""
    if server.token_authorization:
        return []
    listeners = (
        ("management_host", server.management_host, server.management_port),
        ("grpc_management_host", server.grpc_management_host, server.grpc_management_port),
    )
    return [f"{name} {host}" for name, host, port in listeners if port >= 0 and not is_loopback(host)]


def fetches_anywhere(server: "ServerConfig") -> bool:
    """Whether clients of management may have models fetched from any server there is."""
    return server.model_api and any(re.fullmatch(pattern, SOMEWHERE, re.IGNORECASE) for pattern in server.allowed_urls)


def open_repository(server: "ServerConfig", triton: "TritonSettings") -> list[str]:
    """Name the protocols by which other machines can load and unload models of a Triton repository without a key."""
    if triton.mode != "explicit":
        return []
    listeners = (
        ("HTTP", server.host, server.port, triton.http_restrictions),
        ("gRPC", server.grpc_host, server.grpc_port, triton.grpc_restrictions),
    )
    return [
        name
        for name, host, port, restrictions in listeners
        if port >= 0 and not is_loopback(host) and not any(REPOSITORY in each.apis for each in restrictions)
    ]

"""Address: where a listener of TorchServe or MMS stands: `http://host[:port]`, `https://host[:port]`, `unix:/path`."""

import re
from typing import Literal, NamedTuple

from shoal.config.values import Values
from shoal.errors import ConfigError

PATTERN = re.compile(r"(https?)://(\[[0-9a-f:.%]+\]|[^\s:/\[\]]+)(?::(\d{1,5}))?/?", re.IGNORECASE)
Name = Literal["inference", "management", "metrics"]
PORTS: dict[Name, tuple[int, int]] = {"inference": (80, 443), "management": (8081, 8444), "metrics": (8082, 8445)}


class Address(NamedTuple):
    """A TCP address, or the path of a Unix socket."""

    host: str = ""
    port: int = -1
    is_tls: bool = False
    path: str = ""


def parse_address(text: str, key: str, ports: tuple[int, int]) -> Address:
    """Read an address; `ports` are those of http and https where none is written."""
    if text.lower().startswith("unix:"):
        path = text[5:]
        if not path:
            raise ConfigError(f"{key}: unix: must be followed by the path of a socket, got {text!r}")
        return Address(path=path)
    found = PATTERN.fullmatch(text)
    if found is None:
        raise ConfigError(f"{key} must be http://host[:port], https://host[:port] or unix:/path, got {text!r}")
    is_tls = found[1].lower() == "https"
    port = int(found[3]) if found[3] else ports[is_tls]
    if port > 65535:
        raise ConfigError(f"{key}: a port is between 0 and 65535, got {port}")
    return Address(found[2].strip("[]"), port, is_tls)


def addresses(values: Values, names: tuple[Name, ...]) -> dict[Name, Address]:
    """Read the addresses of several listeners and see that those on one port speak one protocol."""
    found: dict[Name, Address] = {}
    default_port = 8080
    for name in names:
        key = f"{name}_address"
        found[name] = parse_address(values.text(key, f"http://127.0.0.1:{default_port}"), key, PORTS[name])
        default_port += 1
        for other, address in found.items():
            shares = address.port > 0 and address[:2] == found[name][:2]
            if shares and address.is_tls != found[name].is_tls:
                raise ConfigError(f"{other}_address and {key} share port {address.port}, but only one of them is https")
    return found


def listening(found: dict[Name, Address]) -> dict[str, object]:
    """Give the settings of the server that put its listeners there; those not named are not opened."""
    settings: dict[str, object] = {"tls_on": tuple(name for name, address in found.items() if address.is_tls)}
    for name in PORTS:
        address = found.get(name, Address())
        prefix = "" if name == "inference" else f"{name}_"
        if address.host:
            settings[f"{prefix}host"] = address.host
        settings[f"{prefix}port"] = address.port
        settings[f"{prefix}unix_socket"] = address.path
    return settings

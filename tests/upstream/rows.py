"""The words the tables are written in: a row is one thing asked, a run is a server and its rows in order."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

Port = Literal["inference", "management", "metrics"]
Look = Literal["text", "numbers", "openapi", "series", "presence"]
JSON = "application/json"
ALL_READY = r"(?s)\A(?!.*UNLOADING).*READY"  # of a description: every worker has loaded


@dataclass(frozen=True)
class Ask:
    """One HTTP request."""

    method: str
    path: str
    body: bytes | None = None
    headers: tuple[tuple[str, str], ...] = ()
    port: Port = "inference"
    after: float = 0  # seconds behind the first of its row
    raw: bytes = b""  # sent as it is, in place of all the above


@dataclass(frozen=True)
class Call:
    """One gRPC call; `metadata` as in HTTP headers."""

    method: str  # Service/Method
    messages: tuple[dict[str, Any], ...]
    metadata: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Row:
    """What is asked, by name; several asks leave at the same time, and their answers are compared in order."""

    name: str
    asks: tuple[Ask | Call, ...]
    look: Look = "text"  # how the body is compared
    until: str = ""  # ask again until the body has this pattern


@dataclass(frozen=True)
class Run:
    """One server with its settings, and what it is asked in order."""

    name: str
    server: Literal["torchserve", "mms"]
    settings: dict[str, str]
    rows: tuple[Row, ...]
    flags: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)


def ask(
    method: str,
    path: str,
    body: bytes | str | dict[str, Any] | list[Any] | None = None,
    kind: str = "",
    port: Port = "inference",
    after: float = 0,
    headers: Mapping[str, str] = MappingProxyType({}),
) -> Ask:
    """An ask; a dict or list travels as JSON."""
    if isinstance(body, dict | list):
        body, kind = json.dumps(body), kind or JSON
    if isinstance(body, str):
        body = body.encode()
    fields = [("Content-Type", kind)] if kind else []
    fields += headers.items()
    return Ask(method, path, body, tuple(fields), port, after)


def _dashed(headers: dict[str, str]) -> dict[str, str]:
    """Header names given as arguments, with dashes for their underscores."""
    return {name.replace("_", "-"): value for name, value in headers.items()}


def row(name: str, *asks: Ask | Call, look: Look = "text", until: str = "") -> Row:
    """A row from its asks."""
    return Row(name, asks, look, until)


def get(name: str, path: str, look: Look = "text", until: str = "", **headers: str) -> Row:
    """GET on the inference port."""
    return row(name, ask("GET", path, headers=_dashed(headers)), look=look, until=until)


def post(
    name: str,
    path: str,
    body: bytes | str | dict[str, Any] | list[Any] | None = None,
    kind: str = "",
    look: Look = "text",
    **headers: str,
) -> Row:
    """POST on the inference port."""
    return row(name, ask("POST", path, body, kind, headers=_dashed(headers)), look=look)


def do(name: str, path: str, **wanted: Any) -> Row:
    """Let the echo model do something."""
    return post(name, path, {"do": wanted})


def manage(name: str, method: str, path: str, look: Look = "text", until: str = "", **headers: str) -> Row:
    """A call on the management port."""
    return row(name, ask(method, path, port="management", headers=_dashed(headers)), look=look, until=until)


def together(name: str, *asks: Ask, look: Look = "text") -> Row:
    """Asks sent at the same time."""
    return Row(name, asks, look)


def call(name: str, method: str, *messages: dict[str, Any], token: str = "") -> Row:
    """A gRPC call."""
    return row(name, Call(method, messages or ({},), (("authorization", token),) if token else ()))


def multipart(*parts: tuple[str, str, str, bytes], boundary: str = "frontier") -> tuple[bytes, str]:
    """A multipart body and its content type; a part is name, file name, content type (empty: none), bytes."""
    lines = []
    for name, file, kind, data in parts:
        disposition = f'Content-Disposition: form-data; name="{name}"' + (f'; filename="{file}"' if file else "")
        head = f"--{boundary}\r\n{disposition}\r\n" + (f"Content-Type: {kind}\r\n" if kind else "")
        lines.append(head.encode() + b"\r\n" + data + b"\r\n")
    return b"".join(lines) + f"--{boundary}--\r\n".encode(), f"multipart/form-data; boundary={boundary}"

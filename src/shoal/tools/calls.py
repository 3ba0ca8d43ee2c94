"""One HTTP call at a time, for whatever a tool asks a server besides its load; what fails is said in one line."""

import http.client
import json
import socket
import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from shoal.errors import InvalidInput, ServingError
from shoal.redact import redact


class ServerFailed(ServingError):
    """The server is not there, or answered with an error."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status  # 0: there was no answer


class Site(msgspec.Struct, frozen=True):
    """Where a server is."""

    scheme: str
    host: str
    port: int
    path: str  # with its query; empty: none was given
    verifies: bool = True  # its certificate must be good

    @property
    def url(self) -> str:
        """The address without the path."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    @property
    def authority(self) -> str:
        """What the Host header says."""
        return self.url.partition("://")[2]

    def tls(self) -> ssl.SSLContext | None:
        """Give what a TLS connection is made with; None for plain HTTP."""
        if self.scheme != "https":
            return None
        context = ssl.create_default_context()
        if not self.verifies:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


class Reply(msgspec.Struct, frozen=True):
    """What the server said."""

    status: int
    headers: dict[str, str]  # by lower-case name
    body: bytes

    @property
    def value(self) -> Any:
        """The body's JSON; ServerFailed if it is none."""
        try:
            return json.loads(self.body)
        except ValueError:
            raise ServerFailed(f"the server's answer is not JSON: {_short(self.body)}") from None

    @property
    def problem(self) -> str:
        """What an error answer says, in one line."""
        try:
            said = json.loads(self.body)
            text = said.get("message") or said.get("error") or "" if isinstance(said, dict) else str(said)
        except ValueError:
            text = _short(self.body)
        return " ".join(str(text).split())[:500] or http.client.responses.get(self.status, "no reason given")


def site_of(url: str, *, verifies: bool = True) -> Site:
    """Read a server's address."""
    full = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(full)
        port = parts.port
    except ValueError as error:
        raise InvalidInput(f"{redact(url)!r} is no address: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidInput(f"{redact(url)!r} is no address; write http://HOST:PORT")
    path = parts.path.rstrip("/") + (f"?{parts.query}" if parts.query else "")
    return Site(parts.scheme, parts.hostname, port or (443 if parts.scheme == "https" else 80), path, verifies)


def call(
    site: Site,
    method: str,
    path: str,
    *,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
    timeout: float = 30.0,
) -> Reply:
    """Ask once; ServerFailed when there is no answer at all."""
    tls = site.tls()
    link = (
        http.client.HTTPSConnection(site.host, site.port, timeout=timeout, context=tls)
        if tls
        else http.client.HTTPConnection(site.host, site.port, timeout=timeout)
    )
    try:
        link.request(method, path, body or None, dict(headers or {}))
        answer = link.getresponse()
        return Reply(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
    except TimeoutError:
        raise ServerFailed(f"{site.url} gave no answer in {timeout:g} s") from None
    except (OSError, http.client.HTTPException) as error:
        raise ServerFailed(f"no server answers at {site.url}: {reason(error)}") from None
    finally:
        link.close()


def ask(site: Site, method: str, path: str, **more: Any) -> Any:
    """Ask once for JSON; ServerFailed with the server's own words for an error."""
    reply = call(site, method, path, **more)
    if reply.status >= 400:
        raise ServerFailed(f"{reply.status}: {reply.problem}", reply.status)
    return reply.value


def reason(error: BaseException) -> str:
    """Say what went wrong with a connection, in a few words."""
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, ConnectionResetError | BrokenPipeError | http.client.RemoteDisconnected):
        return "it closed the connection"
    if isinstance(error, socket.gaierror):
        return "no such host"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {error.reason or error}"
    if isinstance(error, http.client.HTTPException):
        return "it does not speak HTTP"
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).lower()


def _short(body: bytes) -> str:
    return " ".join(body[:200].decode(errors="replace").split())

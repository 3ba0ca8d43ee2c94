"""Fetching archives from http, https and file URLs, from nowhere that `allowed_urls` does not name.

The list is about URLs: what was asked for is checked, and so is every redirect, before a connection is made. A name
that is allowed may still be made to mean any address, so the address that was connected to is looked at before anything
is asked of it: a name may not lead to this machine itself or to its link (where clouds keep their credentials); who
means that writes the number, or localhost. Private networks are where model stores stand, and are not refused. Who lets
strangers register models lists whole host names (`https://models\\.example\\.com/.*`), not `https://.*`.

No proxy, cookie, password or .netrc is used, and no credential of the server goes anywhere but to S3 when asked to.
"""

import http.client
import os
import re
import secrets
import ssl
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import IO
from urllib.parse import SplitResult, unquote, urljoin, urlsplit

from shoal.archive.entries import Limits
from shoal.archive.signature import credentials_from, sign_get
from shoal.errors import ConfigError, DownloadFailed, ServingError, SourceNotFound
from shoal.version import __version__

MOST_REDIRECTS = 5
PATIENCE = 30.0  # s without a byte
CHUNK = 1 << 20
REDIRECTS = (301, 302, 303, 307, 308)
AWS_HOSTS = (".amazonaws.com", ".amazonaws.com.cn")


class Fetcher:
    """Fetches what the list allows. All of it blocks; it is run in a thread."""

    def __init__(
        self, allowed: Sequence[str], limits: Limits, environment: Mapping[str, str], *, patience: float = PATIENCE
    ) -> None:
        self._allowed = [_compiled(pattern) for pattern in allowed]
        self._limits = limits
        self._environment = environment
        self._patience = patience

    def check(self, url: str) -> None:
        """Raise SourceNotFound unless a whole URL is on the list."""
        if not any(pattern.fullmatch(url) for pattern in self._allowed):
            hint = "" if self._allowed else " (allowed_urls is empty; nothing is fetched until it names something)"
            raise SourceNotFound(f"Given URL {url} does not match any allowed URL(s){hint}")

    def fetch(self, url: str, target: Path, *, signed: bool = False, check: Callable[[], None] = lambda: None) -> None:
        """Put what is at a URL into a file that must not be there yet; `check` is called often and may raise.

        Raises DownloadFailed; a file that was begun is gone then.
        """
        self.check(url)
        if target.exists() or target.is_symlink():
            raise already_there(target)
        part = target.with_name(f".{target.name}.{secrets.token_hex(8)}.part")
        try:
            number = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            with open(number, "wb") as file, self._open(url, signed) as (source, length):
                self._copy(source, length, file, check)
            _move(part, target)
        except DownloadFailed as error:
            raise DownloadFailed(f"Failed to download archive from: {_shown(url)} ({error})") from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise DownloadFailed(f"Failed to download archive from: {_shown(url)} ({reason})") from None
        finally:
            part.unlink(missing_ok=True)

    def _copy(self, source: IO[bytes], length: int | None, file: IO[bytes], check: Callable[[], None]) -> None:
        limit, received = self._limits.download, 0
        if length is not None and length > limit:
            raise DownloadFailed(f"it has {length} bytes, {limit} are allowed")
        while piece := source.read(CHUNK):
            check()
            received += len(piece)
            if received > limit:
                raise DownloadFailed(f"it has more than {limit} bytes")
            file.write(piece)
        if length is not None and received != length:
            raise DownloadFailed(f"it ended after {received} of {length} bytes")

    @contextmanager
    def _open(self, url: str, signed: bool) -> Iterator[tuple[IO[bytes], int | None]]:
        """Give a stream and its length, if that is told; redirects are followed as far as the list allows."""
        parts = _split(url)
        if parts.scheme == "file":
            with _open_file(parts) as file:
                yield file, os.fstat(file.fileno()).st_size
            return
        for _ in range(MOST_REDIRECTS + 1):
            with closing(self._connect(parts)) as connection, self._ask(connection, url, parts, signed) as answer:
                if answer.status not in REDIRECTS:
                    if answer.status != 200:
                        raise DownloadFailed(f"the server said {answer.status} {answer.reason}")
                    yield answer, _length(answer)
                    return
                url = self._next(url, answer, signed)
            parts = _split(url)
        raise DownloadFailed(f"more than {MOST_REDIRECTS} redirects")

    def _next(self, url: str, answer: http.client.HTTPResponse, signed: bool) -> str:
        """Where a redirect leads: to what the list allows, and never from the network to this machine's files."""
        location = urljoin(url, answer.getheader("Location", ""))
        scheme = urlsplit(location).scheme.lower()
        if signed:
            raise DownloadFailed("a signed request was redirected; name the bucket's own region in the URL")
        if scheme not in ("http", "https") or (scheme == "http" and url.lower().startswith("https:")):
            raise DownloadFailed(
                f"it redirects from {urlsplit(url).scheme} to {scheme or 'nowhere'}, which is not followed"
            )
        try:
            self.check(location)
        except SourceNotFound:
            raise DownloadFailed(f"it redirects to {_shown(location)}, which allowed_urls does not allow") from None
        return location

    def _connect(self, parts: SplitResult) -> http.client.HTTPConnection:
        host, port = parts.hostname or "", parts.port
        if parts.scheme == "https":
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(host, port, timeout=self._patience, context=context)
        return http.client.HTTPConnection(host, port, timeout=self._patience)

    def _ask(
        self, connection: http.client.HTTPConnection, url: str, parts: SplitResult, signed: bool
    ) -> http.client.HTTPResponse:
        headers = {"User-Agent": f"shoal/{__version__}", "Accept": "*/*"}
        if signed:
            headers |= self._signature(url, parts)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.connect()
        _check_address(parts.hostname or "", connection.sock.getpeername()[0])
        connection.request("GET", target, headers=headers)
        return connection.getresponse()

    def _signature(self, url: str, parts: SplitResult) -> dict[str, str]:
        own = self._environment.get("AWS_ENDPOINT_URL_S3") or self._environment.get("AWS_ENDPOINT_URL") or ""
        is_aws = parts.scheme == "https" and (parts.hostname or "").endswith(AWS_HOSTS)
        if not is_aws and not (own and urlsplit(own).netloc == parts.netloc and urlsplit(own).scheme == parts.scheme):
            raise DownloadFailed(
                "s3_sse_kms signs only requests to https hosts of amazonaws.com, or to AWS_ENDPOINT_URL"
            )
        credentials = credentials_from(self._environment)
        if credentials is None:
            needed = "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_DEFAULT_REGION"
            raise DownloadFailed(f"s3_sse_kms needs {needed} in the server's environment")
        return sign_get(url, credentials, datetime.now(UTC))


def is_url(text: str) -> bool:
    """Whether this is meant as a URL and not as a name."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", text) is not None


def file_name(url: str) -> str:
    """Give the name a download has in the model store: the last part of the URL's path."""
    name = unquote(urlsplit(url).path).rsplit("/", 1)[-1]
    if not name or name.startswith(".") or any(ord(character) < 32 for character in name) or len(name.encode()) > 200:
        raise DownloadFailed(f"Failed to download archive from: {_shown(url)} (the URL ends in no usable file name)")
    return name


def already_there(target: Path) -> ServingError:
    """Make the error for a download whose name is taken."""
    return ServingError(f"Model file already exists {target.name}")


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern, re.IGNORECASE)
    except re.error as error:
        raise ConfigError(f"allowed_urls: {pattern!r} is not a regular expression: {error}") from None


def _split(url: str) -> SplitResult:
    """Take a URL apart that no two readers can read differently."""
    if not url.isascii() or any(ord(character) <= 32 or character in "\\\x7f" for character in url):
        raise DownloadFailed("a URL has no spaces, backslashes or other than ASCII characters; percent-encode them")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise DownloadFailed(str(error)) from None
    if parts.scheme not in ("http", "https", "file"):
        raise DownloadFailed(f"archives are fetched by http, https and file, not by {parts.scheme}")
    if "@" in parts.netloc:
        raise DownloadFailed("a user or password in a URL is not sent")
    if any(part in (".", "..") for part in unquote(parts.path).replace("\\", "/").split("/")):
        raise DownloadFailed("a URL has no . or .. in its path")
    if parts.scheme == "file" and host not in (None, "", "localhost"):
        raise DownloadFailed("a file URL has no host: file:///path")
    if parts.scheme != "file" and not host:
        raise DownloadFailed("the URL names no host")
    return parts


def _check_address(host: str, address: str) -> None:
    """Refuse a name that leads to this machine or its link: whoever answers for the name may have turned it there."""
    found = ip_address(address.partition("%")[0])
    found = getattr(found, "ipv4_mapped", None) or found
    if not (found.is_loopback or found.is_link_local or found.is_unspecified or found.is_multicast):
        return
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        if host.lower() != "localhost":
            raise DownloadFailed(f"the name {host} leads to {found}, which is this machine or its own link") from None


@contextmanager
def _open_file(parts: SplitResult) -> Iterator[IO[bytes]]:
    path = unquote(parts.path)
    if "\0" in path:
        raise DownloadFailed("no file has such a name")
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe nobody writes to is not waited for
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise DownloadFailed("it is not a file")
    with open(number, "rb") as file:
        yield file


def _length(answer: http.client.HTTPResponse) -> int | None:
    """Give the length that was announced; of a chunked answer `http.client` itself tells a missing end."""
    return None if answer.chunked else answer.length


def _move(part: Path, target: Path) -> None:
    """Give the file its name, unless that has been taken meanwhile."""
    try:
        os.link(part, target)
    except FileExistsError:
        raise already_there(target) from None
    except OSError:  # a file system without links
        if target.exists():
            raise already_there(target) from None
        part.rename(target)


def _shown(url: str) -> str:
    """Show a URL in a message without its query, where signatures and keys are."""
    return url.partition("?")[0]

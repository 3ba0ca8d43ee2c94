import contextlib
import os
import re
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from shoal.archive.entries import Limits
from shoal.archive.fetch import Fetcher, _check_address, file_name, is_url
from shoal.errors import ConfigError, DownloadFailed, ServingError, SourceNotFound

ANY = ["file://.*|http(s)?://.*"]
AWS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "very-secret", "AWS_DEFAULT_REGION": "eu-west-1"}
CONTENT = os.urandom(3_000_000)


class Site(ThreadingHTTPServer):
    """A web server with a page for each way a download can go."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Page)
        self.seen: list[tuple[str, dict[str, str]]] = []
        self.released = threading.Event()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that leaves early is what some tests are about."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Page(BaseHTTPRequestHandler):
    server: Site
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.server.seen.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
        path = self.path.partition("?")[0]
        self.close_connection = True
        match path.split("/")[1]:
            case "ok":
                self.answer(200, CONTENT)
            case "chunked":
                self.send_response(200)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                self.wfile.write(b"%x\r\n%b\r\n" % (len(CONTENT), CONTENT))
                self.wfile.write(b"0\r\n\r\n" if "whole" in path else b"5\r\nab")
            case "endless":
                self.send_response(200)
                self.end_headers()
                with contextlib.suppress(OSError):
                    for _ in range(400):  # as good as endless: 26 MB
                        self.wfile.write(b"x" * 65536)
            case "short":
                self.send_response(200)
                self.send_header("Content-Length", "1000")
                self.end_headers()
                self.wfile.write(b"x" * 10)
            case "slow":
                self.send_response(200)
                self.send_header("Content-Length", "1000")
                self.end_headers()
                self.wfile.write(b"x")
                self.wfile.flush()
                self.server.released.wait(30)
            case "to":
                self.send_response(302)
                self.send_header("Location", self.path.partition("?")[2])
                self.send_header("Content-Length", "0")
                self.end_headers()
            case "loop":
                self.send_response(301)
                self.send_header("Location", self.path + "x")
                self.send_header("Content-Length", "0")
                self.end_headers()
            case _:
                self.answer(404, b"nothing")

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.released.set()
        server.shutdown()
        thread.join()


def fetcher(
    *allowed: str, limit: int = 10**8, environment: dict[str, str] | None = None, patience: float = 30.0
) -> Fetcher:
    return Fetcher(allowed or ANY, Limits(download=limit), environment or {}, patience=patience)


def fails(tmp_path: Path, url: str, words: str, found: Fetcher | None = None, *, signed: bool = False) -> None:
    """It fails with these words, and no file is left."""
    with pytest.raises(DownloadFailed, match=words) as raised:
        (found or fetcher()).fetch(url, tmp_path / "a.mar", signed=signed)
    assert str(raised.value).startswith(f"Failed to download archive from: {url.partition('?')[0]}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", ["/ok/a.mar", "/chunked/whole", "/to?/ok/a.mar", "/to/x?/to?/ok/a.mar"])
def test_an_archive_is_fetched(tmp_path: Path, site: Site, path: str) -> None:
    fetcher().fetch(site.url + path, tmp_path / "a.mar")

    assert (tmp_path / "a.mar").read_bytes() == CONTENT
    assert list(tmp_path.iterdir()) == [tmp_path / "a.mar"]


def test_a_file_is_fetched(tmp_path: Path) -> None:
    source = tmp_path / "there is.mar"
    source.write_bytes(CONTENT)
    (tmp_path / "store").mkdir()
    fetcher().fetch(f"file://{tmp_path}/there%20is.mar", tmp_path / "store" / "a.mar")

    assert (tmp_path / "store" / "a.mar").read_bytes() == CONTENT
    assert source.exists()


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/gone", "the server said 404"),
        ("/short", "ended after 10 of 1000 bytes"),
        ("/chunked/cut", "IncompleteRead"),
        ("/loop/", "more than 5 redirects"),
        ("/to?", "more than 5 redirects|the server said 404|nowhere"),
        ("/to?file:///etc/passwd", "redirects from http to file"),
        ("/to?ftp://host/x", "redirects from http to ftp"),
        ("/to?http://user:word@127.0.0.1/x", "password in a URL is not sent"),
    ],
)
def test_a_download_that_fails_leaves_nothing(tmp_path: Path, site: Site, path: str, words: str) -> None:
    fails(tmp_path, site.url + path, words)


def test_a_site_that_sends_nothing_for_long_is_given_up(tmp_path: Path, site: Site) -> None:
    fails(tmp_path, site.url + "/slow", "timed out", fetcher(patience=0.5))


def test_a_size_limit_holds_while_bytes_come_in(tmp_path: Path, site: Site) -> None:
    fails(tmp_path, site.url + "/endless/a.mar", "more than 1000000 bytes", fetcher(limit=1_000_000))
    fails(tmp_path, site.url + "/ok/a.mar", "it has 3000000 bytes, 1000000 are allowed", fetcher(limit=1_000_000))


def test_a_redirect_leads_only_where_the_list_allows(tmp_path: Path, site: Site) -> None:
    only_to = fetcher(site.url.replace(".", r"\.") + "/to.*")

    fails(tmp_path, f"{site.url}/to?{site.url}/ok/a.mar", "which allowed_urls does not allow", only_to)
    assert [path for path, _ in site.seen] == [f"/to?{site.url}/ok/a.mar"], "the other was never asked"


def test_a_redirect_cannot_climb_out_of_what_is_allowed(site: Site, tmp_path: Path) -> None:
    url = f"{site.url}/to/a.mar?{site.url}/to/../ok/a.mar"
    fails(tmp_path, url, r"no \. or \.\.", fetcher(re.escape(site.url) + "/to/.*"))
    assert len(site.seen) == 1


@pytest.mark.parametrize("name", ["models.example.com", "127.0.0.1.example.com", "localhost.example.com"])
def test_a_name_that_is_turned_to_this_machine_is_not_asked(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    real = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *more, **named: real("127.0.0.1", *more, **named))

    fails(tmp_path, f"http://{name}:{site.server_port}/ok/a.mar", "leads to 127.0.0.1")
    assert site.seen == []

    fetcher(*ANY).fetch(f"http://LOCALHOST:{site.server_port}/ok/a.mar", tmp_path / "b.mar")
    assert len(site.seen) == 1


@pytest.mark.parametrize(
    ("address", "is_refused"),
    [
        ("169.254.169.254", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("fe80::1%eth0", True),
        ("0.0.0.0", True),
        ("224.0.0.1", True),
        ("10.1.2.3", False),
        ("192.168.1.1", False),
        ("93.184.216.34", False),
        ("2606:2800:220:1::1", False),
    ],
)
def test_names_may_lead_anywhere_but_to_this_machine_and_its_link(address: str, is_refused: bool) -> None:
    if is_refused:
        with pytest.raises(DownloadFailed, match="the name models leads to"):
            _check_address("models", address)
    else:
        _check_address("models", address)
    _check_address(address, address)  # named by its number it is meant


def test_a_redirect_does_not_leave_tls() -> None:
    answer: object = type("Answer", (), {"getheader": lambda self, name, default: "http://host/x"})()

    with pytest.raises(DownloadFailed, match="from https to http"):
        fetcher()._next("https://host/x", answer, False)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("allowed", "url", "is_allowed"),
    [
        (ANY, "http://host/a.mar", True),
        (ANY, "HTTPS://host/a.mar", True),
        (ANY, "s3://bucket/a.mar", False),
        (["https://models.example.com/.*"], "https://models.example.com/a.mar", True),
        (["https://models.example.com/.*"], "https://MODELS.example.com/a.mar", True),
        (["https://models.example.com/.*"], "https://models.example.com.evil.org/a.mar", False),
        (["https://models.example.com/.*"], "http://evil.org/?https://models.example.com/a.mar", False),
        (["nothing", "http://b/.*"], "http://b/a.mar", True),
        (["http://b/a.mar"], "http://b/a.mar?evil", False),
        (["http://b/a.mar"], "xhttp://b/a.mar", False),
        ([], "http://host/a.mar", False),
    ],
)
def test_a_url_is_matched_whole(allowed: list[str], url: str, is_allowed: bool) -> None:
    found = Fetcher(allowed, Limits(), {})
    if is_allowed:
        found.check(url)
        return
    with pytest.raises(SourceNotFound, match=r"^Given URL .* does not match any allowed URL\(s\)"):
        found.check(url)


def test_what_is_not_allowed_is_not_asked_for(tmp_path: Path, site: Site) -> None:
    with pytest.raises(SourceNotFound):
        fetcher("https://.*").fetch(f"{site.url}/ok/a.mar", tmp_path / "a.mar")

    assert site.seen == []


def test_a_list_that_is_no_expression_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match=r"allowed_urls: '\(' is not a regular expression"):
        fetcher("(")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://user:word@host/a.mar", "password in a URL"),
        ("http://allowed.com\\@evil.com/a.mar", "backslashes"),
        ("http://host/a b.mar", "spaces"),
        ("http://host/\u00e9.mar", "ASCII"),
        ("http:///a.mar", "names no host"),
        ("http://host:99999/a.mar", "[Pp]ort"),
        ("file://elsewhere/a.mar", "has no host"),
        ("file:///etc", "not a file"),
        ("file:///dev/zero", "not a file"),
        ("file:///no/such/file", "No such file"),
        ("file:///a%00b", "no file has such a name"),
        ("file:///models/../etc/passwd", r"no \. or \.\."),
        ("file:///models/%2e%2e/etc/passwd", r"no \. or \.\."),
        ("http://host/models/%2E./secret.mar", r"no \. or \.\."),
        ("http://host/models/..%2fsecret.mar", r"no \. or \.\."),
        ("http://host/models/..%5csecret.mar", r"no \. or \.\."),
    ],
)
def test_a_url_with_two_readings_is_refused(tmp_path: Path, url: str, words: str) -> None:
    fails(tmp_path, url, words)


def test_a_scheme_that_is_allowed_but_not_known_is_refused(tmp_path: Path) -> None:
    fails(tmp_path, "s3://bucket/a.mar", "not by s3", fetcher("s3://.*"))


def test_nobody_there_is_a_failed_download(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # and nobody listens
        fails(tmp_path, f"http://127.0.0.1:{unused.getsockname()[1]}/a.mar", "refused")


def test_a_file_that_is_there_is_never_replaced(tmp_path: Path, site: Site) -> None:
    (tmp_path / "a.mar").write_text("mine")

    with pytest.raises(ServingError, match=r"^Model file already exists a\.mar$"):
        fetcher().fetch(f"{site.url}/ok/a.mar", tmp_path / "a.mar")
    assert (tmp_path / "a.mar").read_text() == "mine"
    assert site.seen == []


def test_a_file_that_comes_while_another_is_fetched_is_not_replaced(tmp_path: Path, site: Site) -> None:
    def check() -> None:
        (tmp_path / "a.mar").write_text("faster")

    with pytest.raises(ServingError, match="already exists"):
        fetcher().fetch(f"{site.url}/ok/a.mar", tmp_path / "a.mar", check=check)
    assert (tmp_path / "a.mar").read_text() == "faster"
    assert list(tmp_path.iterdir()) == [tmp_path / "a.mar"]


def test_giving_up_leaves_nothing(tmp_path: Path, site: Site) -> None:
    def check() -> None:
        raise ServingError("given up")

    with pytest.raises(ServingError, match="given up"):
        fetcher().fetch(f"{site.url}/endless/a.mar", tmp_path / "a.mar", check=check)
    assert list(tmp_path.iterdir()) == []


def test_no_proxy_and_no_password_of_the_environment_is_used(
    tmp_path: Path, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    fetcher(environment=AWS).fetch(f"{site.url}/ok/a.mar", tmp_path / "a.mar")

    ((_, headers),) = site.seen
    assert "authorization" not in headers and "very-secret" not in str(headers)


def test_a_signed_request_goes_to_the_endpoint_that_was_set(tmp_path: Path, site: Site) -> None:
    found = fetcher(environment={**AWS, "AWS_ENDPOINT_URL": site.url})
    found.fetch(f"{site.url}/ok/a.mar", tmp_path / "a.mar", signed=True)

    ((_, headers),) = site.seen
    assert headers["authorization"].startswith("AWS4-HMAC-SHA256 Credential=key/")
    assert "/eu-west-1/s3/aws4_request" in headers["authorization"]
    assert "very-secret" not in str(headers)


def test_a_signed_request_goes_nowhere_else(tmp_path: Path, site: Site) -> None:
    fails(tmp_path, f"{site.url}/ok/a.mar", "signs only requests to", fetcher(environment=AWS), signed=True)
    plain = "http://bucket.s3.amazonaws.com/a.mar"
    fails(tmp_path, plain, "signs only requests to", fetcher(environment=AWS), signed=True)
    own = fetcher(environment={**AWS, "AWS_ENDPOINT_URL": site.url})
    fails(tmp_path, f"{site.url}/to?{site.url}/ok/a.mar", "a signed request was redirected", own, signed=True)
    assert [path.partition("?")[0] for path, _ in site.seen] == ["/to"]


def test_a_signed_request_needs_credentials(tmp_path: Path, site: Site) -> None:
    own = fetcher(environment={"AWS_ENDPOINT_URL": site.url, "AWS_ACCESS_KEY_ID": "key"})

    fails(tmp_path, f"{site.url}/ok/a.mar", "AWS_SECRET_ACCESS_KEY and AWS_DEFAULT_REGION", own, signed=True)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("http://host/models/a.mar", "a.mar"),
        ("https://host/a%20b.mar?X-Amz-Signature=1/2", "a b.mar"),
        ("file:///srv/a.tar.gz", "a.tar.gz"),
    ],
)
def test_a_download_is_named_after_the_end_of_its_path(url: str, name: str) -> None:
    assert file_name(url) == name


@pytest.mark.parametrize(
    "url",
    ["http://host", "http://host/", "http://host/a/", "http://host/.ssh", "http://host/%00", "http://h/" + "x" * 300],
)
def test_a_url_without_a_usable_name_is_refused(url: str) -> None:
    with pytest.raises(DownloadFailed, match="no usable file name"):
        file_name(url)


@pytest.mark.parametrize(
    ("text", "is_one"), [("http://h", True), ("s3://b", True), ("a.mar", False), ("C:/x", False), ("/a://b", False)]
)
def test_names_are_told_from_urls(text: str, is_one: bool) -> None:
    assert is_url(text) is is_one

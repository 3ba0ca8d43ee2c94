import http.client
import socket
import ssl

import pytest

from shoal.errors import InvalidInput
from shoal.tools.calls import Reply, ServerFailed, Site, reason, site_of


@pytest.mark.parametrize(
    ("url", "site"),
    [
        ("http://127.0.0.1:8080", Site("http", "127.0.0.1", 8080, "")),
        ("127.0.0.1:8080/", Site("http", "127.0.0.1", 8080, "")),
        ("https://host/predictions/m?a=1", Site("https", "host", 443, "/predictions/m?a=1")),
        ("http://[::1]:99/x", Site("http", "::1", 99, "/x")),
    ],
)
def test_addresses_are_read(url: str, site: Site) -> None:
    assert site_of(url) == site


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://x:port", "http://x:99999", "://"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="is no address"):
        site_of(url)


def test_an_address_is_written_as_it_was() -> None:
    assert site_of("http://[::1]:99").url == "http://[::1]:99"
    assert site_of("https://h").authority == "h:443"


def test_a_certificate_is_checked_unless_told_otherwise() -> None:
    strict, loose = site_of("https://h").tls(), site_of("https://h", verifies=False).tls()

    assert strict is not None and strict.verify_mode == ssl.CERT_REQUIRED
    assert loose is not None and loose.verify_mode == ssl.CERT_NONE
    assert site_of("http://h").tls() is None


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b'{"code": 404, "message": "Model not\\n found"}', "Model not found"),
        (b'{"error": "no"}', "no"),
        (b"plain words", "plain words"),
        (b"", "Not Found"),
        (b"{}", "Not Found"),
    ],
)
def test_an_error_is_told_in_the_servers_words_on_one_line(body: bytes, problem: str) -> None:
    assert Reply(404, {}, body).problem == problem


def test_an_answer_that_is_no_json_is_said_to_be_none() -> None:
    with pytest.raises(ServerFailed, match="not JSON: <html>"):
        _ = Reply(200, {}, b"<html>").value


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ConnectionRefusedError(), "connection refused"),
        (ConnectionResetError(), "it closed the connection"),
        (http.client.RemoteDisconnected("x"), "it closed the connection"),
        (http.client.BadStatusLine("x"), "it does not speak HTTP"),
        (socket.gaierror(), "no such host"),
        (OSError(113, "No route to host"), "no route to host"),
    ],
)
def test_what_went_wrong_is_said_in_a_few_words(error: BaseException, words: str) -> None:
    assert reason(error) == words

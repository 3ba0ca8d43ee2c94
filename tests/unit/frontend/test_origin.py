import pytest

from shoal.config.exposure import is_loopback
from shoal.frontend.origin import FOREIGN, RENAMED, names_a_machine, objection
from tests.unit.frontend.api_fakes import Answer


@pytest.mark.parametrize(
    ("host", "is_one"),
    [
        (b"127.0.0.1:8081", True),
        (b"localhost", True),
        (b"LOCALHOST:80", True),
        (b"box.localhost:1", True),
        (b"[::1]:8081", True),
        (b"10.0.0.3:8081", True),
        (b"torchserve:8081", True),
        (b"box.local", True),
        (b"models.internal:80", True),
        (b"evil.example:8081", False),
        (b"localhost.evil.example", False),
        (b"127.0.0.1.evil.example:8081", False),
        (b"local.evil.example", False),
        (b"evil.example.", False),
        (b"", False),
    ],
)
def test_only_a_number_or_a_private_name_is_nobody_elses(host: bytes, is_one: bool) -> None:
    assert names_a_machine(host) is is_one


@pytest.mark.parametrize(
    ("host", "is_it"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("[::1]", True), ("localhost", True), ("0.0.0.0", False)],
)
def test_loopback_is_known_by_its_names(host: str, is_it: bool) -> None:
    assert is_loopback(host) is is_it


def said_of(origin: str, host: str, allowed: str = "", *, is_local: bool = True) -> str:
    exchange = Answer("/").exchange
    headers = [(b"Host", host.encode()), (b"Origin", origin.encode())]
    exchange.headers = [(name, value) for name, value in headers if value]
    return objection(exchange, allowed, is_local=is_local)


def test_a_page_of_this_server_may_and_one_from_elsewhere_may_not() -> None:
    assert said_of("", "127.0.0.1:8081") == said_of("", "") == ""  # no browser
    assert said_of("http://127.0.0.1:8081", "127.0.0.1:8081") == ""
    assert said_of("http://evil.example", "127.0.0.1:8081") == FOREIGN
    assert said_of("http://127.0.0.1:9999", "127.0.0.1:8081") == FOREIGN
    assert said_of("null", "127.0.0.1:8081") == FOREIGN


def test_a_name_that_was_made_to_mean_this_machine_is_from_elsewhere() -> None:
    assert said_of("http://evil.example:8081", "evil.example:8081") == RENAMED
    assert said_of("", "evil.example:8081") == RENAMED  # a page that only reads names no origin
    assert said_of("", "evil.example:8081", is_local=False) == ""
    assert said_of("http://shoal.example", "shoal.example", is_local=False) == ""


def test_an_origin_that_was_allowed_may_use_its_own_name() -> None:
    assert said_of("http://shoal.example:8081", "shoal.example:8081", "http://shoal.example:8081") == ""
    assert said_of("", "shoal.example", "https://shoal.example") == ""
    assert said_of("", "evil.example", "https://shoal.example") == RENAMED
    assert said_of("http://app.example", "127.0.0.1:8081", "http://app.example") == ""
    assert said_of("http://evil.example", "127.0.0.1:8081", allowed="*") == ""

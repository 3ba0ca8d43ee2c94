import pytest

from shoal.config.exposure import is_loopback
from shoal.frontend.origin import is_own_page, names_a_machine
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
        (b"evil.example:8081", False),
        (b"localhost.evil.example", False),
        (b"127.0.0.1.evil.example:8081", False),
        (b"", False),
    ],
)
def test_only_a_number_or_localhost_is_nobody_elses_name(host: bytes, is_one: bool) -> None:
    assert names_a_machine(host) is is_one


@pytest.mark.parametrize(
    ("host", "is_it"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("[::1]", True), ("localhost", True), ("0.0.0.0", False)],
)
def test_loopback_is_known_by_its_names(host: str, is_it: bool) -> None:
    assert is_loopback(host) is is_it


def own(origin: str, host: str, allowed: str = "", *, is_local: bool = True) -> bool:
    exchange = Answer("/").exchange
    exchange.headers = [(b"Host", host.encode()), *([(b"Origin", origin.encode())] if origin else [])]
    return is_own_page(exchange, allowed, is_local=is_local)


def test_a_page_of_this_server_may_and_one_from_elsewhere_may_not() -> None:
    assert own("", "anything")  # no browser
    assert own("http://127.0.0.1:8081", "127.0.0.1:8081")
    assert not own("http://evil.example", "127.0.0.1:8081")
    assert not own("http://127.0.0.1:9999", "127.0.0.1:8081")
    assert not own("null", "127.0.0.1:8081")


def test_a_name_that_was_made_to_mean_this_machine_is_from_elsewhere() -> None:
    assert not own("http://evil.example:8081", "evil.example:8081")
    assert own("http://box:8081", "box:8081", is_local=False)
    assert own("http://box:8081", "box:8081", allowed="http://box:8081")
    assert own("http://evil.example", "127.0.0.1:8081", allowed="*")

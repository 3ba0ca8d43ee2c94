import pytest

from shoal.config.address import Address, addresses, listening, parse_address
from shoal.config.values import Values
from shoal.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("http://127.0.0.1:8080", Address("127.0.0.1", 8080)),
        ("http://0.0.0.0", Address("0.0.0.0", 80)),
        ("https://0.0.0.0", Address("0.0.0.0", 443, True)),
        ("HTTPS://example.com:8443/", Address("example.com", 8443, True)),
        ("http://[::1]:8080", Address("::1", 8080)),
        ("http://localhost:0", Address("localhost", 0)),
        ("unix:/tmp/a.sock", Address(path="/tmp/a.sock")),
    ],
)
def test_an_address_is_read(text: str, address: Address) -> None:
    assert parse_address(text, "inference_address", (80, 443)) == address


@pytest.mark.parametrize(
    "text", ["", "8080", "127.0.0.1:8080", "ftp://x", "http://", "http://x:y", "http://a b", "unix:"]
)
def test_what_is_no_address_is_refused_with_its_key(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^inference_address"):
        parse_address(text, "inference_address", (80, 443))


def test_a_port_beyond_the_last_is_refused() -> None:
    with pytest.raises(ConfigError, match="a port is between 0 and 65535, got 65536"):
        parse_address("http://x:65536", "inference_address", (80, 443))


def test_each_listener_has_ports_of_its_own_where_none_is_written() -> None:
    values = Values({f"{name}_address": "https://h" for name in ("inference", "management", "metrics")})

    found = addresses(values, ("inference", "management", "metrics"))

    assert [address.port for address in found.values()] == [443, 8444, 8445]


def test_one_port_speaks_one_protocol() -> None:
    values = Values({"inference_address": "https://h:8080", "management_address": "http://h:8080"})

    with pytest.raises(ConfigError, match="inference_address and management_address share port 8080, but only one"):
        addresses(values, ("inference", "management"))


def test_free_ports_are_never_shared() -> None:
    values = Values({"inference_address": "https://h:0", "management_address": "http://h:0"})

    assert addresses(values, ("inference", "management"))["inference"].is_tls


def test_listeners_that_are_not_named_are_not_opened() -> None:
    settings = listening({"inference": Address("h", 80, True), "management": Address(path="/m")})

    assert settings == {
        "host": "h",
        "port": 80,
        "unix_socket": "",
        "management_port": -1,
        "management_unix_socket": "/m",
        "metrics_port": -1,
        "metrics_unix_socket": "",
        "tls_on": ("inference",),
    }

from typing import Any

import pytest

from shoal.config.exposure import open_management, open_repository
from shoal.config.load import server_config
from shoal.config.server import ServerConfig
from shoal.config.triton import Restriction, TritonSettings
from shoal.errors import ConfigError

GUARD = Restriction(frozenset({"model-repository"}), "key", "value")
OTHER = Restriction(frozenset({"health"}), "key", "value")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "models.example.com"])
@pytest.mark.parametrize("name", ["management", "grpc_management"])
def test_other_machines_manage_nothing_without_a_key(name: str, host: str) -> None:
    settings = {f"{name}_host": host, f"{name}_port": 9000}

    with pytest.raises(ConfigError, match=rf"{name}_host {host}: other machines .* set token_authorization"):
        server_config(settings, {}, {})

    assert server_config({**settings, "token_authorization": True}, {}, {}).token_authorization
    assert server_config({**settings, f"{name}_port": -1}, {}, {})


def test_inference_may_be_opened_without_management() -> None:
    config = server_config({"host": "0.0.0.0"}, {}, {})
    assert (config.host, config.management_host) == ("0.0.0.0", "127.0.0.1")


@pytest.mark.parametrize("compat", ["torchserve", "mms"])
def test_in_the_place_of_others_their_defaults_hold(compat: Any) -> None:
    config = ServerConfig(compat=compat, management_host="0.0.0.0")
    assert open_management(config) == ["management_host 0.0.0.0"]
    assert open_management(ServerConfig(compat=compat)) == []


@pytest.mark.parametrize(
    ("server", "triton", "is_open"),
    [
        ({"host": "0.0.0.0"}, {"mode": "explicit"}, ["HTTP"]),
        ({"grpc_host": "0.0.0.0", "grpc_port": 1}, {"mode": "explicit"}, ["gRPC"]),
        ({"grpc_host": "0.0.0.0"}, {"mode": "explicit"}, []),
        ({"host": "0.0.0.0"}, {"mode": "none"}, []),
        ({"host": "0.0.0.0"}, {"mode": "poll"}, []),
        ({}, {"mode": "explicit"}, []),
        ({"host": "0.0.0.0"}, {"mode": "explicit", "http_restrictions": [GUARD]}, []),
        ({"host": "0.0.0.0"}, {"mode": "explicit", "http_restrictions": [OTHER]}, ["HTTP"]),
        ({"host": "0.0.0.0"}, {"mode": "explicit", "grpc_restrictions": [GUARD]}, ["HTTP"]),
    ],
)
def test_a_repository_is_open_where_nobody_asks_for_a_header(
    server: dict[str, Any], triton: dict[str, Any], is_open: list[str]
) -> None:
    settings = TritonSettings(repositories=["r"], **triton)
    assert open_repository(ServerConfig(compat="triton", **server), settings) == is_open

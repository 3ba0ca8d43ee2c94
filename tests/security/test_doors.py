"""Every door of a server: where it listens unless told otherwise, and what is behind it for those without a key."""

import asyncio
import contextlib
import http.client
import json
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc
import pytest

from shoal.app import App
from shoal.config.deployment import Deployment
from shoal.config.model import Interface, ModelConfig, TensorSpec
from shoal.config.server import ServerConfig
from shoal.config.triton import TritonSettings
from shoal.errors import ConfigError
from shoal.frontend.grpc.kserve import GROUPS, KServe
from shoal.frontend.grpc.kserve import PREFIX as KSERVE
from shoal.frontend.tls import tls_context
from shoal.launch.certificate import own_certificate

PORTS: dict[str, Any] = {"port": 0, "management_port": 0, "metrics_port": 0, "grpc_port": 0, "grpc_management_port": 0}
TENSOR = TensorSpec(name="IN", datatype="FP32", dims=[1])
MODEL = ModelConfig(
    name="m",
    path="m",
    workers=0,
    flavour="triton",
    backend="identity",
    interface=Interface(inputs=[TENSOR], outputs=[TENSOR], max_batch_size=1),
)
INFER = {"inputs": [{"name": "IN", "shape": [1, 1], "datatype": "FP32", "data": [1]}]}
Asks = Callable[[App], None]


def running(config: ServerConfig, ask: Asks, deployment: Deployment | None = None) -> None:
    """Ask a server, from a thread, that has a model without workers: what gets through is refused for want of one."""

    async def serve() -> None:
        app = App(config, [] if deployment else [MODEL], deployment=deployment)
        await app.start()
        try:
            await asyncio.to_thread(ask, app)
        finally:
            await app.drain(1.0)

    asyncio.run(serve())


def status(address: str, method: str, path: str, body: Any = None, key: str = "") -> tuple[int, bytes]:
    parts = urlsplit(address)
    with contextlib.closing(http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)) as link:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        link.request(method, path, None if body is None else json.dumps(body), headers)
        answer = link.getresponse()
        return answer.status, answer.read()


def test_nothing_listens_beyond_this_machine_unless_told_to() -> None:
    def ask(app: App) -> None:
        bound = app.addresses
        assert set(bound) == {"inference", "management", "metrics", "grpc inference", "grpc management"}
        assert {urlsplit(address).hostname for address in bound.values()} == {"127.0.0.1"}

    running(ServerConfig(**PORTS), ask)


GUARDED = [
    ("inference", "POST", "/predictions/m", {}),
    ("inference", "POST", "/v2/models/m/infer", INFER),
    ("inference", "POST", "/v2/models/m/generate", {"IN": 1}),
    ("inference", "GET", "/v2/models/m", None),
    ("inference", "GET", "/v2/models/m/config", None),
    ("inference", "POST", "/v2/repository/index", {}),
    ("inference", "POST", "/v2/repository/models/m/load", {}),
    ("inference", "POST", "/v2/logging", {"log_error": False}),
    ("inference", "POST", "/v2/trace/setting", {}),
    ("inference", "GET", "/v2/systemsharedmemory/status", None),
    ("management", "GET", "/models", None),
    ("management", "POST", "/models?url=x", None),
    ("management", "DELETE", "/models/m", None),
    ("management", "PUT", "/models/m?min_worker=1", None),
    ("management", "GET", "/workflows", None),
    ("management", "GET", "/dashboard/events", None),
]


def test_with_tokens_no_call_is_answered_without_the_key(tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"

    def ask(app: App) -> None:
        held = json.loads(keys.read_text())
        for api, method, path, body in GUARDED:
            other = "management" if api == "inference" else "inference"
            for key in ("", "wrong", held[other]["key"]):
                found, text = status(app.addresses[api], method, path, body, key)
                assert found in (401, 403), f"{method} {path} with {key!r}: {found} {text[:200]!r}"
                assert held[api]["key"].encode() not in text
        for path, body in (
            ("/v2/models/m/infer", INFER),
            ("/v2/models/m/infer", INFER),
        ):  # a path that is known by then
            found, _ = status(app.addresses["inference"], "POST", path, body, held["inference"]["key"])
            assert found not in (401, 403)
            assert status(app.addresses["inference"], "POST", path, body)[0] in (401, 403)
        assert status(app.addresses["inference"], "GET", "/v2/health/live")[0] == 200

    running(ServerConfig(**PORTS, token_authorization=True, key_file=str(keys)), ask)


def test_with_tokens_no_grpc_call_is_answered_without_the_key(tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"

    def ask(app: App) -> None:
        methods = [method for method in KServe(app.v2.parts).services() if method.startswith(KSERVE)]
        held = json.loads(keys.read_text())
        with grpc.insecure_channel(app.addresses["grpc inference"].partition("://")[2]) as channel:
            for method in methods:
                if GROUPS.get(method.removeprefix(KSERVE)) == "health":
                    continue
                call = channel.stream_stream(method)
                for metadata in ((), (("authorization", f"Bearer {held['management']['key']}"),)):
                    with pytest.raises(grpc.RpcError) as refused:
                        list(call(iter([b""]), metadata=metadata, timeout=20))
                    assert "Token Authorization failed" in refused.value.details(), method

    running(ServerConfig(**PORTS, token_authorization=True, key_file=str(keys)), ask)


def test_clients_of_inference_do_not_change_what_is_logged() -> None:
    def ask(app: App) -> None:
        address = app.addresses["inference"]
        found, text = status(address, "POST", "/v2/logging", {"log_error": False, "log_warning": False})
        assert found >= 400
        assert b"not changed by its clients" in text
        assert json.loads(status(address, "GET", "/v2/logging")[1])["log_error"] is True

    running(ServerConfig(**PORTS), ask)


def test_in_tritons_place_they_do_as_there(tmp_path: Path) -> None:
    config = ServerConfig(**{**PORTS, "management_port": -1, "grpc_management_port": -1}, compat="triton")
    deployment = Deployment(server=config, triton=TritonSettings(repositories=[str(tmp_path)], mode="explicit"))

    def ask(app: App) -> None:
        assert status(app.addresses["inference"], "POST", "/v2/logging", {"log_info": True})[0] == 200

    running(config, ask, deployment)


@pytest.fixture
def certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, str]]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    yield own_certificate()


def test_old_tls_is_not_spoken(certificate: tuple[str, str]) -> None:
    context = tls_context(*certificate)
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2


def test_a_certificate_that_does_not_fit_is_named(certificate: tuple[str, str], tmp_path: Path) -> None:
    (tmp_path / "other.pem").write_text("no key")
    with pytest.raises(ConfigError, match=r"cannot use .*certificate.pem and .*other.pem for TLS"):
        tls_context(certificate[0], str(tmp_path / "other.pem"))

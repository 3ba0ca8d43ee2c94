"""TorchServe's and MMS's HTTP API over real workers and real sockets: what a client of theirs meets."""

import json
import os
import socket
import stat
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serving import Reply, Served, eventually, kill, serving

HANDLER = """
import json
import os
import time


def handle(data, context):
    if data is None:
        return None
    return [answer(row, index, context) for index, row in enumerate(data)]


def answer(row, index, context):
    asked = context.get_all_request_header(index)
    if asked.get("describe") == "True":
        return {"about": "me"}
    body = row.get("body")
    if body == "die":
        os._exit(9)
    if body == "sleep":
        time.sleep(30)
    if body == "headers":
        return {name.lower(): value for name, value in asked.items()}
    return {name: len(value) for name, value in row.items()}
"""
BROKEN = "import torhc\n\n\ndef handle(data, context):\n    return data\n"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store")
    (folder / "rows.py").write_text(HANDLER)
    (folder / "broken.py").write_text(BROKEN)
    return folder


def settings(store: Path, **more: object) -> str:
    values = {"compat": "torchserve", "model_store": str(store), "max_request_size": 100_000, **more}
    lines = [f"{key} = {json.dumps(value)}" for key, value in values.items()]
    model = f"[models.rows]\npath = {json.dumps(str(store / 'rows.py'))}\nmax_attempts = 1\nresponse_timeout = 5\n"
    return "\n".join([*lines, model, ""])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, store: Path) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("torchserve"), config=settings(store, cors_origin="*")) as served:
        yield served


def error(reply: Reply) -> tuple[int, str, str]:
    return reply.json["code"], reply.json["type"], reply.json["message"]


def text(server: Served, body: str, path: str = "/predictions/rows", **headers: str) -> Reply:
    return server.ask(path, body, headers={"Content-Type": "text/plain", **headers})


def raw(port: int, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
        client.sendall(request)
        received = b""
        while piece := client.recv(65536):
            received += piece
    return received


def test_an_answer_looks_as_upstreams(server: Served) -> None:
    received = raw(
        server.port,
        b"POST /predictions/rows HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Request-Id: mine\r\n"
        b"Content-Length: 2\r\n\r\nhi",
    )
    head, _, body = received.partition(b"\r\n\r\n")

    assert head.startswith(b"HTTP/1.1 200 \r\n")
    assert json.loads(body) == {"body": 2}
    headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
    assert uuid.UUID(headers["x-request-id"]).version == 4
    assert headers["Cache-Control"] == "no-cache; no-store, must-revalidate, private"
    assert headers["Access-Control-Allow-Origin"] == "*"


@pytest.mark.parametrize(
    ("path", "explain", "url_path"),
    [
        ("/explanations/rows", "True", None),
        ("/predictions/rows/1.0/a/b", None, "a/b"),
        ("/v1/models/rows:explain", "True", None),
        ("/models/rows/invoke", None, None),
    ],
)
def test_a_handler_hears_how_it_was_called(
    server: Served, path: str, explain: str | None, url_path: str | None
) -> None:
    heard = json.loads(text(server, "headers", path).body)

    assert (heard.get("explain"), heard.get("url_path")) == (explain, url_path)


def test_invocations_mean_the_model_that_was_there_at_the_start(server: Served) -> None:
    assert server.ask("/invocations?a=xyz", b"12").json == {"a": 3, "body": 2}
    assert server.ask("/rows/predict?a=xyz", b"12").json == {"a": 3, "body": 2}


def test_a_body_over_the_limit_is_refused_without_a_word(server: Served) -> None:
    reply = server.ask("/predictions/rows", b"x" * 100_001)
    expecting = raw(
        server.port,
        b"POST /predictions/rows HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 100001\r\n\r\n",
    )

    assert (reply.status, reply.body, reply.headers["content-length"]) == (413, b"", "0")
    assert expecting.startswith(b"HTTP/1.1 413")


def test_what_is_no_http_is_refused_in_upstreams_words(server: Served) -> None:
    received = raw(server.port, b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx")

    assert received.startswith(b"HTTP/1.1 400")
    assert b'"message": "Invalid HTTP message."' in received


def test_a_connection_stays_open_after_an_error(server: Served) -> None:
    missing = b"GET /predictions/nobody HTTP/1.1\r\nHost: x\r\n\r\n"
    last = b"GET /nowhere HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    received = raw(server.port, missing + missing + last)

    assert received.count(b"HTTP/1.1 404") == 3


def test_a_worker_that_dies_is_said_in_upstreams_words_and_the_next_one_answers(server: Served) -> None:
    assert error(text(server, "die")) == (500, "InternalServerException", "Worker died.")
    assert server.ask("/ping").json == {"status": "Healthy"}
    assert text(server, "hi").status == 200


def test_a_model_is_registered_described_scaled_and_removed(server: Served) -> None:
    def manage(path: str, method: str) -> Reply:
        return server.manage(path, method)

    registered = manage("/models?url=rows.py&model_name=two&initial_workers=1&batch_size=x", "POST")
    assert registered.json == {"status": 'Model "two" Version: 1.0 registered with 1 initial workers'}
    assert error(manage("/models?url=rows.py&model_name=two", "POST"))[:2] == (409, "ConflictStatusException")
    scaled = manage("/models/two?min_worker=2&max_worker=3&synchronous=true", "PUT")
    assert scaled.json == {"status": "Workers scaled to 2 for model: two"}
    (described,) = manage("/models/two?customized=true", "GET").json
    assert described["customizedMetadata"] == {"about": "me"}
    assert (described["minWorkers"], described["maxWorkers"]) == (2, 3)
    workers = described["workers"]
    assert [worker["status"] for worker in workers] == ["READY", "READY"]
    assert all(int(worker["id"]) >= 9000 and worker["memoryUsage"] > 1_000_000 for worker in workers)
    assert all(Path(f"/proc/{worker['pid']}").exists() for worker in workers)
    assert [row["modelName"] for row in manage("/models", "GET").json["models"]] == ["rows", "two"]
    assert manage("/v1/models/two", "GET").json == {"name": "two", "ready": True}
    assert manage("/models/two?min_worker=0&synchronous=true", "PUT").status == 200
    assert error(text(server, "hi", "/predictions/two/1.0"))[2].startswith('Model "two" Version 1.0" has no worker')
    assert manage("/models/two", "DELETE").json == {"status": 'Model "two" unregistered'}
    assert error(manage("/models/two", "GET")) == (404, "ModelNotFoundException", "Model not found: two")


def test_a_handler_that_fails_to_load_is_told_of_and_can_be_read_about(server: Served) -> None:
    refused = error(server.manage("/models?url=broken.py&initial_workers=1", "POST"))
    assert refused[:2] == (500, "InternalServerException")
    assert refused[2].startswith("Failed to start workers for model broken version: 1.0: ")
    assert "torhc" in refused[2]
    assert server.manage("/models/broken").status == 404

    assert server.manage("/models?url=broken.py&initial_workers=1&synchronous=false", "POST").status == 202

    def described() -> dict[str, str]:
        found: dict[str, str] = server.manage("/models/broken").json[0]
        return found

    eventually(lambda: described()["state"] == "failed", "the model has failed")
    assert "torhc" in described()["error"]
    assert 'broken.py", line 1' in described()["traceback"]
    assert server.ask("/ping").status == 500
    assert server.manage("/models/broken", "DELETE").status == 200
    assert server.ask("/ping").status == 200


def test_every_listener_describes_its_api(server: Served) -> None:
    for port, path in ((server.port, "/ping"), (server.management_port, "/models"), (server.metrics_port, "/metrics")):
        document = server.ask("/", method="OPTIONS", port=port)
        assert document.json["info"] == {"title": "TorchServe APIs", "version": "0.12.0"}
        assert path in document.json["paths"]
        assert server.ask("/api-description", port=port).body == document.body
        assert error(server.ask("/", port=port))[:2] == (405, "MethodNotAllowedException")


def test_tokens_guard_both_apis_on_one_port(tmp_path: Path, store: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    keys = tmp_path / "key_file.json"
    config = settings(store, token_authorization=True, key_file=str(keys), model_api=False)
    with serving(tmp_path, config=config, ports=(port, port, 0)) as served:
        assert stat.S_IMODE(os.stat(keys).st_mode) == 0o600

        def key(name: str) -> dict[str, str]:
            return {"Authorization": f"Bearer {json.loads(keys.read_text())[name]['key']}"}

        assert error(served.ask("/predictions/rows", "x"))[:2] == (400, "InvalidKeyException")
        assert served.ask("/predictions/rows", "x", headers=key("inference")).status == 200
        assert served.ask("/ping", headers=key("management")).status == 400
        assert served.ask("/models/rows/1.0", headers=key("inference")).status == 400
        for path in ("/models", "/models/rows", "/models/rows/1.0", "/models/rows/all"):
            assert served.ask(path, headers=key("management")).status == 200
        assert served.ask("/models?url=rows.py", method="POST", headers=key("management")).status == 405
        assert served.ask("/token?type=inference", headers=key("API")).body == b"\n"
        assert served.ask("/predictions/rows", "x", headers=key("inference")).status == 200
        assert served.ask("/metrics").status == 200
        assert served.ask("/", method="OPTIONS").status == 200
    assert not keys.exists()


def test_inference_and_metrics_on_one_port_do_not_bring_management_with_them(tmp_path: Path, store: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with serving(tmp_path, config=settings(store), ports=(port, 0, port)) as served:
        assert served.ask("/models").status == 404
        assert served.ask("/metrics").status == 200
        assert served.manage("/models").status == 200


def test_management_has_a_socket_of_its_own(tmp_path: Path, store: Path) -> None:
    path = tmp_path / "m.sock"
    with serving(tmp_path, config=settings(store, management_unix_socket=str(path))) as served:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            client.sendall(b"GET /models/rows HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert client.recv(65536).startswith(b"HTTP/1.1 200")
        assert served.manage("/models").status == 200


def test_mms_is_spoken_too(tmp_path: Path, store: Path) -> None:
    with serving(tmp_path, config=settings(store, compat="mms")) as served:
        assert served.ask("/ping").json == {"status": "Healthy"}
        assert served.manage("/models/rows").json["workers"][0]["status"] == "READY"
        assert served.manage("/models?url=rows.py&model_name=two&initial_workers=1", "POST").json == {
            "status": "Workers scaled"
        }
        assert served.ask("/explanations/rows").status == 404
        assert text(served, "hi", "/predictions/rows/ignored").json == {"body": 2}
        kill(served.manage("/models/rows").json["workers"][0]["pid"])
        eventually(lambda: text(served, "hi").status == 200, "another worker answers")

"""The examples, run as their own words say; those for web frameworks need the frameworks."""

import asyncio
import contextlib
import http.client
import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from shoal.errors import InvalidInput
from shoal.testing import run_handler, serving

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name: str) -> ModuleType:
    spec = spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def ask_together(ask: Callable[[int], Any], count: int) -> list[Any]:
    """Ask from as many threads at the same moment."""
    ready = threading.Barrier(count)

    def ask_one(number: int) -> Any:
        ready.wait(20)
        return ask(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(ask_one, range(count)))


def test_echo_is_served() -> None:
    with serving(EXAMPLES / "echo.py") as client:
        assert client.model == "echo"
        assert client.predict("hello") == "hello"
        assert client.predict({"a": 1}) == {"a": 1}


def test_sentiment_reads_text_and_is_served() -> None:
    friendly, unfriendly, refused = run_handler(EXAMPLES / "sentiment.py", ["What a lovely day!", "awful", 3])
    assert friendly == {"score": 2, "label": "friendly"}
    assert unfriendly == {"score": -2, "label": "unfriendly"}
    assert isinstance(refused, InvalidInput)
    with serving(EXAMPLES / "sentiment.py", parameters={"words": {"hm": -1}}) as client:
        assert client.predict("hm.") == {"score": -1, "label": "unfriendly"}


def test_a_flask_app_batches_the_requests_of_its_threads() -> None:
    pytest.importorskip("flask")
    example = load("flask_app")
    server = import_module("werkzeug.serving").make_server("127.0.0.1", 0, example.app, threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()

    def ask(number: int) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
        with contextlib.closing(connection):
            body = json.dumps({"text": "x" * number})
            connection.request("POST", "/score", body, {"content-type": "application/json"})
            return json.loads(connection.getresponse().read())

    try:
        assert ask_together(ask, 16) == [{"score": number} for number in range(16)]
        assert example.app.test_client().get("/batches").get_json()["answered"] == 16
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        example.score.close()


def test_a_fastapi_app_batches_requests_in_flight() -> None:
    pytest.importorskip("fastapi")
    example = load("fastapi_app")

    async def main() -> None:
        asked = [ask_asgi(example.app, "POST", "/score", {"text": "x" * number}) for number in range(16)]
        assert await asyncio.gather(*asked) == [(200, {"score": number}) for number in range(16)]
        status, facts = await ask_asgi(example.app, "GET", "/batches")
        assert (status, facts["answered"]) == (200, 16)
        assert facts["batches"] < 16
        example.score.close()
        refused = await ask_asgi(example.app, "POST", "/score", {"text": "x"})
        assert refused == (503, {"detail": "score is closed"})

    asyncio.run(main())


async def ask_asgi(app: Any, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """One request as an ASGI server would hand it over, and its answer."""
    sent: list[dict[str, Any]] = []
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "path": path,
    }
    scope |= {"query_string": b"", "headers": [(b"content-type", b"application/json")]}

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"" if body is None else json.dumps(body).encode()}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent[0]["status"], json.loads(b"".join(message.get("body", b"") for message in sent[1:]))

"""A decoupled model that answers many requests at once from one instance: a real server and a real worker."""

import contextlib
import http.client
import json
import os
import signal
import urllib.request
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.process.test_triton_bls import Served, put, serving
from tests.serving import eventually

STREAMS = (
    'backend: "python" input [ { name: "N" data_type: TYPE_INT32 dims: [ 1 ] } ] output [ { name: "I" data_type: '
    "TYPE_INT32 dims: [ 1 ] } ] model_transaction_policy { decoupled: true } "
)
MODELS = {
    "one": "instance_group [ { count: 1 kind: KIND_CPU } ]",
    "fifty": "instance_group [ { count: 1 kind: KIND_CPU } ]",
    "two": "instance_group [ { count: 2 kind: KIND_CPU } ]",
    "gone": "instance_group [ { count: 1 kind: KIND_CPU } ]",
}


class Streams:
    """Many clients of one server."""

    def __init__(self, served: Served, pool: ThreadPoolExecutor) -> None:
        self.served = served
        self._pool = pool

    def begin(self, model: str, number: int, group: str = "", of: int = 0) -> "Future[list[Any]]":
        """Ask for a stream; what it is told, and at the end the error if there was one."""
        return self._pool.submit(self._stream, model, {"N": number, "group": group, "of": of})

    def connect(self, model: str, group: str) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """Begin a stream without end, whose first answer has come."""
        connection = http.client.HTTPConnection("127.0.0.1", self.served.port, timeout=60)
        body = json.dumps({"N": -1, "group": group})
        connection.request("POST", f"/v2/models/{model}/generate_stream", body)
        response = connection.getresponse()
        assert json.loads(response.readline().removeprefix(b"data: "))["I"] == -1
        return connection, response

    def notes(self, model: str) -> list[str]:
        return (self.served.root / model / "notes").read_text().splitlines()

    def post(self, path: str) -> None:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.served.port}{path}", b"{}", timeout=60):
            return

    def counts(self, model: str) -> list[int]:
        """Give how many requests, executions and successes there were."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.served.port}/v2/models/{model}/stats", timeout=60) as told:
            stats = json.loads(told.read())["model_stats"][0]
        return [stats["inference_count"], stats["execution_count"], stats["inference_stats"]["success"]["count"]]

    def _stream(self, model: str, asked: dict[str, Any]) -> list[Any]:
        url = f"http://127.0.0.1:{self.served.port}/v2/models/{model}/generate_stream"
        with urllib.request.urlopen(url, json.dumps(asked).encode(), timeout=60) as answer:
            told = [json.loads(line.removeprefix("data: ")) for line in answer.read().decode().split("\n\n") if line]
        return [each.get("I", each.get("error")) for each in told]


@pytest.fixture(scope="module")
def streams(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Streams]:
    root: Path = tmp_path_factory.mktemp("repository")
    for name, settings in MODELS.items():
        put(root, name, "streams.py", STREAMS + settings)
    loads = [f"--load-model={name}" for name in MODELS]
    with serving(root, "--model-control-mode=explicit", *loads) as served, ThreadPoolExecutor(64) as pool:
        yield Streams(served, pool)


def test_fifty_streams_of_one_instance_are_answered_together_and_each_in_its_order(streams: Streams) -> None:
    begun = [streams.begin("fifty", 5 + number % 7, "fifty", 50) for number in range(50)]

    assert [future.result(30) for future in begun] == [list(range(5 + number % 7)) for number in range(50)]
    eventually(lambda: streams.counts("fifty") == [50, 50, 50], "fifty requests and executions are counted", 20)


def test_who_leaves_does_not_disturb_the_others(streams: Streams) -> None:
    begun = [streams.begin("one", 20, "stay", 6) for _ in range(5)]
    connection, response = streams.connect("one", "leaver")
    response.close()
    connection.close()
    eventually(lambda: "leaver left" in streams.notes("one"), "the model hears that its client left", 20)
    begun.append(streams.begin("one", 20, "stay", 6))

    assert [future.result(30) for future in begun] == [list(range(20))] * 6


def test_the_death_of_a_worker_ends_what_was_answered_and_the_others_begin_again(streams: Streams) -> None:
    begun = [streams.begin("one", 4, "again", 21) for _ in range(20)]
    eventually(lambda: "again 20" in streams.notes("one"), "all are open", 30)
    talking = [streams.connect("one", "talking") for _ in range(5)]
    pids = [line for line in streams.notes("one") if line.startswith("pid")]
    os.kill(int(pids[-1].split()[1]), signal.SIGKILL)
    for connection, response in talking:
        with contextlib.suppress(http.client.IncompleteRead):
            *pieces, last = [line for line in response.read().split(b"\n\n") if line]
            assert b"error" in last and not any(b"error" in piece for piece in pieces)
        connection.close()
    begun.append(streams.begin("one", 4, "again", 21))

    assert [future.result(30) for future in begun] == [[0, 1, 2, 3]] * 21
    assert streams.notes("one").count("again 20") == 2, "they were all open twice"


def test_instances_share_the_streams(streams: Streams) -> None:
    talking = [streams.connect("two", "shared") for _ in range(6)]
    found = sorted(note for note in streams.notes("two") if note.startswith("shared"))
    for connection, _ in talking:
        connection.close()

    assert found == ["shared 1", "shared 1", "shared 2", "shared 2", "shared 3", "shared 3"]


def test_a_model_is_unloaded_after_its_last_stream(streams: Streams) -> None:
    begun = [streams.begin("gone", 100, "last", 8) for _ in range(8)]
    eventually(lambda: "last 8" in streams.notes("gone"), "all are open", 30)
    streams.post("/v2/repository/models/gone/unload")

    assert [future.result(30) for future in begun] == [list(range(100))] * 8

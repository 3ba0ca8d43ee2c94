"""Modes of batching through a real server: proved or refuted once for all workers, joined, and by ticket."""

import asyncio
import re
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.serving import MODELS, Reply, Served, eventually, kill, load, serving
from tests.unit.archive.archives import make_mar

HANDLERS = (MODELS / "upstream" / "batching" / "batching.py").read_bytes()


@contextmanager
def served(tmp_path: Path, handler: str, settings: str = "") -> Iterator[Served]:
    """A server with one worker of a model `m`, made of this handler and a model-config.yaml."""
    (tmp_path / "store").mkdir()
    (tmp_path / "temporary").mkdir()
    files = {"h.py": HANDLERS, "c.yaml": settings.encode() or b"{}"}
    make_mar(tmp_path / "store" / "m.mar", files, handler=f"h.py:{handler}", configFile="c.yaml")
    environment = {"TMPDIR": str(tmp_path / "temporary")}
    with serving(tmp_path, "--model-store", str(tmp_path / "store"), environment=environment) as server:
        query = urllib.parse.urlencode({"url": "m.mar", "initial_workers": "1", "synchronous": "true"})
        assert server.manage(f"/models?{query}", "POST").status == 200
        yield server


def described(server: Served) -> dict[str, Any]:
    (model,) = server.manage("/models/m").json
    return dict(model)


def proof(server: Served) -> str:
    return str(described(server)["batching"]["proof"])


def send(server: Served, count: int = 200) -> list[tuple[int, bytes]]:
    """Many different requests at once."""
    bodies = [b"text %d" % number for number in range(count)]
    answers = asyncio.run(load(server.port, "/predictions/m", bodies, 16))
    return [(status, body) for status, body in answers]


def check(answers: list[tuple[int, bytes]]) -> None:
    assert answers == [(200, b"TEXT %d" % number) for number in range(len(answers))]


@pytest.mark.parametrize("handler", ["repeated", "first_only", "alone_only"])
def test_a_handler_that_cannot_batch_answers_rightly_and_is_sent_no_batches(tmp_path: Path, handler: str) -> None:
    with served(tmp_path, handler) as server:
        assert proof(server) == "not yet"
        check(send(server))
        assert proof(server).startswith("no: ")
        batching = described(server)["batching"]
        assert (batching["policy"], described(server)["batchSize"]) == ("single", 1)

        (pid,) = server.worker_pids("m")
        kill(pid)
        eventually(lambda: server.worker_pids("m") not in ([pid], [-1]), "a new worker")
        check(send(server))
        assert server.log.read_text().count("checking that") == 1
        assert described(server)["batching"]["failed"] == 0


def test_a_handler_that_can_batch_is_batched_also_in_later_workers(tmp_path: Path) -> None:
    with served(tmp_path, "honest") as server:
        assert all(status == 200 for status, _ in send(server))
        assert proof(server) == "yes"
        checks = server.log.read_text().count("checking that")
        assert checks == 2
        server.manage("/models/m?min_worker=2&synchronous=true", "PUT")
        send(server)
        assert server.log.read_text().count("checking that") == checks
        batches = [rows for rows in re.findall(r"rows (\d+)", server.log.read_text()) if rows != "1"]
        assert len(batches) > checks, "there are batches that are no checks"


def test_a_check_that_kills_the_worker_is_not_tried_again(tmp_path: Path) -> None:
    with served(tmp_path, "mortal") as server:
        check(send(server))
        assert proof(server) == "no: the worker did not survive that requests were run together"
        check(send(server))
        assert [worker["restarts"] for worker in described(server)["workers"]] == [1]


def test_requests_join_a_running_batch_and_each_gets_its_own_pieces(tmp_path: Path) -> None:
    with served(tmp_path, "letters", "continuousBatching: true\nbatchSize: 4\n") as server:
        texts = [letter * 2000 for letter in "abcdefgh"]
        replies: dict[str, Reply] = {}

        def ask(text: str) -> None:
            replies[text] = server.ask("/predictions/m", text, headers={"Content-Type": "text/plain"})

        threads = [threading.Thread(target=ask, args=(text,)) for text in texts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        together = set()
        for text, reply in replies.items():
            steps = reply.body.decode().split()
            assert "".join(step[0] for step in steps) == text
            assert (reply.status, reply.headers["ts_stream_next"]) == (200, "true")
            assert reply.headers["transfer-encoding"] == "chunked"
            together |= {int(step[1:]) for step in steps}
        assert together <= {1, 2, 3, 4}
        assert max(together) > 2, "all places of the worker are used"
        model = described(server)
        assert (model["batchSize"], model["continuousBatching"]) == (4, True)
        assert model["batching"]["policy"] == "continuous"
        assert server.ask("/predictions/m", "x", headers={"Content-Type": "text/plain"}).body == b"x1 "


def test_with_job_tickets_a_request_needs_an_idle_worker(tmp_path: Path) -> None:
    with served(tmp_path, "patient", "useJobTicket: true\n") as server:
        gate = tmp_path / "gate"
        replies: list[Reply] = []
        first = threading.Thread(target=lambda: replies.append(server.ask("/predictions/m", str(gate))))
        first.start()
        eventually(lambda: server.metric("shoal_batches_running") == 1, "the first request runs")

        refused = server.ask("/predictions/m", str(gate))
        assert (refused.status, refused.json["type"]) == (503, "ServiceUnavailableException")
        gate.write_text("")
        first.join()
        assert [reply.body for reply in replies] == [b"there"]
        assert server.ask("/predictions/m", str(gate)).status == 200

"""Deadlines end to end, in each protocol: what waited too long is never run, and no worker pays for it."""

import http.client
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from shoal.frontend.grpc.proto import grpc_service_pb2 as pb
from tests.process.kserve_front import Front, fronting, model
from tests.serving import MODELS, Served, eventually, serving

TRICKS = str(MODELS / "tricks.py")
SLOW = 2_000_000  # microseconds that a row of the model takes: long beside the limits that are set


def hold(server: Served, seconds: float) -> socket.socket:
    """Keep the only worker busy."""
    body = json.dumps({"do": "sleep", "seconds": seconds}).encode()
    link = socket.create_connection(("127.0.0.1", server.port), timeout=30)
    head = (
        b"POST /predictions/tricks HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    )
    link.sendall(head % len(body) + body)
    eventually(lambda: server.metric("shoal_batches_running") == 1, "the worker is busy")
    return link


def test_a_header_bounds_the_wait_and_the_worker_stays(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    with serving(tmp_path, TRICKS, "--batch-size", "1") as server:
        pids = server.worker_pids()
        busy = hold(server, 2.0)
        late = server.ask(
            "/predictions/tricks", {"do": "touch", "path": str(mark)}, headers={"X-Request-Timeout-Ms": "150"}
        )

        assert late.status == 504
        assert server.metric("shoal_batches_running") == 1, "refused at its time, not when the worker was free"
        assert busy.recv(65536).startswith(b"HTTP/1.1 200")
        busy.close()
        assert server.ask("/predictions/tricks", "x").status == 200
        assert not mark.exists()
        assert server.worker_pids() == pids
        assert server.metric("shoal_worker_restarts_total") == 0


def test_a_deadline_that_passes_while_the_batch_runs_does_not_cost_the_worker(tmp_path: Path) -> None:
    with serving(tmp_path, TRICKS, "--batch-size", "1") as server:
        pids = server.worker_pids()
        reply = server.ask(
            "/predictions/tricks", {"do": "sleep", "seconds": 0.6}, headers={"X-Request-Timeout-Ms": "100"}
        )

        assert reply.status in (200, 504)
        assert server.ask("/predictions/tricks", "x").status == 200
        assert server.worker_pids() == pids


def test_the_model_s_own_time_holds_for_whoever_says_nothing(tmp_path: Path) -> None:
    config = f'[models.tricks]\npath = "{TRICKS}"\nrequest_timeout = 0.15\nbatching = {{policy = "single"}}\n'
    mark = tmp_path / "mark"
    with serving(tmp_path, config=config) as server:
        busy = hold(server, 2.0)
        late = server.act(do="touch", path=str(mark))

        assert late.status == 504
        assert busy.recv(65536)
        busy.close()
        assert not mark.exists()


@pytest.fixture(scope="module")
def front() -> Iterator[Front]:
    with fronting([model("slow", "INT32", [1], does="obey", rows=1)]) as front:
        yield front


def infer(front: Front, number: int, *, timeout: int = 0, header: str = "") -> tuple[int, str]:
    link = http.client.HTTPConnection("127.0.0.1", front.http, timeout=30)
    body: dict[str, Any] = {"inputs": [{"name": "IN", "shape": [1, 1], "datatype": "INT32", "data": [number]}]}
    if timeout:
        body["parameters"] = {"timeout": timeout}
    try:
        link.request(
            "POST", "/v2/models/slow/infer", json.dumps(body), {"X-Request-Timeout-Ms": header} if header else {}
        )
        answer = link.getresponse()
        return answer.status, answer.read().decode()
    finally:
        link.close()


def infer_by_grpc(front: Front, number: int, *, timeout: float = 30.0, waits: int = 0) -> tuple[int, str]:
    request = pb.ModelInferRequest(model_name="slow", raw_input_contents=[struct.pack("<i", number)])
    request.inputs.add(name="IN", datatype="INT32", shape=[1, 1])
    if waits:
        request.parameters["timeout"].int64_param = waits
    with grpc.insecure_channel(front.grpc) as channel:
        call = channel.unary_unary(
            "/inference.GRPCInferenceService/ModelInfer",
            request_serializer=pb.ModelInferRequest.SerializeToString,
            response_deserializer=pb.ModelInferResponse.FromString,
        )
        try:
            call(request, timeout=timeout)
        except grpc.RpcError as error:
            return error.code().value[0], error.details()
    return 0, ""


def late(front: Front, ask: Callable[[Front], tuple[int, str]]) -> tuple[int, str, int]:
    """Ask while the only worker is busy; gives what came back, and how many were answered before.

    Where the machine stood still for so long that the worker was free first, the request is not late: once more.
    """
    found = front.app.repository.find("slow")
    for _ in range(3):
        answered = found.scheduler.stats.answered
        busy = threading.Thread(target=infer, args=(front, SLOW))
        busy.start()
        eventually(lambda: found.scheduler.running == 1, "the worker is busy")
        status, words = ask(front)
        is_late = found.scheduler.stats.answered == answered
        busy.join()
        if is_late:
            break
        eventually(lambda: found.scheduler.is_idle, "nothing waits")
    return status, words, answered


@pytest.mark.parametrize(
    ("ask", "outcome"),
    [
        (lambda front: infer(front, 5, timeout=150_000), ({503}, "timeout expired")),
        (lambda front: infer(front, 5, header="150"), ({503}, "timeout expired")),
        (lambda front: infer_by_grpc(front, 5, timeout=0.15), ({4, 14}, "")),  # whoever says it first
        (lambda front: infer_by_grpc(front, 5, waits=150_000), ({14}, "timeout expired")),
    ],
    ids=["v2 parameter", "v2 header", "gRPC deadline", "gRPC parameter"],
)
def test_every_way_to_say_a_deadline_reaches_the_queue(
    front: Front, ask: Callable[[Front], tuple[int, str]], outcome: tuple[set[int], str]
) -> None:
    found = front.app.repository.find("slow")
    pid = found.pool.describe()[0].pid
    status, words, answered = late(front, ask)

    assert status in outcome[0]
    assert outcome[1] in words.lower()
    eventually(lambda: found.scheduler.is_idle, "nothing waits")
    assert found.scheduler.stats.answered == answered + 1, "the late one was never run"
    assert found.pool.describe()[0].pid == pid
    assert found.scheduler.stats.restarts == 0


def test_a_caller_that_leaves_is_withdrawn_while_it_waits(front: Front) -> None:
    found = front.app.repository.find("slow")
    withdrawn = found.scheduler.stats.withdrawn
    busy = threading.Thread(target=infer, args=(front, SLOW))
    busy.start()
    eventually(lambda: found.scheduler.running == 1, "the worker is busy")
    body = json.dumps({"inputs": [{"name": "IN", "shape": [1, 1], "datatype": "INT32", "data": [5]}]}).encode()
    link = socket.create_connection(("127.0.0.1", front.http), timeout=30)
    link.sendall(b"POST /v2/models/slow/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
    eventually(lambda: len(found.scheduler.batcher.queue) == 1, "it waits")
    link.close()

    eventually(lambda: found.scheduler.stats.withdrawn == withdrawn + 1, "it is withdrawn")
    busy.join()

"""A request leaves no garbage in cycles, however it ends: the front process looks for it seldom."""

import http.client
import json
import os
import re
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.serving import MODELS, Served, eventually, serving

TIMES = 20
COUNTS = """
import gc, os, signal

def count(*_):
    os.write(2, b"cycles: %d from %d\\n" % (gc.collect(), gc.get_threshold()[0]))

gc.disable()
signal.signal(signal.SIGUSR2, count)
"""


def collected(server: Served) -> tuple[int, int]:
    """Have the front processes collect; gives how many objects were in cycles, and how many new ones each waits for."""

    def counts() -> list[tuple[int, int]]:
        lines = re.findall(r"cycles: (\d+) from (\d+)", server.log.read_text())
        return [(int(count), int(threshold)) for count, threshold in lines]

    pids = [server.process.pid, *server.front_pids()]
    before = len(counts())
    for pid in pids:
        os.kill(pid, signal.SIGUSR2)
    eventually(lambda: len(counts()) == before + len(pids), "all have collected")
    own = counts()[before:]
    return sum(count for count, _ in own), min(threshold for _, threshold in own)


def begin(server: Served, seconds: float) -> socket.socket:
    """Ask for something that takes a while."""
    body = json.dumps({"do": "sleep", "seconds": seconds}).encode()
    link = socket.create_connection(("127.0.0.1", server.port), timeout=30)
    head = b"POST /predictions/tricks HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d"
    link.sendall(head % len(body) + b"\r\n\r\n" + body)
    return link


def leave(server: Served) -> None:
    """Close the connection before the answer."""
    begin(server, 0.01).close()


def wait_too_long(server: Served) -> None:
    """Wait behind another request until the deadline; anew where that one was over by then."""
    status = 0
    while status != 504:
        with begin(server, 0.1) as busy:
            status = server.ask("/predictions/tricks", "x", headers={"X-Request-Timeout-Ms": "1"}).status
            busy.recv(65536)


def find_it_full(server: Served) -> None:
    """Ask while as many wait as may; anew where they were through by then."""
    status = 0
    while status != 503:
        with begin(server, 0.05) as busy, begin(server, 0) as waiting:
            status = server.ask("/predictions/tricks", "x").status
            is_infer(server)
            busy.recv(65536)
            waiting.recv(65536)


def stay(server: Served) -> None:
    """Ask again and again on one connection."""
    link = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    for _ in range(5):
        link.request("POST", "/predictions/tricks", b"x" * 100_000, {"Content-Type": "application/octet-stream"})
        assert link.getresponse().read() == b"x" * 100_000
    link.close()


def is_infer(server: Served) -> bool:
    tensor = {"name": "input", "shape": [1], "datatype": "FP32", "data": [1.0]}
    return server.ask("/v2/models/tricks/infer", {"inputs": [tensor]}).status < 500


KINDS: dict[str, Callable[[Served], object]] = {
    "answered": lambda server: server.ask("/predictions/tricks", "x"),
    "on one connection": stay,
    "no such model": lambda server: server.ask("/predictions/none", "x"),
    "no such path": lambda server: server.ask("/none"),
    "a body that is none": lambda server: server.ask(
        "/predictions/tricks", b"{", headers={"Content-Type": "application/json"}
    ),
    "failed alone": lambda server: server.act(do="fail", message="no", status=418),
    "failed together": lambda server: server.act(do="raise", message="no"),
    "in pieces": lambda server: server.act(do="count", to=20),
    "left": leave,
    "too late": wait_too_long,
    "refused": find_it_full,
    "tensors": is_infer,
    "described": lambda server: server.manage("/models/tricks"),
}


@pytest.mark.parametrize("shape", [(), ("--frontends", "2")], ids=["one process", "two that accept"])
def test_however_requests_end_the_collector_finds_nothing(tmp_path: Path, shape: tuple[str, ...]) -> None:
    (tmp_path / "sitecustomize.py").write_text(COUNTS)
    config = f'[models.tricks]\npath = "{MODELS / "tricks.py"}"\nqueue_size = 1\n'
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    with serving(tmp_path, *shape, config=config, environment={"PYTHONPATH": path}) as server:
        for ask in KINDS.values():  # what is imported or made the first time
            ask(server)
        eventually(lambda: server.metric("shoal_batches_running") == 0, "all have ended")
        collected(server)
        found = {}
        for name, ask in KINDS.items():
            for _ in range(TIMES):
                ask(server)
            eventually(lambda: server.metric("shoal_batches_running") == 0, "all have ended")
            found[name], threshold = collected(server)
        assert threshold == 10_000
        assert {name: count for name, count in found.items() if count >= TIMES} == {}, "a cycle for every request"

"""The dashboard of a real server: which port tells what, and that an open page holds nothing up."""

import http.client
import json
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.serving import MODELS, Served, serving

ECHO = str(MODELS / "echo.py")
PATHS = ("/dashboard", "/dashboard/", "/dashboard/events", "/dashboard/orders/scale", "/pages/dashboard.js", "/models")


@contextmanager
def watching(server: Served) -> Iterator[Iterator[tuple[str, Any]]]:
    """Open a stream; its events."""
    link = http.client.HTTPConnection("127.0.0.1", server.management_port, timeout=30)
    link.request("GET", "/dashboard/events")
    answer = link.getresponse()
    assert answer.status == 200

    def events() -> Iterator[tuple[str, Any]]:
        while event := answer.readline():
            data = answer.readline()
            answer.readline()
            yield event.decode().strip().removeprefix("event: "), json.loads(data.decode().removeprefix("data: "))

    try:
        yield events()
    finally:
        link.close()


@pytest.mark.parametrize("compat", ["", "torchserve", "mms"])
def test_the_management_port_has_it_and_no_other_port_tells_anything(compat: str, tmp_path: Path) -> None:
    with serving(tmp_path, ECHO, config=f'compat = "{compat}"\n') as server:
        assert server.manage("/dashboard").body.startswith(b"<!doctype html>")
        for port in (server.port, server.metrics_port):
            for path in PATHS:
                for method in ("GET", "POST"):
                    answer = server.ask(path, method=method, port=port)
                    assert answer.status == 404, (path, method)
                    assert b"echo" not in answer.body
        with watching(server) as events:
            assert [next(events)[0] for _ in range(4)] == ["hello", "models", "model", "batches"]


def test_an_order_over_the_wire_scales_a_model(tmp_path: Path) -> None:
    with serving(tmp_path, ECHO) as server:
        answer = server.ask("/dashboard/orders/scale", {"model": "echo", "workers": 2}, port=server.management_port)
        assert answer.json == {"status": "Workers scaled to 2 for model: echo"}
        assert len(server.worker_pids("echo")) == 2


def test_the_batches_of_real_requests_are_told(tmp_path: Path) -> None:
    with serving(tmp_path, ECHO) as server, watching(server) as events:
        next(events)
        for _ in range(3):
            server.ask("/predictions/echo", "x", headers={"Content-Type": "text/plain"})
        ended: list[Any] = []
        for event, data in events:
            ended += data["ended"] if event == "batches" else []
            if sum(batch[5] for batch in ended) >= 3:
                break
        assert all(re.fullmatch(r"echo-1\.0-\d+", batch[1]) for batch in ended)
        assert all(batch[3] <= batch[4] for batch in ended)


def test_an_open_stream_hears_of_the_end_and_does_not_hold_it_up(tmp_path: Path) -> None:
    with serving(tmp_path, ECHO) as server, watching(server) as events:
        next(events)
        server.process.send_signal(signal.SIGTERM)
        *_, (event, data) = events
        assert (event, data) == ("bye", {"reason": "the server is stopping"})
        assert server.process.wait(20) == 0  # a drain that waits for the stream lasts 30 s


def test_a_shared_port_has_the_dashboard_because_it_has_management(tmp_path: Path) -> None:
    with serving(tmp_path, ECHO) as probe:
        free = probe.port
    with serving(tmp_path, ECHO, ports=(free, free, 0)) as server:
        assert server.ask("/dashboard").status == 200

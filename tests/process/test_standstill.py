"""A server that was stopped for a while, as by `docker pause` or a host that froze: nobody is blamed for that time."""

import http.client
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.serving import MODELS, Reply, Served, eventually, serving

TRICKS = MODELS / "tricks.py"
STOPPED = 6.0  # s, more than what clients and workers are given here,
GIVEN = 2  # which is enough for a busy machine


def connected(server: Served) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)


@contextmanager
def stopped(*pids: int) -> Iterator[None]:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("frontends", [1, 2])
def test_a_request_that_came_while_the_server_was_stopped_is_answered(tmp_path: Path, frontends: int) -> None:
    config = f'idle_timeout = {GIVEN}\nfrontends = {frontends}\n[models.tricks]\npath = "{TRICKS}"\n'
    with serving(tmp_path, config=config) as server, closing(connected(server)) as link:
        link.request("GET", "/ping")
        assert link.getresponse().read()
        here = link.sock
        with stopped(*server.front_pids(), server.process.pid):
            link.request("GET", "/ping")
            time.sleep(STOPPED)
        answer = link.getresponse()

        assert answer.status == 200 and answer.read()
        assert link.sock is here, "the same connection"
        eventually(lambda: not here.recv(1), "one that is silent is still closed")


def test_a_worker_that_answered_while_the_server_was_stopped_is_not_taken_for_hung(tmp_path: Path) -> None:
    replies: list[Reply] = []
    with serving(tmp_path, config=f'[models.tricks]\npath = "{TRICKS}"\nresponse_timeout = {GIVEN}\n') as server:
        (pid,) = server.worker_pids()
        asking = threading.Thread(target=lambda: replies.append(server.act(do="sleep", seconds=0.5)))
        asking.start()
        time.sleep(0.2)
        with stopped(server.process.pid):
            time.sleep(STOPPED)
        asking.join(30)

        assert [reply.status for reply in replies] == [200]
        assert server.worker_pids() == [pid]

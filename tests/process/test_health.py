"""What a server says of itself while its workers are not well."""

import os
import signal
from pathlib import Path

from tests.serving import MODELS, eventually, kill, serving

WEARING = str(MODELS / "wearing.py")
TRICKS = str(MODELS / "tricks.py")


def test_a_worker_that_died_and_does_not_come_back_is_seen_everywhere(tmp_path: Path) -> None:
    switch = tmp_path / "broken"
    config = f'[models.wearing]\npath = "{WEARING}"\n[models.wearing.parameters]\nswitch = "{switch}"\n'
    with serving(tmp_path, config=config) as server:
        assert server.ask("/ping").status == server.ask("/v2/health/ready").status == 200
        switch.touch()
        kill(server.worker_pids("wearing")[0])

        eventually(lambda: server.ask("/ping").status == 500, "health says so")
        assert server.ask("/v2/health/ready").status == 400
        eventually(lambda: server.manage("/models/wearing").json[0]["workers"][0]["restarts"] >= 3, "it is tried again")
        worker = server.manage("/models/wearing").json[0]["workers"][0]
        assert worker["status"] in ("WAITING", "STARTING")
        assert "does not come up any more" in worker["lastError"]
        assert "initialize" in worker["traceback"]
        assert worker["secondsInStatus"] >= 0
        eventually(lambda: server.ask("/predictions/wearing", b"1").status == 503, "requests are refused, not kept")
        switch.unlink()
        eventually(lambda: server.ask("/ping").status == 200, "it is well again", within=60)
        assert server.ask("/predictions/wearing", b"1").body == b"1"


def test_a_worker_that_stands_still_is_seen_and_replaced(tmp_path: Path) -> None:
    config = f'[models.tricks]\npath = "{TRICKS}"\nresponse_timeout = 1\nbatching = {{policy = "single"}}\n'
    with serving(tmp_path, config=config) as server:
        (pid,) = server.worker_pids()
        os.kill(pid, signal.SIGSTOP)
        reply = server.ask("/predictions/tricks", "x")

        assert reply.status == 504
        eventually(lambda: server.ask("/ping").status == 200, "another is up")
        facts = server.manage("/models/tricks").json[0]
        (worker,) = facts["workers"]
        assert worker["pid"] != pid
        assert "hung" in worker["lastError"]
        assert facts["faults"]["restarts"] == worker["restarts"] == 1
        assert facts["state"] == "ready"
        assert facts["secondsInState"] > worker["secondsInStatus"]


def test_the_last_error_of_a_handler_is_told_with_its_traceback_and_the_worker_stays(tmp_path: Path) -> None:
    with serving(tmp_path, TRICKS) as server:
        pids = server.worker_pids()
        assert server.act(do="raise", message="not today").status == 500
        (worker,) = server.manage("/models/tricks").json[0]["workers"]

        assert "not today" in worker["lastError"]
        assert "in act" in worker["traceback"]
        assert worker["restarts"] == 0
        assert server.worker_pids() == pids


def test_how_long_a_worker_has_been_at_its_batch_is_told(tmp_path: Path) -> None:
    with serving(tmp_path, TRICKS) as server:
        (worker,) = server.manage("/models/tricks").json[0]["workers"]
        assert (worker["secondsAtBatch"], worker["answered"]) == (0, 0)
        assert server.act(do="pid").status == 200
        assert server.manage("/models/tricks").json[0]["workers"][0]["answered"] == 1

"""Workers that make room for fresh ones, and models that leave nothing behind."""

import asyncio
import os
import time
from pathlib import Path

import pytest

from tests.serving import MODELS, eventually, is_alive, load, serving

WEARING = str(MODELS / "wearing.py")
TRICKS = str(MODELS / "tricks.py")


@pytest.mark.parametrize(
    "recycle",
    ["requests = 300", "age = 0.5", "memory = 40_000_000", "device_memory = 100_000_000"],
    ids=["requests", "age", "memory", "device memory"],
)
@pytest.mark.timeout(120)
def test_workers_are_replaced_under_load_and_no_request_is_lost(tmp_path: Path, recycle: str) -> None:
    config = f'[models.wearing]\npath = "{WEARING}"\nworkers = 2\nresponse_timeout = 8\nrecycle = {{{recycle}}}\n'
    config += "parameters = {fills_device = true}\n" if "device" in recycle else ""
    with serving(tmp_path, config=config) as server:
        first = set(server.worker_pids("wearing"))
        end = time.monotonic() + 90
        sent = 0
        while server.metric("shoal_workers_recycled_total") < 4:
            assert time.monotonic() < end, server.log.read_text()
            bodies = [b"%d" % number for number in range(sent, sent + 400)]
            assert asyncio.run(load(server.port, "/predictions/wearing", bodies, 16)) == [(200, b) for b in bodies]
            sent += 400

        eventually(lambda: not any(map(is_alive, first)), "the first workers are gone")
        assert server.metric("shoal_worker_restarts_total") == 0
        now = server.manage("/models/wearing").json[0]
        assert len(now["workers"]) == 2
        assert now["faults"]["recycled"] >= 4
        outcome = 'shoal_requests_total{model_name="wearing",model_version="1.0",outcome="%s"}'
        assert server.metric(outcome % "answered") == sent
        assert server.metric(outcome % "failed") == 0


def test_a_worker_whose_device_is_lost_is_replaced_and_only_the_guilty_fails(tmp_path: Path) -> None:
    with serving(tmp_path, WEARING) as server:
        (pid,) = server.worker_pids("wearing")
        reply = server.ask("/predictions/wearing", b"lose the device")

        assert reply.status == 500
        assert "device-side assert" in reply.json["message"]
        assert server.ask("/predictions/wearing", b"7").body == b"7"
        facts = server.manage("/models/wearing").json[0]["workers"][0]
        assert facts["pid"] != pid
        assert "device is lost" in facts["lastError"]
        assert "lose" in facts["traceback"]


def test_a_successor_that_does_not_come_up_leaves_the_old_one_serving(tmp_path: Path) -> None:
    switch = tmp_path / "broken"
    config = f'[models.wearing]\npath = "{WEARING}"\nrecycle = {{requests = 10}}\n'
    config += f'[models.wearing.parameters]\nswitch = "{switch}"\n'
    with serving(tmp_path, config=config) as server:
        pids = server.worker_pids("wearing")
        switch.touch()
        bodies = [b"%d" % number for number in range(50)]
        asyncio.run(load(server.port, "/predictions/wearing", bodies, 4))
        eventually(lambda: "no successor" in server.log.read_text(), "the successor fails")

        assert asyncio.run(load(server.port, "/predictions/wearing", bodies, 4)) == [(200, body) for body in bodies]
        assert server.worker_pids("wearing") == pids
        assert server.ask("/ping").status == 200


def children(pid: int) -> set[int]:
    return {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}


@pytest.mark.timeout(180)
def test_loading_and_unloading_leaves_nothing_behind(tmp_path: Path) -> None:
    with serving(tmp_path, TRICKS, "--model-store", str(MODELS)) as server:
        front = server.process.pid
        files, processes = f"/proc/{front}/fd", children(front)

        def cycle() -> None:
            made = server.ask(
                "/models?url=wearing.py&model_name=fleeting&initial_workers=1&synchronous=true",
                method="POST",
                port=server.management_port,
            )
            assert made.status == 200, made.body
            assert server.ask("/predictions/fleeting", b"x" * 300_000).status == 200
            assert server.manage("/models/fleeting", "DELETE").status == 200

        for _ in range(3):
            cycle()
        eventually(lambda: children(front) == processes, "its processes are gone")
        before, memory = len(os.listdir(files)), resident(front)
        for _ in range(17):
            cycle()

        eventually(lambda: children(front) == processes, "no process is left")
        eventually(lambda: len(os.listdir(files)) <= before, "no file is left open")
        assert server.metric("shoal_arena_lent_bytes") == 0
        assert resident(front) < memory * 1.1 + 2**20


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

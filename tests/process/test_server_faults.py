"""What breaks on purpose: workers killed, hung, crashing; clients leaving; the front process dying."""

import asyncio
import json
import os
import signal
import socket
import time
from pathlib import Path

import pytest

from tests.serving import MODELS, Served, eventually, is_alive, kill, load, serving

TRICKS = str(MODELS / "tricks.py")


def children(pid: int) -> list[int]:
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = Path(f"/proc/{entry}/stat").read_text()
            except OSError:
                continue
            if int(stat.rsplit(")", 1)[1].split()[1]) == pid:
                found += [int(entry), *children(int(entry))]
    return found


@pytest.mark.timeout(120)
def test_killing_a_worker_amid_ten_thousand_requests_loses_none_and_answers_none_twice(tmp_path: Path) -> None:
    bodies = [b"request %05d" % number for number in range(10_000)]
    with serving(tmp_path, TRICKS) as server:
        kills: list[int] = []

        def strike(done: int) -> None:
            if done in (2_000, 4_000, 6_000):
                kills.append(server.worker_pids()[0])
                kill(kills[-1])

        answers = asyncio.run(load(server.port, "/predictions/tricks", bodies, 64, strike))

        assert answers == [(200, body) for body in bodies]
        assert len(set(kills)) == 3
        eventually(lambda: server.metric("shoal_worker_restarts_total") == 3, "three restarts are counted")
        assert (
            server.metric('shoal_requests_total{model_name="tricks",model_version="1.0",outcome="answered"}') == 10_000
        )


def test_a_request_that_crashes_every_worker_gets_an_error_and_the_model_goes_on(tmp_path: Path) -> None:
    with serving(tmp_path, TRICKS) as server:
        reply = server.act(do="crash")

        assert reply.status == 500
        assert "died" in reply.json["message"]
        assert server.ask("/predictions/tricks", "still here").body == b"still here"
        assert "exited with code 7" in server.log.read_text()


def test_a_worker_that_crashes_in_native_code_says_where_it_was(tmp_path: Path) -> None:
    with serving(tmp_path, TRICKS) as server:
        assert server.act(do="fault").status == 500

        written = server.log.read_text()
        assert "Fatal Python error: Segmentation fault" in written
        assert "tricks.py" in written and " in act" in written


@pytest.mark.parametrize("who", ["the server", "a front process"])
def test_a_server_process_that_crashes_in_native_code_says_where_it_was(tmp_path: Path, who: str) -> None:
    with serving(tmp_path, TRICKS, "--frontends", "2") as server:
        os.kill(server.process.pid if who == "the server" else server.front_pids()[0], signal.SIGSEGV)

        eventually(lambda: "Segmentation fault" in server.log.read_text(), "the crash is written down")
        eventually(lambda: "most recent call first" in server.log.read_text(), "where it was is written down")


def test_a_hung_batch_costs_its_worker_and_nobody_else(tmp_path: Path) -> None:
    config = (
        f'[models.tricks]\npath = "{TRICKS}"\nworkers = 2\nresponse_timeout = 1\nbatching = {{policy = "single"}}\n'
    )
    with serving(tmp_path, config=config) as server:
        before = server.worker_pids()
        started = time.monotonic()

        reply = server.act(do="sleep", seconds=600)

        assert reply.status == 504
        assert "no answer in 1 s" in reply.json["message"]
        assert time.monotonic() - started < 20
        eventually(lambda: len(set(server.worker_pids()) - {-1}) == 2, "both workers are back")
        assert len(set(server.worker_pids()) & set(before)) == 1, "only the hung worker was replaced"


def test_nothing_is_computed_for_a_client_that_left_while_it_waited(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    with serving(tmp_path, TRICKS, "--batch-size", "1") as server:
        busy = _send(server, {"do": "sleep", "seconds": 1.5})
        eventually(lambda: server.metric("shoal_batches_running") == 1, "the worker is busy")
        leaver = _send(server, {"do": "touch", "path": str(mark)})
        eventually(lambda: server.metric("shoal_queue_requests") == 1, "the second request waits")

        leaver.close()

        eventually(lambda: server.metric("shoal_queue_requests") == 0, "it is withdrawn")
        assert server.metric("shoal_batches_running") == 1, "before the worker was free"
        assert busy.recv(65536).startswith(b"HTTP/1.1 200")
        busy.close()
        assert server.ask("/predictions/tricks", "x").status == 200
        assert not mark.exists()


def test_a_stream_ends_when_its_reader_leaves(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    with serving(tmp_path, TRICKS) as server:
        reader = _send(server, {"do": "endless", "path": str(mark)})
        assert reader.recv(65536)

        reader.close()

        eventually(mark.exists, "the generator is closed")
        assert server.ask("/predictions/tricks", "next").body == b"next"


def test_a_reader_that_falls_behind_is_cut_and_memory_stays_flat(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    with serving(tmp_path, TRICKS) as server:
        reader = _send(server, {"do": "endless", "path": str(mark)})  # and never read from

        eventually(mark.exists, "the generator is closed")
        memory = int(Path(f"/proc/{server.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        assert memory < 150 * 2**20
        reader.close()


@pytest.mark.parametrize("victim", ["front", "template"])
def test_no_process_is_left_whatever_dies(tmp_path: Path, victim: str) -> None:
    with serving(tmp_path, TRICKS) as server:
        fronts = server.front_pids()
        family = [pid for pid in children(server.process.pid) if pid not in fronts]
        assert len(family) == 2
        if victim == "front":
            kill(server.process.pid)
            server.process.wait()
            eventually(lambda: not any(map(is_alive, [*family, *fronts])), "template and worker are gone")
        else:
            template = next(pid for pid in family if children(pid))
            kill(template)
            eventually(lambda: not any(map(is_alive, family)), "the template's workers are gone")
            eventually(lambda: server.ask("/predictions/tricks", "back").body == b"back", "a new template serves")


def test_sigterm_finishes_what_was_admitted_and_exits_0(tmp_path: Path) -> None:
    with serving(tmp_path, TRICKS) as server:
        family = children(server.process.pid)
        client = _send(server, {"do": "sleep", "seconds": 1})
        eventually(lambda: server.metric("shoal_batches_running") == 1, "the request runs")

        server.process.send_signal(signal.SIGTERM)

        assert client.recv(65536).startswith(b"HTTP/1.1 200")
        client.close()
        assert server.process.wait(20) == 0
        assert not any(map(is_alive, family))


def test_an_idle_server_uses_no_cpu_and_its_front_process_is_small(tmp_path: Path) -> None:
    with serving(tmp_path, TRICKS) as server:
        assert server.ask("/predictions/tricks", "warm").status == 200
        pids = [server.process.pid, *children(server.process.pid)]

        def ticks() -> int:
            fields = [Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split() for pid in pids]
            return sum(int(field[11]) + int(field[12]) for field in fields)

        before = ticks()
        time.sleep(2)

        assert ticks() - before <= 4, "ticks of 10 ms in two seconds, all processes together"
        resident = int(Path(f"/proc/{server.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        assert resident < 60 * 10**6


def test_removing_a_model_gives_back_its_processes_and_files(tmp_path: Path) -> None:
    with serving(tmp_path, TRICKS, "--model-store", str(MODELS)) as server:
        files = len(os.listdir(f"/proc/{server.process.pid}/fd"))
        for _ in range(3):
            reply = server.manage("/models?url=tricks.py&model_name=again&initial_workers=2", "POST")
            assert reply.status == 200, reply.body
            assert server.ask("/predictions/again", b"y" * 100_000).status == 200
            assert server.manage("/models/again", "DELETE").status == 200
            assert server.ask("/predictions/again", "x").status == 404

        kept = 2 + len(server.front_pids())
        eventually(lambda: len(children(server.process.pid)) == kept, "only the first model's processes are left")
        eventually(lambda: len(os.listdir(f"/proc/{server.process.pid}/fd")) <= files, "its files are closed")


def _send(server: Served, item: dict[str, object]) -> socket.socket:
    """Send a request and do not wait for its answer."""
    body = json.dumps(item).encode()
    client = socket.create_connection(("127.0.0.1", server.port))
    client.settimeout(30)
    client.sendall(
        b"POST /predictions/tricks HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    )
    return client


def test_a_model_that_does_not_come_up_again_refuses_with_the_reason_and_recovers_by_itself(tmp_path: Path) -> None:
    mood = tmp_path / "mood"
    config = f'[models.moody]\npath = "{MODELS / "moody.py"}"\nparameters = {{mood = "{mood}"}}\n'
    with serving(tmp_path, config=config) as server:
        assert server.ask("/predictions/moody", b"x").body == b"x"
        assert server.ask("/ping").status == 200
        mood.touch()
        kill(server.worker_pids("moody")[0])
        eventually(lambda: server.ask("/ping").status == 500, "health tells the truth")

        waited = server.ask("/predictions/moody", b"x")  # admitted while there was hope, told when there is none

        assert waited.status == 503
        assert "not in the mood" in waited.json["message"]
        assert int(waited.headers["retry-after"]) >= 1
        (worker,) = server.manage("/models/moody").json[0]["workers"]
        assert "not in the mood" in worker["lastError"]
        mood.unlink()
        eventually(lambda: server.ask("/predictions/moody", b"y").body == b"y", "it recovers", within=30)
        assert server.ask("/ping").status == 200

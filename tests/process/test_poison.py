"""One bad item among 32 in a batch of a real worker: the 31 others get their own right answers."""

import asyncio
from pathlib import Path

import pytest

from tests.serving import MODELS, Served, eventually, load, serving

POISON = str(MODELS / "poison.py")
BAD = 13
FATES = {
    "raise": (500, "a bad item"),
    "segfault": (500, "the worker died"),
    "hang": (504, "no answer in 1 s"),
    "exhaust": (507, "Out of resources"),
    "native": (500, "the worker died"),
    "killed": (500, "the worker died"),
}


def config(batching: str) -> str:
    return f'[models.poison]\npath = "{POISON}"\nresponse_timeout = 1\nbatching = {{{batching}}}\n'


TOGETHER = config('policy = "fixed", batch_size = 32, max_batch_delay = 8000')
SINGLE = config('policy = "single"')


def send(server: Served, bodies: list[bytes]) -> list[tuple[int, bytes]]:
    return asyncio.run(load(server.port, "/predictions/poison", bodies, len(bodies)))


@pytest.mark.parametrize("how", FATES)
def test_one_bad_item_of_32_leaves_31_right_answers(tmp_path: Path, how: str) -> None:
    bodies = [f"item {number}".encode() for number in range(32)]
    bodies[BAD] = how.encode()
    status, words = FATES[how]
    with serving(tmp_path, config=TOGETHER) as server:
        answers = send(server, bodies)

        good = [number for number in range(32) if number != BAD]
        assert [answers[number] for number in good] == [(200, bodies[number][::-1]) for number in good]
        assert answers[BAD][0] == status
        assert words in answers[BAD][1].decode()
        assert server.metric('shoal_batches_total{model_name="poison",model_version="1.0",reason="full"}') == 1
        runs = server.metric("shoal_batches_total")
        assert 1 < runs <= 1 + 10 + 3, "the work is bounded"
        eventually(lambda: server.ask("/ping").status == 200, "the model is well again")


def test_content_that_crashed_its_workers_is_refused_at_once_the_next_time(tmp_path: Path) -> None:
    with serving(tmp_path, config=SINGLE) as server:
        first = server.ask("/predictions/poison", b"segfault now")
        restarts = server.metric("shoal_worker_restarts_total")
        again = server.ask("/predictions/poison", b"segfault now")
        other = server.ask("/predictions/poison", b"segfault NOW", headers={"X-Request-Timeout-Ms": "20000"})

        assert first.status == 500
        assert again.status == 422
        assert "took down its worker 3 times" in again.json["message"]
        assert restarts == 3
        assert other.status == 500, "other content has its own trial"
        assert server.metric('shoal_requests_total{model_name="poison",model_version="1.0",outcome="poisoned"}') == 1
        faults = server.manage("/models/poison").json[0]["faults"]
        assert (faults["poisonRemembered"], faults["poisonRefused"]) == (2, 1)


def test_a_model_that_crashes_on_everything_is_not_restarted_in_a_tight_loop(tmp_path: Path) -> None:
    with serving(tmp_path, config=SINGLE) as server:
        for number in range(3):
            assert server.ask("/predictions/poison", b"segfault %d" % number).status == 500

        eventually(lambda: "starts again in" in server.log.read_text(), "a pause that is worth a line")
        assert server.manage("/models/poison").json[0]["faults"]["restarts"] == 9
        eventually(lambda: server.ask("/predictions/poison", b"fine").body == b"enif", "it comes back")


def test_batches_that_run_out_of_memory_are_split_and_the_next_ones_are_smaller(tmp_path: Path) -> None:
    with serving(tmp_path, config=TOGETHER) as server:
        answers = send(server, [b"large %d" % number for number in range(32)])
        facts = server.manage("/models/poison").json[0]
        runs = server.metric("shoal_batches_total")
        again = send(server, [b"large %d" % number for number in range(32)])

        assert answers == again == [(200, (b"large %d" % number)[::-1]) for number in range(32)]
        assert facts["faults"]["outOfMemory"] == 3
        assert facts["faults"]["ceilings"] == {facts["workers"][0]["id"]: 16}
        assert runs == 7
        assert server.metric("shoal_ceiling_rows") == 8
        assert server.metric("shoal_worker_restarts_total") == 0

"""What the breaker found: each as the smallest case that shows it."""

import asyncio
import contextlib
import gc
import logging
import os
import signal
from pathlib import Path

import pytest
import uvloop

from shoal.pool.output import listen
from shoal.pool.stage import Stage
from tests.chaos.requests import Ask, End
from tests.chaos.server import MODELS
from tests.chaos.wire import Wire, post
from tests.serving import Served, serving
from tests.sleepers import Sleepers, slot_of

TURNS = 24  # of the loop, of which a start takes fewer


def settings(**more: object) -> str:
    lines = [f"{name} = {value}" for name, value in more.items()]
    batching = "batching = {batch_size = 32, max_batch_delay = 2000}"
    return "\n".join(["[models.one]", f'path = "{MODELS / "deeds.py"}"', 'handler = "plain"', batching, *lines])


async def together(server: Served, asks: list[Ask]) -> list[End]:
    surplus: list[str] = []
    wires = [await Wire.open(server.port, surplus.append) for _ in asks]
    ends = []
    for ask, wire in zip(asks, wires, strict=True):
        wire.expect(ask.token)
        wire.write(post(ask))
        await asyncio.sleep(0.005)  # in this order
    for wire in wires:
        ends.append(await wire.answer())
        await wire.close()
    assert not surplus
    return ends


def test_31_are_answered_beside_one_that_takes_its_worker_down_although_there_is_only_one(tmp_path: Path) -> None:
    asks = [Ask(f"t{number}", "x", "one", deed="segv" if number == 0 else "sum") for number in range(32)]
    with serving(tmp_path, config=settings()) as server:
        ends = asyncio.run(together(server, asks))

        assert [end.status for end in ends] == [500] + [200] * 31
        assert all(ask.is_right(end.body) for ask, end in zip(asks[1:], ends[1:], strict=True))


def test_those_beside_one_that_hangs_are_answered_although_there_is_only_one_worker(tmp_path: Path) -> None:
    asks = [Ask(f"t{number}", "x", "one", deed="hang" if number == 0 else "sum") for number in range(32)]
    with serving(tmp_path, config=settings(response_timeout=0.5)) as server:
        ends = asyncio.run(together(server, asks))

        assert [end.status for end in ends] == [504] + [200] * 31


@pytest.mark.parametrize("turns", range(4))
def test_a_start_given_up_while_its_pipes_are_made_closes_each_file_once(turns: int) -> None:
    """A number closed twice may be another client's connection by then, which would get answers of two."""

    async def give_up() -> set[str]:
        making = asyncio.ensure_future(listen(logging.INFO, {}))
        for _ in range(turns):
            await asyncio.sleep(0)
        making.cancel()
        made = await asyncio.gather(making, return_exceptions=True)
        for _ in range(5):
            await asyncio.sleep(0.01)
        others = [os.open(os.devnull, os.O_RDONLY) for _ in range(8)]  # they take the numbers that are free now
        if isinstance(made[0], tuple):
            os.close(made[0][0])
            await made[0][1].finish()
        del making, made
        gc.collect()
        for number in others:
            os.fstat(number)
            os.close(number)
        return await _pipes()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        before = runner.run(_pipes())
        assert runner.run(give_up()) == before


@pytest.mark.parametrize("turns", range(1, TURNS + 1))
def test_a_worker_that_is_told_to_stop_at_any_moment_of_its_start_stops(turns: int) -> None:
    forge = Sleepers()

    async def stop() -> Stage:
        slot = slot_of(forge)
        slot.start().add_done_callback(lambda settled: settled.cancelled() or settled.exception())
        for _ in range(turns):
            await asyncio.sleep(0)
        await asyncio.wait_for(slot.stop(0.2), 5)
        return slot.stage

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            assert runner.run(stop()) is Stage.STOPPED
            assert all(process.wait(10) == -signal.SIGKILL for process in forge.made)
            assert forge.made or turns < TURNS, "by then there is a process to be stopped"
        finally:
            forge.end()


async def _pipes() -> set[str]:
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}").startswith("pipe:"):
                found.add(name)
    return found

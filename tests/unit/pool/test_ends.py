"""How a worker's process ended, as it is told: its connection and its exit are reported apart, in either order."""

import asyncio

import pytest
import uvloop

from shoal.pool.stage import Stage
from shoal.pool.worker import DIED
from tests.sleepers import Sleepers, slot_of

SEVEN = 7 << 8  # what the system calls an exit with code 7


async def _last_error(forge: Sleepers, *, is_exit_first: bool) -> str:
    slot = slot_of(forge)
    settled = slot.start()
    async with asyncio.timeout(30):
        while slot.pid < 0:  # noqa: ASYNC110 - the slot's own, which tells nobody
            await asyncio.sleep(0)
    pid = slot.pid
    if is_exit_first:
        slot.exited(pid, SEVEN)
    forge.end()
    await asyncio.wait({settled}, timeout=30)
    assert settled.exception() is not None
    if not is_exit_first:
        assert slot.last_error == DIED
        slot.stage = Stage.STARTING  # as it is once the next process is on its way
        slot.exited(pid, SEVEN)
    return slot.last_error


@pytest.mark.parametrize("is_exit_first", [True, False])
def test_the_exit_code_is_told_whether_it_is_known_before_the_connection_ends_or_after(is_exit_first: bool) -> None:
    forge = Sleepers()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            assert runner.run(_last_error(forge, is_exit_first=is_exit_first)) == "exited with code 7"
        finally:
            forge.end()

"""How a worker's process ended, as it is told: its connection and its exit are reported apart, in either order."""

import asyncio
import subprocess
from collections.abc import Sequence

import pytest
import uvloop

from shoal.alarm import LoopAlarm
from shoal.clock import MonotonicClock
from shoal.config.model import ModelConfig
from shoal.core.batcher import Batcher
from shoal.core.choice import policy_for
from shoal.core.queue import RequestQueue
from shoal.core.scheduler import Scheduler
from shoal.pool.worker import DIED, WorkerSlot
from shoal.telemetry import ModelStats

SEVEN = 7 << 8  # what the system calls an exit with code 7


class Sleeper:
    """Gives out one process that says nothing."""

    shares_memory = False

    def __init__(self) -> None:
        self.forked = asyncio.Event()

    async def fork(self, worker: str, fds: Sequence[int], within: float) -> int:
        self.begin(fds)
        self.forked.set()
        return self.process.pid

    def begin(self, fds: Sequence[int]) -> None:
        self.process = subprocess.Popen(["sleep", "60"], start_new_session=True, pass_fds=fds)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


async def _last_error(*, is_exit_first: bool) -> str:
    forge = Sleeper()
    clock = MonotonicClock()
    alarm = LoopAlarm(asyncio.get_running_loop(), clock)
    batcher = Batcher(RequestQueue("m", 8), policy_for("single", 0, 0.0))
    slot = WorkerSlot(
        "w",
        ModelConfig(name="m", path="m.py"),
        forge,  # type: ignore[arg-type]  # what it asks of one
        Scheduler(batcher, alarm, ModelStats("m", "1.0")),
        clock,
        development=False,
        on_failure=lambda _: None,
        on_measured=lambda _: None,
        on_loaded=lambda worker, seconds: None,
    )
    settled = slot.start()
    await asyncio.wait_for(forge.forked.wait(), 30)
    await asyncio.sleep(0)  # the slot hears its number
    pid = slot.pid
    assert pid == forge.process.pid
    if is_exit_first:
        slot.exited(pid, SEVEN)
    forge.end()
    await asyncio.wait({settled}, timeout=30)
    assert settled.exception() is not None
    if not is_exit_first:
        assert slot.last_error == DIED
        slot.stage = slot.stage.STARTING  # as it is once the next process is on its way
        slot.exited(pid, SEVEN)
    return slot.last_error


@pytest.mark.parametrize("is_exit_first", [True, False])
def test_the_exit_code_is_told_whether_it_is_known_before_the_connection_ends_or_after(is_exit_first: bool) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(_last_error(is_exit_first=is_exit_first)) == "exited with code 7"

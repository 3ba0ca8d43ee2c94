"""Workers that never say anything: real processes without a template, for what a slot makes of their ends."""

import asyncio
import subprocess
from collections.abc import Sequence

from shoal.alarm import LoopAlarm
from shoal.clock import MonotonicClock
from shoal.config.model import ModelConfig
from shoal.core.batcher import Batcher
from shoal.core.choice import policy_for
from shoal.core.queue import RequestQueue
from shoal.core.scheduler import Scheduler
from shoal.pool.worker import WorkerSlot
from shoal.telemetry import ModelStats


class Sleepers:
    """Stands where the template does."""

    shares_memory = False

    def __init__(self) -> None:
        self.made: list[subprocess.Popen[bytes]] = []

    async def fork(self, worker: str, fds: Sequence[int], within: float) -> int:
        await asyncio.sleep(0)
        self.begin(fds)
        return self.made[-1].pid

    def begin(self, fds: Sequence[int]) -> None:
        self.made.append(subprocess.Popen(["sleep", "60"], start_new_session=True, pass_fds=fds))

    def end(self) -> None:
        for process in self.made:
            process.kill()
            process.wait()


def slot_of(forge: Sleepers) -> WorkerSlot:
    """A slot that gets its processes there, on the running loop."""
    clock = MonotonicClock()
    alarm = LoopAlarm(asyncio.get_running_loop(), clock)
    batcher = Batcher(RequestQueue("m", 8), policy_for("single", 0, 0.0))
    return WorkerSlot(
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

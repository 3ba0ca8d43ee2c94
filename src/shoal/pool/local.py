"""LocalPool: the workers of one model as processes on this machine."""

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from shoal.clock import Clock
from shoal.config.environment import environment_of
from shoal.config.model import ModelConfig
from shoal.core.model import Proof, WorkerFacts
from shoal.core.scheduler import Scheduler
from shoal.errors import LoadFailed, Unavailable
from shoal.pool.errands import Board
from shoal.pool.forge import Forge
from shoal.pool.worker import WorkerSlot
from shoal.wire.memory import Arena
from shoal.wire.messages import Measured

log = logging.getLogger("shoal.pool")
NEXT = "b"
RETRY_AFTER = 60.0  # s until a worn worker asks again for a successor that did not come up
HOPELESS = 4  # failed starts in a row after which requests are refused instead of kept waiting


class LocalPool:
    """Keeps as many workers running as asked for; they are forked from the model's own template."""

    def __init__(
        self,
        config: ModelConfig,
        scheduler: Scheduler,
        arena: Arena | None,
        clock: Clock,
        *,
        development: bool = False,
        on_measured: Callable[[Measured], None] = lambda _: None,
        on_loaded: Callable[[str, float], None] = lambda worker, seconds: None,
        proof: Proof | None = None,
        board: Board | None = None,
    ) -> None:
        self._config = config
        self._scheduler = scheduler
        self._clock = clock
        self._development = development
        self._on_measured = on_measured
        self._on_loaded = on_loaded
        self._proof = proof or Proof()
        self._board = board
        self._forge = Forge(
            config.python or sys.executable,
            _python_files(config.path),
            environment_of(config, os.environ),
            arena,
            self._exited,
        )
        self._slots: list[WorkerSlot] = []
        self._made = 0
        self._warming: list[WorkerSlot] = []  # successors that are not up yet
        self._leaving: list[WorkerSlot] = []  # whose successors are
        self._replacing: set[asyncio.Task[None]] = set()
        self._lock = asyncio.Lock()

    @property
    def size(self) -> int:
        """How many workers there should be."""
        return len(self._slots)

    @property
    def trouble(self) -> str:
        """Why no request can be run for the time being; empty while one can."""
        if self._scheduler.batcher.fleet.size or not self._slots:
            return ""
        worst = min(self._slots, key=lambda slot: slot.failures)
        if worst.failures < HOPELESS:
            return ""
        return f"no worker of model {self._config.name!r} comes up: {worst.last_error}"

    async def start(self) -> None:
        """Bring the configured workers up."""
        await self.scale(self._config.workers)

    async def scale(self, workers: int) -> None:
        """Bring the number of workers to this: new ones are ready, or the youngest have drained."""
        async with self._lock:
            if workers > len(self._slots):
                await self._grow(workers - len(self._slots))
            elif workers < len(self._slots):
                leaving, self._slots[workers:] = self._slots[workers:], []
                await asyncio.gather(*(slot.stop(self._config.response_timeout) for slot in leaving))

    async def stop(self, timeout: float) -> None:
        """End every worker and the template."""
        for task in self._replacing:
            task.cancel()
        await asyncio.gather(*self._replacing, return_exceptions=True)
        async with self._lock:
            leaving, self._slots = [*self._slots, *self._leaving], []
            await asyncio.gather(*(slot.stop(timeout) for slot in leaving))
            self._forge.stop()

    def describe(self) -> Sequence[WorkerFacts]:
        """Tell of each worker."""
        return [slot.describe() for slot in self._slots]

    async def _grow(self, count: int) -> None:
        new = []
        for _ in range(count):
            id = f"{self._config.name}-{self._config.version}-{self._made}"
            new.append(self._slot(id, device_for(self._config, self._made)))
            self._made += 1
        self._slots += new
        outcomes = await asyncio.gather(*(slot.start() for slot in new), return_exceptions=True)
        failed = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        if failed:
            self._slots = [slot for slot in self._slots if slot not in new]
            await asyncio.gather(*(slot.stop(1.0) for slot in new))
            raise failed[0]

    def _slot(self, id: str, device: str) -> WorkerSlot:
        return WorkerSlot(
            id,
            msgspec.structs.replace(self._config, device=device),
            self._forge,
            self._scheduler,
            self._clock,
            development=self._development,
            on_failure=self._failed,
            on_measured=self._on_measured,
            on_loaded=self._on_loaded,
            on_worn=self._worn,
            proof=self._proof,
            board=self._board,
        )

    def _worn(self, slot: WorkerSlot, reason: str) -> None:
        task = asyncio.get_running_loop().create_task(self._replace(slot, reason))
        self._replacing.add(task)
        task.add_done_callback(self._replacing.discard)

    async def _replace(self, slot: WorkerSlot, reason: str) -> None:
        """Bring up a worker in the place of one, then let that one finish what it has and go."""
        async with self._lock:
            if slot not in self._slots:
                return
            log.info("%s is replaced: %s", slot.id, reason, extra={"fields": {"model": self._config.name}})
            new = self._slot(successor(slot.id), slot.device)
            if not await self._come_up(new):
                asyncio.get_running_loop().call_later(RETRY_AFTER, slot.wear.forget)
                return
            self._slots[self._slots.index(slot)] = new
        self._scheduler.stats.recycled += 1
        self._leaving.append(slot)
        await slot.stop(self._config.response_timeout)
        self._leaving.remove(slot)

    async def _come_up(self, slot: WorkerSlot) -> bool:
        """Start a worker that nobody waits for; False when it does not come up."""
        self._warming.append(slot)
        try:
            await asyncio.shield(slot.start())
        except LoadFailed as error:
            log.warning("no successor: %s", error, extra={"fields": {"model": self._config.name}})
            await slot.stop(1.0)
            return False
        except asyncio.CancelledError:
            await slot.stop(1.0)
            raise
        finally:
            self._warming.remove(slot)
        return True

    def _failed(self, slot: WorkerSlot) -> None:
        """Nobody is up and the last starts failed: those who wait are told so instead of being left to hope."""
        if self.trouble:
            reason = self.trouble
            self._scheduler.fail_waiting(lambda: Unavailable(reason, retry_after=10.0), self._clock.now())

    def _exited(self, pid: int, status: int) -> None:
        for slot in (*self._slots, *self._warming, *self._leaving):
            if pid in (slot.pid, slot.old_pid):
                slot.exited(pid, status)


def successor(id: str) -> str:
    """Name the worker that takes the place of another, whose name is free again by the time of the next."""
    return id.removesuffix(NEXT) if id.endswith(NEXT) else id + NEXT


def device_for(config: ModelConfig, number: int) -> str:
    """Where the worker of this number runs: its models' devices in turn."""
    return config.devices[number % len(config.devices)] if config.devices else config.device


def _python_files(path: str) -> list[str]:
    """Where the template looks for imports to make ahead."""
    source = Path(path)
    if not source.is_dir():
        return [str(source)]
    return [str(source), *(str(file) for file in sorted(source.glob("*.py"))[:50])]

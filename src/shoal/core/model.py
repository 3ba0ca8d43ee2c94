"""Model: one version of what a client names: its settings, its scheduler, its pool, and where it is in its life."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from shoal.clock import Clock
from shoal.config.model import ModelConfig
from shoal.core.batcher import Batcher
from shoal.core.continuous import Continuous
from shoal.core.policy import Policy, Single
from shoal.core.request import Request
from shoal.core.scheduler import Scheduler
from shoal.errors import LoadFailed, Unavailable

log = logging.getLogger("shoal.model")


class Life(Enum):
    """Where a model is in its life."""

    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    DRAINED = "drained"  # it is here, without workers, until it is scaled
    UNLOADED = "unloaded"
    FAILED = "failed"


MOVES: dict[Life, frozenset[Life]] = {
    Life.LOADING: frozenset({Life.READY, Life.DRAINING, Life.FAILED}),
    Life.READY: frozenset({Life.DRAINING, Life.FAILED}),
    Life.FAILED: frozenset({Life.READY, Life.DRAINING}),
    Life.DRAINING: frozenset({Life.UNLOADED, Life.FAILED, Life.DRAINED}),
    Life.DRAINED: frozenset({Life.READY, Life.DRAINING, Life.UNLOADED}),
    Life.UNLOADED: frozenset(),
}


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """What can be said of one worker."""

    id: str
    pid: int
    state: str
    since: float  # seconds in this state
    started: float  # Unix time
    restarts: int
    memory: int  # resident bytes
    device: str
    last_error: str
    traceback: str = ""  # of the last error, where it was the handler's own
    failing: float = 0.0  # seconds since it failed without having come up again; 0 while it is well
    answered: int = 0  # requests, by this process
    busy: float = 0.0  # seconds that it has been at its batch, or silent in a stream; 0 while it is idle


class Pool(Protocol):
    """The workers of one model, wherever they run. It joins and leaves their instances to the scheduler."""

    async def start(self) -> None:
        """Bring the configured workers up; raises LoadFailed when the model cannot be loaded."""
        ...

    async def scale(self, workers: int) -> None:
        """Bring the number of workers to this; raises LoadFailed likewise."""
        ...

    async def stop(self, timeout: float) -> None:
        """End every worker, those that will not in time by force."""
        ...

    def describe(self) -> Sequence[WorkerFacts]:
        """Tell of each worker."""
        ...

    @property
    def size(self) -> int:
        """How many workers there should be."""
        ...

    @property
    def trouble(self) -> str:
        """Why no request can be run for the time being; empty while one can."""
        ...


class Proof:
    """Whether a model's handler can batch, as its workers find out; they and the model share one. A "no" stays."""

    def __init__(self) -> None:
        self.can_batch: bool | None = None
        self.why = ""  # it cannot
        self.on_settled: Callable[[], None] = lambda: None

    @property
    def words(self) -> str:
        """What is known, for a person to read."""
        if self.can_batch is None:
            return "not yet"
        return "yes" if self.can_batch else f"no: {self.why}"

    def settle(self, can_batch: bool, why: str) -> None:
        """Take a worker's word; another worker may have met requests that tell otherwise."""
        if self.can_batch is not False:
            self.can_batch, self.why = can_batch, why
            self.on_settled()


class Model:
    """Admits requests for one version and ends cleanly."""

    def __init__(
        self, config: ModelConfig, scheduler: Scheduler, pool: Pool, clock: Clock, proof: Proof | None = None
    ) -> None:
        self.config = config
        self.scheduler = scheduler
        self.pool = pool
        self.life = Life.LOADING
        self.error = ""  # why its workers last failed to come up, until they do
        self.traceback = ""  # where its own code failed then
        self.min_workers = config.workers
        self.max_workers = max(config.workers, config.max_workers)
        self._clock = clock
        self._moved = clock.now()
        self._timeout = config.request_timeout
        self._limits_waiting = (
            config.scheduling is None
        )  # a v2 time-out is a deadline; queue policies have their own rule
        self._has_tickets = config.job_tickets
        self._scalings = 0  # under way
        self.proof = proof or Proof()
        self.proof.on_settled = self._proved
        if config.continuous:
            self._batch_by(Continuous(scheduler.alarm.soon))

    @property
    def name(self) -> str:
        """What clients call it."""
        return self.config.name

    @property
    def version(self) -> str:
        """Which edition."""
        return self.config.version

    @property
    def since(self) -> float:
        """Seconds it has been where it is in its life."""
        return self._clock.now() - self._moved

    @property
    def is_ready(self) -> bool:
        """Whether a request sent now would find an instance."""
        return self.life is Life.READY and self.scheduler.batcher.fleet.size > 0

    @property
    def has_workers(self) -> bool:
        """Whether it has the workers it should, those included that are still coming up or may come up again."""
        if self.life is Life.LOADING or self._scalings:
            return True
        limit = self.config.retry_for
        hopeful = sum(worker.state != "stopped" and worker.failing <= limit for worker in self.pool.describe())
        return hopeful >= self.min_workers

    def submit(self, request: Request) -> None:
        """Admit the request, or raise Unavailable and take nothing."""
        if self.life is not Life.READY:
            self._check_life()
        if not self.scheduler.batcher.fleet.size:
            self._check_workers()
        if self._has_tickets:
            self._check_ticket()
        if request.timeout and self._limits_waiting:
            request.deadline = min(request.deadline, request.arrived + request.timeout)
        if self._timeout:
            request.deadline = min(request.deadline, request.arrived + self._timeout)
        try:
            self.scheduler.offer(request, request.arrived)
        except Unavailable:
            self.scheduler.stats.refused += 1
            raise

    def withdraw(self, request: Request) -> None:
        """The client left."""
        self.scheduler.withdraw(request, self._clock.now())

    async def start(self) -> None:
        """Load it; on failure it stays, failed, with the reason."""
        try:
            await self.pool.start()
        except BaseException as error:
            self.fail(str(error), getattr(error, "traceback", ""))
            raise
        if self.life in (Life.DRAINING, Life.UNLOADED):
            raise Unavailable(f"model {self.name!r} was unloaded while it was loading")
        self.move(Life.READY)

    async def scale(self, low: int, high: int | None = None) -> None:
        """Bring the number of workers to `low` at least and `high` at most; zero is zero, whatever `high` says.

        The limits stay, also where the workers cannot be brought up. A failed model is ready again once they are.
        """
        if self.life in (Life.DRAINING, Life.UNLOADED):
            raise Unavailable(f"model {self.name!r} is {self.life.value}")
        self.min_workers, self.max_workers = low, low if high is None else high
        workers = min(max(self.pool.size, low), self.max_workers) if low else 0
        self._scalings += 1
        try:
            await self.pool.scale(workers)
        except LoadFailed as error:
            self.error, self.traceback = str(error), error.traceback
            if not self.pool.size:
                self.fail(self.error, self.traceback)
            raise
        finally:
            self._scalings -= 1
        if not self.pool.size:
            self.scheduler.fail_waiting(self._no_workers, self._clock.now())
        if workers:
            self.error = self.traceback = ""
            if self.life in (Life.FAILED, Life.DRAINED):
                self.move(Life.READY)

    async def rest(self, timeout: float) -> bool:
        """Take nothing new, finish what was taken, then let the workers go; `scale` brings it back.

        Gives whether all was finished in time; what was not is ended.
        """
        life = self.life
        if life is not Life.READY:
            raise Unavailable(f"model {self.name!r} is {life.value}; only a ready one can be drained")
        self.move(Life.DRAINING)
        in_time = await self._idle(timeout)
        if self.life is not Life.DRAINING:  # unloaded meanwhile
            return in_time
        self.move(Life.DRAINED)
        self.min_workers = self.max_workers = 0
        await self.pool.scale(0)
        self.scheduler.fail_waiting(lambda: Unavailable(f"model {self.name!r} was drained"), self._clock.now())
        return in_time

    async def drain(self, timeout: float) -> bool:
        """Take nothing new, finish what was taken, then let the workers go; whether all was finished in time."""
        if self.life is Life.UNLOADED:
            return True
        self.move(Life.DRAINING)
        in_time = await self._idle(timeout)
        await self.pool.stop(timeout=max(1.0, min(5.0, timeout)))
        self.scheduler.fail_waiting(lambda: Unavailable(f"model {self.name!r} was unloaded"), self._clock.now())
        self.move(Life.UNLOADED)
        return in_time

    def fail(self, reason: str, traceback: str = "") -> None:
        """Nothing will run this model's requests until somebody acts."""
        self.error, self.traceback = reason, traceback
        if self.life in (Life.LOADING, Life.READY):
            self.move(Life.FAILED)
        self.scheduler.fail_waiting(
            lambda: Unavailable(f"model {self.name!r} failed: {reason}", 10.0), self._clock.now()
        )

    def move(self, life: Life) -> None:
        """Change where the model is in its life, along the table of allowed moves."""
        if life is not self.life:
            assert life in MOVES[self.life], (self.life, life)
            log.info("%s", life.value, extra={"fields": {"model": self.name, "version": self.version}})
            self.life = life
            self._moved = self._clock.now()

    async def _idle(self, timeout: float) -> bool:
        """Wait until nothing waits and nothing runs; whether that came in time."""
        idle = asyncio.Event()
        self.scheduler.when_idle(idle.set)
        try:
            if not idle.is_set():
                await asyncio.wait_for(idle.wait(), timeout)
        except TimeoutError:
            log.warning("%s %s did not drain in %.0f s; the rest is ended", self.name, self.version, timeout)
            return False
        return True

    def _check_workers(self) -> None:
        if not self.pool.size and self.life is not Life.LOADING:
            self.scheduler.stats.refused += 1
            raise self._no_workers()
        if self.pool.trouble:
            self.scheduler.stats.refused += 1
            raise Unavailable(self.pool.trouble, retry_after=10.0)

    def _check_ticket(self) -> None:
        """With job tickets a request is taken only when a worker is idle that nobody else waits for."""
        batcher = self.scheduler.batcher
        if batcher.fleet.idle <= len(batcher.queue):
            self.scheduler.stats.refused += 1
            raise Unavailable(f"model {self.name!r} has no idle worker, and its requests do not wait for one")

    def _proved(self) -> None:
        """No batch is formed any more for a handler that cannot take one."""
        if self.proof.can_batch is False:
            self._batch_by(Single())
            self.scheduler.alarm.soon()

    def _batch_by(self, policy: Policy) -> None:
        batcher = self.scheduler.batcher
        if isinstance(batcher, Batcher):  # sequences have rules of their own
            batcher.policy = policy

    def _no_workers(self) -> Unavailable:
        return Unavailable(f"model {self.name!r} has no workers; scale it to at least one")

    def _check_life(self) -> None:
        if self.life is Life.LOADING:
            return  # requests wait for the first worker, bounded by the queue
        self.scheduler.stats.refused += 1
        if self.life is Life.FAILED:
            raise Unavailable(f"model {self.name!r} failed: {self.error}", retry_after=10.0)
        raise Unavailable(f"model {self.name!r} is {self.life.value}")

"""WorkerSlot: the place of one worker process in a pool: started, watched, killed when it hangs, replaced."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Mapping

import msgspec

from shoal.clock import Clock, stood_still
from shoal.config.model import ModelConfig
from shoal.core.batch import Batch
from shoal.core.model import Proof, WorkerFacts
from shoal.core.scheduler import Scheduler
from shoal.errors import LoadFailed, LoadOutOfMemory, ResponseTimeout, ServingError, WorkerDied
from shoal.pool.errands import Board, Caller, Errands
from shoal.pool.forge import Forge
from shoal.pool.link import LinkedInstance, WorkerLink, error_of
from shoal.pool.output import LinePipe, listen
from shoal.pool.pauses import after_deaths, after_failed_starts, explained
from shoal.pool.stage import Stage
from shoal.pool.wear import WearWatch, resident
from shoal.wire.messages import Failure, Load, Loaded, Measured, Proved, Stop, Unloadable
from shoal.wire.tray import Tray

log = logging.getLogger("shoal.pool")
DIED = "the process died"
LOUD = 1.0  # s of a pause that is worth a line


class WorkerSlot:
    """Keeps one worker running until told to stop."""

    def __init__(
        self,
        id: str,
        config: ModelConfig,
        forge: Forge,
        scheduler: Scheduler,
        clock: Clock,
        *,
        development: bool,
        on_failure: Callable[["WorkerSlot"], None],
        on_measured: Callable[[Measured], None],
        on_loaded: Callable[[str, float], None],
        on_worn: Callable[["WorkerSlot", str], None] = lambda slot, reason: None,
        proof: Proof | None = None,
        board: Board | None = None,
    ) -> None:
        self.id = id
        self.stage = Stage.STOPPED
        self.pid = -1
        self.old_pid = -1  # the process before, whose end may be reported late
        self.failures = 0  # starts in a row
        self.deaths = 0  # by batches, in a row: no batch ended between them
        self.restarts = 0
        self.last_error = ""
        self.last_traceback = ""  # where the model's own code failed to load
        self._failing_since = 0.0  # when it failed without having come up again; 0 while it is well
        self.wear = WearWatch(config.recycle)
        self.settled: asyncio.Future[None] | None = None  # the first start: done when ready, or the reason why not
        self._config = config
        self._forge = forge
        self._scheduler = scheduler
        self._clock = clock
        self._development = development
        self._on_failure = on_failure
        self._on_measured = on_measured
        self._on_loaded = on_loaded
        self._on_worn = on_worn
        self._proof = proof or Proof()
        self._board = board
        self._since = clock.now()
        self._started = time.time()
        self._link: WorkerLink | None = None
        self._instances: list[LinkedInstance] = []
        self._outputs: list[LinePipe] = []
        self._endings: set[asyncio.Task[None]] = set()  # outputs of processes that are gone
        self._watch: asyncio.TimerHandle | None = None
        self._pause = min(1.0, config.response_timeout / 4)  # between two looks at the batches
        self._task: asyncio.Task[None] | None = None
        self._gone = asyncio.Event()
        self._hung: Batch | None = None
        self._reason = ""  # why it is being killed
        self._end = ""  # how its process ended
        self._has_served = False  # the process before answered a batch or died of one: starting it is no useless loop

    @property
    def device(self) -> str:
        """Where it runs."""
        return self._config.device

    def start(self) -> asyncio.Future[None]:
        """Begin; the future ends when the model is loaded, or with LoadFailed."""
        loop = asyncio.get_running_loop()
        self.settled = loop.create_future()
        self._task = loop.create_task(self._launch(0.0))
        return self.settled

    async def stop(self, within: float) -> None:
        """Finish the batches it holds, then end the process; by force when that takes longer than `within`."""
        await self._stop(within)
        await asyncio.gather(*self._endings)

    async def _stop(self, within: float) -> None:
        if self._task is not None and self.stage in (Stage.STARTING, Stage.WAITING):
            self._task.cancel()
        was_ready = self.stage is Stage.READY
        self._move(Stage.DRAINING)
        if self._link is None:
            self._finish_stopping()
            return
        if was_ready:
            left = [instance.id for instance in self._instances]
            for instance in self._instances:
                self._scheduler.retire(instance, lambda id=instance.id: self._emptied(left, id))  # type: ignore[misc]  # a default binds the name
        else:
            self.kill("stopped while it was starting")
        try:
            await asyncio.wait_for(self._gone.wait(), within)
        except TimeoutError:
            log.warning("did not stop in time and was killed", extra={"fields": self._fields()})
            self.kill("did not stop in time")
            await self._gone.wait()

    def kill(self, why: str) -> None:
        """End the process now; what it held goes back to the queue or fails."""
        self._reason = why
        if self.pid > 0:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, signal.SIGKILL)
        if self._link is not None:
            self._link.abort()

    def exited(self, pid: int, status: int) -> None:
        """The template says how the process ended."""
        code = os.waitstatus_to_exitcode(status)
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
        if self.stage is not Stage.STOPPED and not (code == 0 and self.stage is Stage.DRAINING):
            log.warning("worker %s", how, extra={"fields": self._fields()})
            if pid == self.pid:
                self._end = how  # that its connection is lost will be heard next
            elif self.last_error == DIED:
                self.last_error = how

    def describe(self) -> WorkerFacts:
        """Tell of it."""
        link = self._link
        failure = link.last_failure if link is not None else None
        now = self._clock.now()
        return WorkerFacts(
            id=self.id,
            pid=self.pid,
            state=self.stage.value,
            since=now - self._since,
            started=self._started,
            restarts=self.restarts,
            memory=resident(self.pid),
            device=self._config.device,
            last_error=failure.message if failure is not None else self.last_error,
            traceback=failure.traceback if failure is not None else self.last_traceback,
            failing=now - self._failing_since if self._failing_since else 0.0,
            answered=link.answered if link is not None else 0,
            busy=max((now - began for _, _, began in link.running.values()), default=0.0) if link is not None else 0.0,
        )

    # -- start ------------------------------------------------------------------------------------------------------

    async def _launch(self, delay: float) -> None:
        self._move(Stage.WAITING if delay else Stage.STARTING)
        await asyncio.sleep(delay)
        self._move(Stage.STARTING)
        self._has_served = False
        self._started = time.time()
        try:
            await self._connect()
        except (OSError, TimeoutError, ServingError) as error:
            self._failed(f"could not start a process: {error}")

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        fds = [theirs.detach()]
        link = WorkerLink(
            self._scheduler,
            self._clock,
            self._loaded,
            lambda problem: self._lost(link, problem),
            self._on_measured,
            self._proved,
            Errands(
                self._board, Caller(self.id, self._scheduler, self._hold), lambda told, data: link.send(told, data)
            ),
        )
        link.ends_on_lost_device = self._config.recycle.device_error
        try:
            for level, stream in ((logging.INFO, "stdout"), (logging.WARNING, "stderr")):
                fd, reader = await listen(level, {**self._fields(), "stream": stream})
                fds.append(fd)
                self._outputs.append(reader)
            if self._forge.shares_memory:
                link.tray = Tray()
                fds.append(link.tray.fd)
            self.pid = await self._forge.fork(self.id, fds, within=self._config.startup_timeout)
            self._gone.clear()
            self._reason = ""
            self._link = link  # before it is connected: it may be lost as soon as that
            ours.setblocking(False)
            await loop.create_connection(lambda: link, sock=ours)
        except BaseException:
            self._link = link.tray = None
            ours.close()
            if self.stage is Stage.DRAINING:  # told to stop meanwhile: nobody else will say that it is gone
                self._finish_stopping()
            raise
        finally:
            for fd in fds:
                os.close(fd)
        if self._link is not link:
            return  # dead already, and on its way to the next start
        config, known = self._config, self._proof.can_batch
        link.send(Load(msgspec.to_builtins(config), self.id, self._development, config.max_response_size, known))
        self._watch = loop.call_later(self._config.startup_timeout, self._too_slow)

    def _loaded(self, report: Loaded | Unloadable) -> None:
        self._stop_watching()
        if isinstance(report, Unloadable):
            self._reason = report.message
            self.last_traceback = report.traceback
            log.error("%s", report.message, extra={"fields": {**self._fields(), "traceback": report.traceback}})
            if self.settled is not None and not self.settled.done():
                kind = LoadOutOfMemory if report.is_out_of_memory else LoadFailed
                self.settled.set_exception(kind(report.message, report.traceback))
            return  # the process ends by itself
        assert self._link is not None
        self._link.wants_headers = report.wants_headers
        count = self._config.instances
        self._instances = [
            LinkedInstance(f"{self.id}/{number}" if count > 1 else self.id, number, report.places, self._link)
            for number in range(count)
        ]
        self._move(Stage.READY)
        for instance in self._instances:
            self._scheduler.join(instance)
        self._failing_since = 0.0
        self.wear = WearWatch(self._config.recycle)
        self._on_loaded(f"W-{self.id}", time.time() - self._started)
        log.info("ready: %s", report.handler, extra={"fields": {**self._fields(), "pid": self.pid}})
        self._watch_batches()
        if self.settled is not None and not self.settled.done():
            self.settled.set_result(None)

    def _too_slow(self) -> None:
        message = f"loading took longer than startup_timeout ({self._config.startup_timeout:g} s)"
        if self.settled is not None and not self.settled.done():
            self.settled.set_exception(LoadFailed(message))
        self.kill(message)

    # -- run --------------------------------------------------------------------------------------------------------

    def _hold(self, is_waiting: bool) -> None:
        """Put nothing behind a batch that waits for another model, which may in turn wait for this one."""
        for instance in self._instances:
            instance.hold(is_waiting)
        if not is_waiting:
            self._scheduler.alarm.soon()

    def _proved(self, report: Proved) -> None:
        self._proof.settle(report.can_batch, report.why)

    def _watch_batches(self) -> None:
        """Look now and then whether a batch is past its time; no timer per batch."""
        self._watch = asyncio.get_running_loop().call_later(self._pause, self._look)

    def _look(self) -> None:
        assert self._link is not None and self._watch is not None
        now = self._clock.now()
        loop = asyncio.get_running_loop()
        if stood := stood_still(self._watch.when(), loop.time(), self._pause):  # answers may lie unread
            self._link.excuse(stood)
        for _, batch, began in self._link.running.values():
            if now - began > self._config.response_timeout:
                self._hung = batch
                log.error("no answer in %.1f s: killed", now - began, extra={"fields": self._fields()})
                self.kill(f"hung: no answer to a batch of {len(batch)} in {self._config.response_timeout:g} s")
                return
        age = now - self._since
        if reason := self.wear.look(self.pid, self._link.answered, age, self._link.device_memory):
            self._on_worn(self, reason)
        self._watch_batches()

    # -- end --------------------------------------------------------------------------------------------------------

    def _lost(self, link: WorkerLink, problem: str) -> None:
        if link is not self._link:
            return
        now = self._clock.now()
        self._stop_watching()
        self._has_served = link.answered > 0 or bool(link.running)
        self.deaths = (0 if link.answered else self.deaths) + bool(link.running)
        self._link = None
        if self._config.prove_batching and self._proof.can_batch is None and died_proving(link):
            self._proof.settle(False, "the worker did not survive that requests were run together")
        hung, self._hung = self._hung, None
        if self._has_served:
            self.last_traceback = next((failure.traceback for failure in link.lost.values()), "")
        instances, self._instances = self._instances, []
        reruns = self._scheduler.stats.reruns
        for instance in instances:
            self._scheduler.leave(instance, now, lambda batch: self._why(batch, hung, link.lost), hung=hung)
        link.running.clear()  # the link waits for the collector; what its batches carried should not
        if reruns := self._scheduler.stats.reruns - reruns:
            log.warning("%d requests that it held are run again", reruns, extra={"fields": self._fields()})
        self._close_outputs()
        if self.stage is Stage.DRAINING:
            self._finish_stopping()
        elif self.stage is not Stage.STOPPED:
            self._failed(self._reason or problem or self._end or DIED)

    def _why(self, batch: Batch, hung: Batch | None, lost: Mapping[int, Failure]) -> ServingError:
        if batch.number in lost:
            return error_of(lost[batch.number])
        if batch is hung:
            limit = self._config.response_timeout
            return ResponseTimeout(
                f"model {self._config.name!r} gave no answer in {limit:g} s; its worker was replaced"
            )
        if self._config.side_effects:
            return WorkerDied("the worker died while it held this request, which is never run twice")
        most = self._config.max_attempts
        return WorkerDied(f"the worker died while it held this request, which is given to at most {most} of them")

    def _failed(self, why: str) -> None:
        """A process that was wanted is gone: start the next after a pause that grows with failures in a row."""
        self.last_error = why
        self._failing_since = self._failing_since or self._clock.now()
        self.failures = 1 if self._has_served else self.failures + 1
        self.kill(why)
        self.old_pid, self.pid, self._end = self.pid, -1, ""
        self._close_outputs()
        if self.settled is not None and not self.settled.done():
            self.settled.set_exception(LoadFailed(why))
        if self.settled is not None and self.settled.exception() is not None:
            self._move(Stage.STOPPED)  # never came up: whoever asked for it decides
            self._gone.set()
            return
        self.restarts += 1
        self._scheduler.stats.restarts += 1
        self._on_failure(self)
        free = explained(self._scheduler.batcher.policy.limit, self._scheduler.max_attempts)
        pause = max(after_failed_starts(self.failures), after_deaths(self.deaths, free))
        if pause >= LOUD:
            log.warning("starts again in %.1f s", pause, extra={"fields": self._fields()})
        self._task = asyncio.get_running_loop().create_task(self._launch(pause))

    def _emptied(self, left: list[str], id: str) -> None:
        left.remove(id)
        if not left and self._link is not None:
            self._link.send(Stop())

    def _finish_stopping(self) -> None:
        self._move(Stage.STOPPED)
        self._close_outputs()
        self._gone.set()

    def _close_outputs(self) -> None:
        """Read what the process printed last, then let its pipes go."""
        outputs, self._outputs = self._outputs, []
        for output in outputs:
            task = asyncio.get_running_loop().create_task(output.finish())
            self._endings.add(task)
            task.add_done_callback(self._endings.discard)

    def _stop_watching(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def _move(self, stage: Stage) -> None:
        if stage is not self.stage:
            self.stage = stage
            self._since = self._clock.now()

    def _fields(self) -> dict[str, str]:
        return {"model": self._config.name, "version": self._config.version, "worker": self.id}


def died_proving(link: WorkerLink) -> bool:
    """Whether a worker was lost when it had answered every request of a batch, and was still busy with them."""
    batches = [batch for _, batch, _ in link.running.values() if len(batch) > 1]
    return any(
        all(request.has_ended for request in batch.requests) and any(request.pieces for request in batch.requests)
        for batch in batches
    )

"""Scheduler: what feeds one model's instances from its batcher. The only such loop there is.

It runs when something changes: a request came, a batch ended, an instance joined or left, a hold is over. It never
sleeps and reads no clock; `Alarm` calls it back. A batch is closed only when somebody could start it.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Protocol

from shoal.core.batch import Batch
from shoal.core.batcher import WaitUntil
from shoal.core.cohort import is_cohort, split
from shoal.core.policy import Fleet
from shoal.core.request import Request
from shoal.errors import ServingError
from shoal.telemetry import ModelStats


class Instance(Protocol):
    """One loaded copy of a model, in whatever place runs it."""

    id: str
    places: int  # batches it may hold: one running, and one on its way where its stages overlap

    def run(self, batch: Batch) -> None:
        """Start the batch. When it is finished: `Scheduler.freed`, then its answers, then `Scheduler.closed`.

        A piece of a streamed answer goes to `batch.deliver` when it comes. Never calls the scheduler from inside.
        """
        ...

    def cancel(self, batch: Batch, index: int) -> None:
        """Nobody waits for this answer any more; stopping early is welcome, not needed."""
        ...


class Alarm(Protocol):
    """Calls `feed` back: before the loop sleeps again, or at a time."""

    def soon(self) -> None:
        """Once more as soon as what is being received now has been received."""
        ...

    def at(self, time: float) -> None:
        """At that time, or earlier if asked so before; `inf` forgets it."""
        ...


class Waiting(Protocol):
    """What waits for one model, as far as the loop has to know."""

    def __len__(self) -> int: ...

    def next_deadline(self) -> float:
        """When it should be looked at again, whatever happens."""
        ...

    def drain(self) -> list[Request]:
        """Take out everybody."""
        ...


class Rule(Protocol):
    """What can be told about how batches leave."""

    @property
    def limit(self) -> int:
        """The most rows a batch may have."""
        ...

    def describe(self) -> dict[str, object]:
        """Tell what it was given and what it has learned."""
        ...


class Source(Protocol):
    """Where batches come from: a Batcher, or a SequenceBatcher."""

    fleet: Fleet
    expired: int  # requests refused for their time
    failed: int  # requests that failed while they waited

    @property
    def queue(self) -> Waiting:
        """What waits."""
        ...

    @property
    def policy(self) -> Rule:
        """How batches leave."""
        ...

    @property
    def is_shared(self) -> bool:
        """Whether what waits may go to any instance."""
        ...

    @property
    def may_rerun(self) -> bool:
        """Whether a request may be given to a worker again."""
        ...

    def joined(self, instance: str) -> None:
        """An instance is up."""
        ...

    def left(self, instance: str) -> None:
        """An instance is gone, or will be sent nothing more. Told once."""
        ...

    def offer(self, request: Request, now: float) -> None:
        """Take the request, or raise and take nothing."""
        ...

    def withdraw(self, request: Request, now: float) -> int:
        """The client left; the number of requests that ended by it."""
        ...

    def give_back(self, requests: list[Request]) -> None:
        """Take back requests whose batch failed, to run again."""
        ...

    def expire(self, now: float) -> None:
        """End those whose time is over."""
        ...

    def take(self, instance: str, now: float, *, is_busy: bool = False) -> Batch | WaitUntil | None:
        """Make the batch that `instance` starts now, if one should leave."""
        ...

    def sent(self, batch: Batch, now: float) -> None:
        """The batch is on its way to `batch.instance`."""
        ...

    def done(self, batch: Batch, now: float) -> None:
        """No worker runs the batch any more."""
        ...


class Scheduler:
    """Feeds instances; owns who of them holds which batch."""

    def __init__(
        self, batcher: Source, alarm: Alarm, stats: ModelStats, *, max_attempts: int = 3, isolates: bool = False
    ) -> None:
        self.batcher = batcher
        self.alarm = alarm
        self.stats = stats
        self.max_attempts = max_attempts if batcher.may_rerun else 1
        # a batch that failed runs again in halves until the guilty request is alone
        self.isolates = isolates and batcher.may_rerun
        self._held: dict[str, list[Batch]] = {}
        self._instances: dict[str, Instance] = {}
        self._retiring: dict[str, Callable[[], None]] = {}
        self._failed = 0  # of those that failed while they waited, counted so far
        self._closing = 0  # batches freed whose answers are being handed out
        self._on_idle: list[Callable[[], None]] = []

    @property
    def is_idle(self) -> bool:
        """Nothing waits and nothing runs."""
        return not len(self.batcher.queue) and not self._closing and not any(self._held.values())

    @property
    def running(self) -> int:
        """Batches held by instances now."""
        return sum(map(len, self._held.values()))

    def offer(self, request: Request, now: float) -> None:
        """Take the request, or raise QueueFull and take nothing."""
        self.batcher.offer(request, now)
        self.alarm.soon()

    def withdraw(self, request: Request, now: float) -> None:
        """The client left: out of the queue, or its answer will be discarded."""
        batch = request.batch
        ended = self.batcher.withdraw(request, now)
        if not ended:
            return
        self.stats.withdrawn += ended
        if batch is not None and not batch.is_closed:
            self._instances[batch.instance].cancel(batch, list(batch.requests).index(request))
        elif self.is_idle:
            self._tell_idle()
        if len(self.batcher.queue):
            self.alarm.soon()  # whoever is next may not have to wait for what this one did

    def join(self, instance: Instance) -> None:
        """An instance is up."""
        self._instances[instance.id] = instance
        self._held[instance.id] = []
        self.batcher.fleet.size += 1
        self.batcher.fleet.idle += 1
        self.batcher.joined(instance.id)
        self.alarm.soon()

    def leave(
        self, instance: Instance, now: float, error: Callable[[Batch], ServingError], *, hung: Batch | None = None
    ) -> None:
        """An instance is gone; what it held runs once more elsewhere, or fails with `error`. So does a hung batch."""
        if self._instances.pop(instance.id, None) is None:
            return
        held = self._held.pop(instance.id)
        if instance.id in self._retiring:
            del self._retiring[instance.id]
        else:
            self.batcher.fleet.size -= 1
            self.batcher.fleet.idle -= not held
            self.batcher.left(instance.id)
        for batch in reversed(held):
            batch.stages = None
            retry = 0 if batch is hung else self.max_attempts
            isolate = self.isolates and batch is held[0]  # those behind it had not begun
            again = batch.close(now, partial(error, batch), retry=retry, isolate=isolate)
            self.batcher.done(batch, now)
            self.stats.record(batch, now)
            batch.let_go()
            self._run_again(again, isolate=isolate)
        self.alarm.soon()

    def retire(self, instance: Instance, when_empty: Callable[[], None]) -> None:
        """Send this instance nothing more; call back once it holds nothing."""
        self._retiring[instance.id] = when_empty
        self.batcher.fleet.size -= 1
        self.batcher.left(instance.id)
        self.alarm.soon()
        if not self._held[instance.id]:
            self.batcher.fleet.idle -= 1
            when_empty()

    def freed(self, instance: Instance, batch: Batch, now: float) -> None:
        """The instance has finished with the batch: it gets its next one before the answers of this are handed out."""
        held = self._held[instance.id]
        held.remove(batch)
        is_retiring = instance.id in self._retiring
        if not held and not is_retiring:
            self.batcher.fleet.idle += 1
        self._closing += 1
        self.batcher.done(batch, now)
        if len(self.batcher.queue):
            self.feed(now)
        if is_retiring and not held:
            self._retiring[instance.id]()

    def closed(self, batch: Batch, now: float, error: Callable[[], ServingError]) -> None:
        """The answers of a freed batch were handed out; whoever got none fails with `error`."""
        again = batch.close(now, error, isolate=self.isolates)
        self._closing -= 1
        self.stats.record(batch, now)
        batch.let_go()
        if again:
            self._run_again(again, isolate=True)
            self.alarm.soon()
        if self._on_idle and self.is_idle:
            self._tell_idle()

    def feed(self, now: float) -> None:
        """Give free instances what should leave now, and arrange to be called when that may change."""
        batcher = self.batcher
        batcher.expire(now)
        wake = math.inf
        for instance_id, held in self._held.items():
            if not held and instance_id not in self._retiring:
                wake = min(wake, self._fill(instance_id, now, is_busy=False))
                if batcher.is_shared and (wake < math.inf or not len(batcher.queue)):
                    break  # what holds for one idle instance holds for all of them
        if batcher.is_shared and len(batcher.queue) and not batcher.fleet.idle:
            for instance_id, held in self._held.items():
                if held and is_cohort(held[0].requests[0]):
                    continue  # it may take its worker down: nobody is put behind it
                if len(held) < self._instances[instance_id].places and instance_id not in self._retiring:
                    wake = min(wake, self._fill(instance_id, now, is_busy=True))
        self.stats.expired = batcher.expired
        self.stats.failed += batcher.failed - self._failed
        self._failed = batcher.failed
        self.alarm.at(min(wake, batcher.queue.next_deadline()))
        if self._on_idle and self.is_idle:
            self._tell_idle()

    def when_idle(self, callback: Callable[[], None]) -> None:
        """Call back once, when nothing waits and nothing runs any more."""
        self._on_idle.append(callback)
        if self.is_idle:
            self._tell_idle()

    def fail_waiting(self, error: Callable[[], ServingError], now: float) -> None:
        """Nobody will come to run what waits: end it."""
        for request in self.batcher.queue.drain():
            request.answer(error(), True, now)
            self.stats.failed += 1
        if self.is_idle:
            self._tell_idle()

    def _run_again(self, requests: list[Request], *, isolate: bool) -> None:
        """Put back what was not answered: together, or apart to find out who is to blame."""
        self.stats.reruns += len(requests)
        if not isolate:
            self.batcher.give_back(requests)
            return
        for cohort in split(requests):
            self.batcher.give_back(cohort)

    def _fill(self, instance_id: str, now: float, *, is_busy: bool) -> float:
        """Send this instance a batch if one should leave; the time to ask again otherwise."""
        got = self.batcher.take(instance_id, now, is_busy=is_busy)
        if isinstance(got, WaitUntil):
            return got.time
        if got is not None:
            held = self._held[instance_id]
            if not held:
                self.batcher.fleet.idle -= 1
            held.append(got)
            got.instance = instance_id
            self.batcher.sent(got, now)
            self._instances[instance_id].run(got)
        return math.inf

    def _tell_idle(self) -> None:
        callbacks, self._on_idle = self._on_idle, []
        for callback in callbacks:
            callback()

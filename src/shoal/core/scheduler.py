"""Scheduler: what feeds one model's instances from its batcher. The only such loop there is.

It runs when something changes: a request came, a batch ended, an instance joined or left, a hold is over. It never
sleeps and reads no clock; `Alarm` calls it back. A batch is closed only when somebody could start it.
"""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, Protocol

from shoal.core.batch import Batch
from shoal.core.batcher import Batcher, WaitUntil
from shoal.core.ceiling import Ceilings
from shoal.core.cohort import Before, Cohort, is_cohort, split
from shoal.core.poison import Poison, digest_of, size_of
from shoal.core.request import Request, State
from shoal.core.source import Source
from shoal.core.turns import Gate
from shoal.errors import Poisoned, ServingError
from shoal.telemetry import ModelStats

log = logging.getLogger("shoal.scheduler")
MOST_BEGUN: Final = 1024  # batches that one instance may be answering besides the one it runs


class Instance(Protocol):
    """One loaded copy of a model, in whatever place runs it."""

    id: str
    places: int  # batches it may hold: one running, and one on its way where its stages overlap

    def run(self, batch: Batch) -> None:
        """Start the batch. When it is finished: `Scheduler.freed`, then its answers, then `Scheduler.closed`.

        A piece of a streamed answer goes to `batch.deliver` when it comes; where others may run beside the rest of
        it, `Scheduler.begun` says so. Never calls the scheduler from inside.
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


class Change:
    """A change in progress: whoever comes meanwhile only joins. May be entered again from inside."""

    def __init__(self) -> None:
        self.depth = 0

    def __enter__(self) -> None:
        self.depth += 1

    def __exit__(self, *_: object) -> None:
        self.depth -= 1


class Scheduler:
    """Feeds instances; owns who of them holds which batch."""

    def __init__(
        self,
        batcher: Source,
        alarm: Alarm,
        stats: ModelStats,
        *,
        max_attempts: int = 3,
        isolates: bool = False,
        poison: Poison | None = None,
        gate: Gate | None = None,
    ) -> None:
        self.batcher = batcher
        self.alarm = alarm
        self.stats = stats
        self.max_attempts = max_attempts if batcher.may_rerun else 1
        # a batch that failed runs again in halves until the guilty request is alone
        self.isolates = isolates and batcher.may_rerun
        self.poison = poison if poison is not None and batcher.may_rerun else Poison()
        self.ceilings = batcher.ceilings if isinstance(batcher, Batcher) else Ceilings()
        self.most_begun = MOST_BEGUN
        self._gate = gate  # where instances wait for what they share with other models'
        self._held: dict[str, list[Batch]] = {}  # those that have not begun: an instance is busy with them
        self._begun: dict[str, dict[Batch, None]] = {}  # those that have, of instances that have any; ordered sets
        self._instances: dict[str, Instance] = {}
        self._retiring: dict[str, Callable[[], None]] = {}
        self._is_ripe = False  # the last who came made a batch full, or came as a hold was over and rides along
        self._due = math.inf  # when what waits should be looked at again, if somebody comes
        self._change = Change()
        self._failed = 0  # of those that failed while they waited, counted so far
        self._closing = 0  # batches freed whose answers are being handed out
        self._on_idle: list[Callable[[], None]] = []

    @property
    def is_idle(self) -> bool:
        """Nothing waits and nothing runs."""
        return not (len(self.batcher.queue) or self._closing or self._begun or any(self._held.values()))

    @property
    def running(self) -> int:
        """Batches held by instances now."""
        return sum(map(len, self._held.values())) + sum(map(len, self._begun.values()))

    @property
    def held(self) -> Mapping[str, Sequence[Batch]]:
        """What each instance holds now, in the order it was sent."""
        if not self._begun:
            return self._held
        return {instance_id: [*self._begun.get(instance_id, ()), *held] for instance_id, held in self._held.items()}

    def offer(self, request: Request, now: float) -> None:
        """Take the request, or raise QueueFull or Poisoned and take nothing."""
        if self.poison.blamed:
            self._check_content(request, now)
        queue = self.batcher.queue
        if (self._is_ripe or (now >= self._due and len(queue) >= queue.limit)) and not self._change.depth:
            self.feed(now)  # the end of a turn in which many are received may be far
        self._is_ripe = self.batcher.offer(request, now) or now >= self._due
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
        if self._gate is not None:
            self._gate.join(instance.id)
        self.alarm.soon()

    def leave(
        self, instance: Instance, now: float, error: Callable[[Batch], ServingError], *, hung: Batch | None = None
    ) -> None:
        """An instance is gone; what it held runs once more elsewhere, or fails with `error`. So does a hung batch."""
        if self._instances.pop(instance.id, None) is None:
            return
        with self._change:
            was_free = self._is_free(instance.id)
            begun = self._begun.pop(instance.id, {})
            held = [*begun, *self._held.pop(instance.id)]
            if self._gate is not None:
                self._gate.leave(instance.id)
            if instance.id in self._retiring:
                del self._retiring[instance.id]
            else:
                self.batcher.fleet.size -= 1
                self.batcher.fleet.idle -= was_free
                self.batcher.left(instance.id)
            suspects = held[: len(begun) + 1]  # those behind were not being run
            for place, batch in reversed(list(enumerate(held))):
                batch.stages = None
                retry = 0 if batch is hung else self.max_attempts
                isolate = self.isolates and place < len(suspects)
                is_guilty = suspects == [batch] and len(batch) == 1 and self.poison.after > 0
                digest = digest_of(batch.requests[0].payload) if is_guilty else b""  # its memory is given back below
                again = batch.close(now, partial(error, batch), retry=retry, isolate=isolate)
                if is_guilty:
                    self._blame(batch.requests[0], digest, now)
                if not batch.has_begun:
                    self.batcher.done(batch, now)
                self.stats.record(batch, now)
                batch.let_go()
                self._run_again(again, isolate=isolate)
        self.alarm.soon()

    def retire(self, instance: Instance, when_empty: Callable[[], None]) -> None:
        """Send this instance nothing more; call back once it holds nothing."""
        self._retiring[instance.id] = when_empty
        self.batcher.fleet.idle -= self._is_free(instance.id)
        self.ceilings.known.pop(instance.id, None)
        self.stats.ceilings.pop(instance.id, None)
        self.batcher.fleet.size -= 1
        self.batcher.left(instance.id)
        self.alarm.soon()
        if not self._held[instance.id]:
            if self._gate is not None:
                self._gate.leave(instance.id)
            if instance.id not in self._begun:
                when_empty()

    def begun(self, instance: Instance, batch: Batch, now: float) -> None:
        """What is left of the batch needs nobody's turn: its answers come beside what the instance runs next.

        Not where a sequence waits for the answers, nor for what runs again because it may take its worker down.
        """
        if batch.has_begun or not self.batcher.is_shared or is_cohort(batch.requests[0]):
            return
        batch.has_begun = True
        self._held[instance.id].remove(batch)
        self._begun.setdefault(instance.id, {})[batch] = None
        if instance.id not in self._retiring:
            self.batcher.fleet.idle += self._is_free(instance.id)
        if self._gate is not None:
            self._gate.exit(instance.id)
        self.batcher.done(batch, now)
        if len(self.batcher.queue):
            self.feed(now)

    def freed(self, instance: Instance, batch: Batch, ended: float, now: float) -> None:
        """The instance had finished with the batch at `ended`; it gets its next one, of those who came until now."""
        held = self._held[instance.id]
        is_retiring = instance.id in self._retiring
        self._closing += 1
        if batch.has_begun:
            self._free_begun(instance.id, batch)
        else:
            held.remove(batch)
            if not held and not is_retiring:
                self.batcher.fleet.idle += not self._begun or self._is_free(instance.id)
            if self._gate is not None:
                self._gate.exit(instance.id)
            self.batcher.done(batch, ended)
        if len(self.batcher.queue):
            self.feed(now)
        if is_retiring and not held and instance.id not in self._begun:
            self._retiring[instance.id]()

    def closed(
        self, batch: Batch, now: float, error: Callable[[], ServingError], *, out_of_memory: bool = False
    ) -> None:
        """The answers of a freed batch were handed out; whoever got none fails with `error`, or runs again in halves.

        A batch that ran `out_of_memory` is halved unless nothing may run twice: its size is to blame, not its items.
        """
        with self._change:
            again = batch.close(now, error, isolate=self.isolates or (out_of_memory and self.max_attempts > 1))
            self._closing -= 1
            self.stats.record(batch, now)
            batch.let_go()
            before = None
            if out_of_memory or self.ceilings.known:
                before = self._learn_room(batch, now, out_of_memory=out_of_memory)
            if again:
                self._run_again(again, isolate=True, before=before)
                self.alarm.soon()
        if self._on_idle and self.is_idle:
            self._tell_idle()

    def feed(self, now: float) -> None:
        """Give free instances what should leave now, and arrange to be called when that may change."""
        with self._change:
            batcher = self.batcher
            batcher.expire(now)
            self._is_ripe = False
            wake = math.inf
            for instance_id in self._held if not self._begun else self._least_begun():
                if not self._held[instance_id] and instance_id not in self._retiring:
                    wake = min(wake, self._fill(instance_id, now, is_busy=False))
                    if batcher.is_shared and (wake < math.inf or not len(batcher.queue)):
                        break  # what holds for one idle instance holds for all of them
            if self._gate is not None:
                self._gate.settle(has_more=len(batcher.queue) > 0 and wake == math.inf)
            elif batcher.is_shared and len(batcher.queue) and not batcher.fleet.idle:
                for instance_id, held in self._held.items():
                    if not held or is_cohort(held[0].requests[0]):
                        continue  # it may take its worker down: nobody is put behind it
                    if len(held) < self._instances[instance_id].places and instance_id not in self._retiring:
                        wake = min(wake, self._fill(instance_id, now, is_busy=True))
            self.stats.expired = batcher.expired
            self.stats.failed += batcher.failed - self._failed
            self._failed = batcher.failed
            self._due = wake if batcher.is_shared else math.inf
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
        with self._change:
            for request in self.batcher.queue.drain():
                request.answer(error(), True, now)
                self.stats.failed += 1
        if self.is_idle:
            self._tell_idle()

    def _is_free(self, instance_id: str) -> bool:
        return not self._held[instance_id] and len(self._begun.get(instance_id, ())) < self.most_begun

    def _free_begun(self, instance_id: str, batch: Batch) -> None:
        was_free, begun = self._is_free(instance_id), self._begun[instance_id]
        del begun[batch]
        if not begun:
            del self._begun[instance_id]
        if instance_id not in self._retiring:
            self.batcher.fleet.idle += self._is_free(instance_id) - was_free

    def _least_begun(self) -> list[str]:
        """Give those that may have one more, the one with the least first."""
        open = {instance_id: len(self._begun.get(instance_id, ())) for instance_id in self._held}
        return sorted((name for name, count in open.items() if count < self.most_begun), key=lambda name: open[name])

    def _blame(self, request: Request, digest: bytes, now: float) -> None:
        """Remember the content of a request that was alone with a worker that died, and is not tried again."""
        if request.state is State.FAILED and self.poison.blame(digest, size_of(request.payload), request.attempts, now):
            log.warning(
                "requests with the content of this one are refused for %.0f s: it took down %d workers",
                *(self.poison.keep, request.attempts),
                extra={"fields": {"model": self.stats.model, "version": self.stats.version, "digest": digest.hex()}},
            )

    def _check_content(self, request: Request, now: float) -> None:
        try:
            self.poison.check(request, now)
        except Poisoned:
            self.stats.poisoned += 1
            raise

    def _learn_room(self, batch: Batch, now: float, *, out_of_memory: bool) -> Before | None:
        """Learn how much an instance has memory for; gives what was known before a search for the guilty began.

        Only a batch as clients made it teaches. Should the search end with a request that does not fit alone, that one
        was to blame, and what was learned is taken back.
        """
        ceilings, instance, limit = self.ceilings, batch.instance, self.batcher.policy.limit
        group = batch.requests[0].group
        before = group.before if isinstance(group, Cohort) else None
        if not out_of_memory:
            if batch.answered == len(batch):
                ceilings.fitted(instance, batch.rows, limit)
        elif len(batch) > 1 and not isinstance(group, Cohort):
            before = instance, ceilings.known.get(instance)
            ceilings.failed(instance, batch.rows, limit, now)
        elif len(batch) == 1 and before is not None:
            ceilings.restore(*before)
        self.stats.out_of_memory += out_of_memory
        self.stats.ceilings = {name: ceiling.rows for name, ceiling in ceilings.known.items()}
        return before

    def _run_again(self, requests: list[Request], *, isolate: bool, before: Before | None = None) -> None:
        """Put back what was not answered: together, or apart to find out who is to blame."""
        self.stats.reruns += len(requests)
        if not isolate:
            self.batcher.give_back(requests)
            return
        for cohort in split(requests, before):
            self.batcher.give_back(cohort)

    def _fill(self, instance_id: str, now: float, *, is_busy: bool) -> float:
        """Send this instance a batch if one should leave; the time to ask again otherwise."""
        gate = self._gate
        if gate is not None and not (len(self.batcher.queue) and gate.enter(instance_id)):
            return math.inf  # it is fed again when its turn comes
        got = self.batcher.take(instance_id, now, is_busy=is_busy)
        if gate is not None and not isinstance(got, Batch):
            gate.exit(instance_id, has_run=False)
        if isinstance(got, WaitUntil):
            return got.time
        if got is not None:
            held = self._held[instance_id]
            if not held:
                self.batcher.fleet.idle -= 1
            held.append(got)
            got.instance = instance_id
            self._instances[instance_id].run(got)
            self.batcher.sent(got, now)  # it takes time to learn, which the batch need not wait for
        return math.inf

    def _tell_idle(self) -> None:
        callbacks, self._on_idle = self._on_idle, []
        for callback in callbacks:
            callback()

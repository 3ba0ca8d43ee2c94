"""A model under Triton's settings, its instances, and a time that only events move: what runs when, and how."""

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from shoal.config.model import Batching
from shoal.config.scheduling import Scheduling, scheduling_of
from shoal.core.batch import Batch, Stages
from shoal.core.choice import batcher_for
from shoal.core.request import InSequence
from shoal.core.scheduler import Scheduler
from shoal.errors import HandlerFailed, WorkerDied
from shoal.payload import Result
from shoal.telemetry import ModelStats
from tests.support import Asked, FakeAlarm, ask


class Execution(NamedTuple):
    """A batch that ran."""

    began: float
    rows: list[int]  # of each request
    instance: str


class Runner:
    """An instance; the model says when its batches end."""

    places = 1

    def __init__(self, id: str, server: "Server") -> None:
        self.id = id
        self._server = server

    def run(self, batch: Batch) -> None:
        self._server.begun(self, batch)

    def cancel(self, batch: Batch, index: int) -> None:
        self._server.cancelled.append((self.id, index))


class Server:
    """One model; a batch takes `took` seconds, or what `slow` says for its instance."""

    def __init__(self, settings: Mapping[str, Any], instances: int = 1, *, took: float = 0.2, **slow: float) -> None:
        self.scheduling: Scheduling = scheduling_of({"max_batch_size": 8, **settings}, "m")
        self.batcher = batcher_for("m", 1000, Batching(), self.scheduling)
        self.alarm = FakeAlarm()
        self.stats = ModelStats("m", "1")
        self.scheduler = Scheduler(self.batcher, self.alarm, self.stats)
        self.took, self.slow = took, slow
        self.now = 0.0
        self.running: list[tuple[float, Runner, Batch]] = []
        self.batches: list[Batch] = []
        self.executions: list[Execution] = []
        self.cancelled: list[tuple[str, int]] = []
        self.runners: dict[str, Runner] = {}
        for number in range(instances):
            self.join(f"i{number}")

    @property
    def sizes(self) -> list[list[int]]:
        """The rows of each request of each execution."""
        return [execution.rows for execution in self.executions]

    @property
    def starts(self) -> list[float]:
        return [round(execution.began, 6) for execution in self.executions]

    def join(self, id: str) -> Runner:
        runner = self.runners[id] = Runner(id, self)
        self.scheduler.join(runner)
        self.settle()
        return runner

    def kill(self, id: str) -> None:
        runner = self.runners.pop(id)
        self.running = [run for run in self.running if run[1] is not runner]
        self.scheduler.leave(runner, self.now, lambda batch: WorkerDied("gone"))
        self.settle()

    def begun(self, runner: Runner, batch: Batch) -> None:
        self.executions.append(Execution(self.now, [request.rows for request in batch.requests], runner.id))
        self.batches.append(batch)
        self.running.append((self.now + self.slow.get(runner.id, self.took), runner, batch))

    def arrive(
        self, rows: int = 1, group: Hashable = None, *, level: int = 0, timeout: float = 0.0, alone: bool = True
    ) -> Asked:
        """A request comes; `alone`: the loop looks at it before the next one."""
        request = ask(arrived=self.now, rows=rows, group=group, priority=level)
        request.timeout = timeout
        return self.send(request, alone=alone)

    def follow(self, id: int | str, flags: str = "", group: Hashable = None, timeout: float = 0.0) -> Asked:
        """A request of a sequence comes: "s" is START, "e" is END."""
        request = ask(arrived=self.now, group=group)
        request.timeout = timeout
        request.sequence = InSequence(id, "s" in flags, "e" in flags)
        return self.send(request)

    def send(self, request: Asked, *, alone: bool = True) -> Asked:
        self.scheduler.offer(request, self.now)
        if alone:
            self.settle()
        return request

    def settle(self) -> None:
        if self.alarm.is_due:
            self.feed()

    def feed(self) -> None:
        self.alarm.is_due = False
        self.alarm.time = math.inf
        self.scheduler.feed(self.now)

    def until(self, time: float) -> None:
        """Let time pass: batches end, and the alarm rings, each in its turn."""
        while True:
            self.settle()
            ends = min((run[0] for run in self.running), default=math.inf)
            due = min(ends, self.alarm.time)
            if due > time:
                break
            self.now = max(self.now, due)
            if ends <= self.alarm.time:
                self.end(min(self.running, key=lambda run: run[0]))
            else:
                self.feed()
        self.now = max(self.now, time)

    def end(self, run: tuple[float, Runner, Batch]) -> None:
        self.running.remove(run)
        _, runner, batch = run
        batch.stages = Stages()
        requests: Sequence[Any] = list(batch.requests)
        self.scheduler.freed(runner, batch, self.now, self.now)
        for index in range(len(requests)):
            batch.deliver(index, Result(b"%.3f" % self.now), True, self.now)
        self.scheduler.closed(batch, self.now, lambda: HandlerFailed("no answer"))

    def finish(self) -> float:
        """Run everything to its end; gives when that was."""
        while self.running or self.alarm.is_due or len(self.batcher.queue):
            self.settle()
            due = min([run[0] for run in self.running] + [self.alarm.time])
            if due == math.inf:
                break
            self.until(due)
        return self.now

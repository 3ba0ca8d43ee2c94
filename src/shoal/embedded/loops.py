"""LoopHost: runs a coroutine function on its callers' own event loop, so what belongs to that loop stays usable.

No thread and no lock: the scheduler is driven by the loop, as in the server, and each batch is a task.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context
from functools import partial

from shoal.alarm import LoopAlarm
from shoal.clock import Clock
from shoal.core.batch import Batch, Stages
from shoal.core.request import Outcome, Request
from shoal.embedded.calls import (
    Awaited,
    Done,
    Holder,
    Settings,
    describe,
    finish,
    items_of,
    make_request,
    make_scheduler,
    outcomes_of,
    task_name,
)
from shoal.errors import Unavailable

AsyncFunction = Callable[[list[object]], Awaitable[object]]


class LoopHost:
    """The batches of one coroutine function on one loop; at most `workers` of them run at a time."""

    def __init__(
        self, function: AsyncFunction, name: str, settings: Settings, clock: Clock, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._function = function
        self._name = name
        self._clock = clock
        self._loop = loop
        alarm = LoopAlarm(loop, clock)
        self._scheduler = make_scheduler(name, settings, alarm)
        alarm.connect(self._scheduler.feed)
        self._workers = settings.workers
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle = asyncio.Event()
        self._is_closed = False

    def start(self) -> None:
        """Let batches run."""
        for number in range(self._workers):
            self._scheduler.join(Holder(number, self._run))

    async def call(self, item: object, timeout: float | None) -> Outcome:
        """Wait for what becomes of the item; QueueFull is raised at once."""
        awaited = Awaited(self._loop)
        request = make_request(item, partial(_answered, awaited), self._clock.now(), timeout, task_name())
        try:
            if self._is_closed:
                raise Unavailable(f"{self._name} is closed")
            self._scheduler.offer(request, request.arrived)
        except Unavailable:
            self._scheduler.stats.refused += 1
            raise
        return await awaited.outcome(request, self._clock, self._withdraw)

    async def close(self) -> None:
        """Take nothing new and finish what was taken."""
        if not self._is_closed:
            self._is_closed = True
            self._scheduler.when_idle(self._idle.set)
        await self._idle.wait()

    def describe(self) -> dict[str, object]:
        """Tell what has happened so far and what the policy has learned."""
        return describe(self._scheduler)

    def _withdraw(self, request: Request) -> None:
        self._scheduler.withdraw(request, self._clock.now())

    def _run(self, holder: Holder, batch: Batch) -> None:
        """Begin a batch, in a context of its own: it belongs to none of its callers."""
        task = self._loop.create_task(self._serve(holder, batch), name=f"{self._name} batch", context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, holder: Holder, batch: Batch) -> None:
        started = self._clock.now()
        try:
            outcomes = outcomes_of(await self._function(items_of(batch)), len(batch), self._name)
        except BaseException as error:  # a cancelled task too: its callers must not wait for ever
            finish(self._scheduler, holder, batch, Done.failed(error, len(batch), self._name), self._clock.now())
            if not isinstance(error, Exception):
                raise
        else:
            done = Done(outcomes, Stages(inference=self._clock.now() - started))
            finish(self._scheduler, holder, batch, done, self._clock.now())


def _answered(awaited: Awaited, request: Request, outcome: Outcome, is_last: bool) -> None:
    awaited.give(outcome)

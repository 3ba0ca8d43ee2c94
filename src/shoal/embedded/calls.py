"""What both hosts of a batched function share: the item on its way in, the value or exception on its way out.

The core sees a payload, a result and a serving error, as always; that they carry Python objects is known only here.
"""

import asyncio
import math
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from typing import Literal, NoReturn

from shoal.clock import Clock
from shoal.core.batch import Batch, Stages
from shoal.core.batcher import Batcher
from shoal.core.choice import Rule, policy_for
from shoal.core.queue import RequestQueue
from shoal.core.request import OnAnswer, Outcome, Request
from shoal.core.scheduler import Alarm, Scheduler
from shoal.embedded.carried import Carried, Value
from shoal.errors import ConfigError, DeadlineExceeded, HandlerFailed
from shoal.telemetry import ModelStats

DELAY = 100.0  # ms, TorchServe's own, where only a batch size was given
PolicyName = Literal["", "adaptive", "fixed", "single"]


@dataclass(frozen=True, slots=True)
class Settings:
    """How a function is batched. A batch_size alone means `fixed`, nothing at all `adaptive`, as in the server."""

    batch_size: int = 0
    max_batch_delay: float | None = None  # ms
    policy: PolicyName = ""
    queue_size: int = 8192
    workers: int = 1

    def __post_init__(self) -> None:
        if self.policy not in ("", "adaptive", "fixed", "single"):
            raise ConfigError(f"policy must be 'adaptive', 'fixed' or 'single', got {self.policy!r}")
        for field, low in (("batch_size", 0), ("queue_size", 1), ("workers", 1)):
            if getattr(self, field) < low:
                raise ConfigError(f"{field} must be {low} or more, got {getattr(self, field)}")
        if self.max_batch_delay is None:
            return
        if self.rule != "fixed":
            raise ConfigError("max_batch_delay means nothing without batch_size; without both, Shoal decides by itself")
        if self.max_batch_delay < 0:
            raise ConfigError(f"max_batch_delay is in milliseconds and must be 0 or more, got {self.max_batch_delay}")

    @property
    def rule(self) -> Rule:
        """The policy that is meant."""
        return self.policy or ("fixed" if self.batch_size else "adaptive")


class Raised(HandlerFailed):
    """What the function raised, or gave in an item's place; `error` is that very exception."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(type(error).__name__)
        self.error = error
        self.place = error.__traceback__

    def again(self) -> NoReturn:
        """Raise it for one more caller, with the traceback it came with, not that of the callers before."""
        raise self.error.with_traceback(self.place)


def make_request(item: object, on_answer: OnAnswer, now: float, timeout: float | None, client: object) -> Request:
    """One call as the core sees it."""
    deadline = math.inf if timeout is None else now + timeout
    return Request(Carried(item), on_answer, now, deadline=deadline, client=client)


def make_scheduler(name: str, settings: Settings, alarm: Alarm) -> Scheduler:
    """Put the core together for one function; it is tried once, for it is not known to be safe to repeat."""
    delay = DELAY if settings.max_batch_delay is None else settings.max_batch_delay
    policy = policy_for(settings.rule, settings.batch_size, delay)
    batcher = Batcher(RequestQueue(name, settings.queue_size), policy)
    return Scheduler(batcher, alarm, ModelStats(name, ""), max_attempts=1)


def describe(scheduler: Scheduler) -> dict[str, object]:
    """Tell what has happened so far and what the policy has learned."""
    stats = scheduler.stats
    return {
        "answered": stats.answered,
        "failed": stats.failed,
        "expired": scheduler.batcher.expired,
        "withdrawn": stats.withdrawn,
        "refused": stats.refused,
        "waiting": len(scheduler.batcher.queue),
        "batches": sum(stats.reasons.values()),
        "reasons": dict(stats.reasons),
        "policy": scheduler.batcher.policy.describe(),
    }


def items_of(batch: Batch) -> list[object]:
    """The items of a batch, as the function takes them."""
    return [request.payload.item for request in batch.requests if isinstance(request.payload, Carried)]


def outcomes_of(results: object, count: int, name: str) -> list[Outcome]:
    """One outcome for each item out of what the function gave; HandlerFailed where there is not one for each."""
    values = _values(results, name)
    if len(values) != count:
        raise HandlerFailed(f"{name} gave {len(values)} results for {count} items")
    return [Raised(value) if isinstance(value, BaseException) else Value(value) for value in values]


def _values(results: object, name: str) -> list[object]:
    if isinstance(results, list):
        return results
    if isinstance(results, str | bytes | Mapping | Set) or not hasattr(results, "__iter__"):
        what = "None" if results is None else f"a value of type {type(results).__name__}"
        raise HandlerFailed(f"{name} gave {what}; it must give a list with one result per item")
    return list(results)


def finish(scheduler: Scheduler, holder: "Holder", batch: Batch, done: "Done", now: float) -> None:
    """Hand out what became of a batch; its instance gets the next one first."""
    batch.stages = done.stages
    scheduler.freed(holder, batch, now, now)
    for index, outcome in enumerate(done.outcomes):
        batch.deliver(index, outcome, True, now)
    scheduler.closed(batch, now, _unanswered)


def _unanswered() -> HandlerFailed:
    return HandlerFailed("the batch ended without a result for this item")


class Holder:
    """An instance of a function: it may hold one batch, and `start` is told which."""

    places = 1

    def __init__(self, number: int, start: Callable[["Holder", Batch], None]) -> None:
        self.number = number
        self.id = str(number)
        self._start = start

    def run(self, batch: Batch) -> None:
        """Start the batch."""
        self._start(self, batch)

    def cancel(self, batch: Batch, index: int) -> None:
        """The function cannot be told; the result is discarded."""


@dataclass(frozen=True, slots=True)
class Done:
    """What became of a batch; a batch that failed as a whole teaches the policy nothing about time."""

    outcomes: list[Outcome]
    stages: Stages | None

    @staticmethod
    def failed(error: BaseException, count: int, name: str) -> "Done":
        """The same exception for every caller; only cancellation is put in words, for it was not theirs."""
        if isinstance(error, asyncio.CancelledError):
            cancelled = HandlerFailed(f"{name} was cancelled")
            cancelled.__cause__ = error
            error = cancelled
        return Done([Raised(error)] * count, None)


def result_of(outcome: Outcome) -> object:
    """The value of an outcome, or its exception raised."""
    if isinstance(outcome, Value):
        return outcome.value
    if isinstance(outcome, Raised):
        outcome.again()
    assert isinstance(outcome, Exception)
    raise outcome


def late(request: Request, now: float) -> DeadlineExceeded:
    """What a caller is told whose deadline passed while its batch was running."""
    return DeadlineExceeded(f"the deadline passed before there was a result ({1000 * (now - request.arrived):.0f} ms)")


class Awaited:
    """The end of one call that a coroutine waits for."""

    __slots__ = ("_future", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._future: asyncio.Future[Outcome] = loop.create_future()

    def give(self, outcome: Outcome) -> None:
        """Hand the outcome over, on the loop's own thread; whoever left ignores it."""
        if not self._future.done():
            self._future.set_result(outcome)

    async def outcome(self, request: Request, clock: Clock, withdraw: Callable[[Request], None]) -> Outcome:
        """Wait for the outcome until the request's deadline; a caller who leaves takes the request along."""
        timer = None
        if request.deadline < math.inf:
            timer = self._loop.call_later(max(0.0, request.deadline - clock.now()), self._ring, request, clock)
        try:
            outcome = await self._future
        except BaseException:
            withdraw(request)
            raise
        finally:
            if timer is not None:
                timer.cancel()
        if isinstance(outcome, DeadlineExceeded):
            withdraw(request)  # nothing, if it was the core that said so
        return outcome

    def _ring(self, request: Request, clock: Clock) -> None:
        self.give(late(request, clock.now()))


def task_name() -> str | None:
    """Which task calls: the policy learns who comes back. Names are unique unless chosen; ids would be used again."""
    task = asyncio.current_task()
    return task.get_name() if task else None

"""Relay: what stands where a scheduler does in a model that has no workers, because its requests go to other models.

A request is begun as soon as it is offered; there is no queue. It is a batch of its own, so that whoever asks how long
it took and what became of it finds the same facts as anywhere else.
"""

from collections.abc import Callable, Sequence

from shoal.core.batch import Batch, Stages
from shoal.core.batcher import Batcher
from shoal.core.model import WorkerFacts
from shoal.core.policy import Single
from shoal.core.queue import RequestQueue
from shoal.core.request import Outcome, Request, State
from shoal.core.scheduler import Alarm, Scheduler
from shoal.errors import HandlerFailed, ServingError
from shoal.telemetry import ModelStats

Tell = Callable[[Outcome, bool, Stages], None]  # a piece of the answer, whether it is the last, and the time spent
Begin = Callable[[Request, Tell], Callable[[], None]]  # gives the way to call it off; may tell before it returns


class Relay(Scheduler):
    """Begins requests and ends each of them once."""

    def __init__(self, alarm: Alarm, stats: ModelStats, begin: Begin, now: Callable[[], float]) -> None:
        super().__init__(Batcher(RequestQueue(stats.model, 1), Single()), alarm, stats, max_attempts=1)
        self._begin = begin
        self._now = now
        self._open: dict[Request, tuple[Batch, Callable[[], None]]] = {}
        self._made = 0

    @property
    def is_idle(self) -> bool:
        """Nothing is on its way."""
        return not self._open

    @property
    def running(self) -> int:
        """Requests on their way."""
        return len(self._open)

    def offer(self, request: Request, now: float) -> None:
        """Begin the request."""
        self._made += 1
        batch = Batch(self._made, [request], "ensemble", now)
        self._open[request] = (batch, _nothing)
        call_off = self._begin(request, lambda *told: self._told(request, *told))
        if request in self._open:
            self._open[request] = (batch, call_off)

    def withdraw(self, request: Request, now: float) -> None:
        """The client left: what was begun for it is called off."""
        if request not in self._open or not request.withdraw(now):
            return
        self.stats.withdrawn += 1
        self._end(request, now)

    def fail_waiting(self, error: Callable[[], ServingError], now: float) -> None:
        """End everything that is on its way."""
        for request in list(self._open):
            request.answer(error(), True, now)
            self._end(request, now)

    def _told(self, request: Request, outcome: Outcome, is_last: bool, stages: Stages) -> None:
        if request not in self._open:
            return
        now = self._now()
        is_last = is_last or isinstance(outcome, ServingError)
        if is_last and not isinstance(outcome, ServingError):
            self._open[request][0].stages = stages
        request.answer(outcome, is_last, now)
        if is_last and request in self._open:
            self._end(request, now)

    def _end(self, request: Request, now: float) -> None:
        batch, call_off = self._open.pop(request)
        call_off()
        if request.state is State.EXPIRED:
            self.stats.expired += 1
        batch.close(now, lambda: HandlerFailed("the ensemble ended without an answer"))
        self.stats.record(batch, now)
        batch.let_go()
        if self._on_idle and self.is_idle:
            self._tell_idle()


class NoWorkers:
    """The pool of a model that has none: it can always be asked."""

    size = 1
    trouble = ""

    def __init__(self, relay: Relay) -> None:
        self._fleet = relay.batcher.fleet

    async def start(self) -> None:
        """Let requests in."""
        self._fleet.size = self._fleet.idle = 1

    async def scale(self, workers: int) -> None:
        """There is nothing to scale."""

    async def stop(self, timeout: float) -> None:
        """Nothing more can be asked."""
        self._fleet.size = self._fleet.idle = 0

    def describe(self) -> Sequence[WorkerFacts]:
        """Tell of no worker."""
        return []


def _nothing() -> None:
    pass

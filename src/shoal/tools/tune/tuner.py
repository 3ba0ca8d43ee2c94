"""The tuner: the default, the search, the default again; ended by time or Ctrl-C, it keeps what it has."""

import asyncio
import time
from collections.abc import Callable, Coroutine

import msgspec

from shoal.errors import LoadFailed
from shoal.tools.machine import available_memory
from shoal.tools.tune.search import LAST, Outcome, Search, Steps, Trial
from shoal.tools.tune.space import Space
from shoal.tools.tune.trials import Plan, Run, Trials

SPARE = 1.2  # times the usual length of a trial, should the next be slower


class Found(msgspec.Struct):
    """What the tuner knows; whole at any moment."""

    search: Search
    trials: Trials
    space: Space
    stopped: str = ""  # why it ended early
    seconds: float = 0.0


class Tuner:
    """Tunes one model. `stopping` ends it at once."""

    def __init__(self, plan: Plan, space: Space, limit: float, on_run: Callable[[Run], None]) -> None:
        self._plan = plan
        self._limit = limit
        self.stopping = asyncio.Event()
        self.found = Found(Search(plan.host.default), Trials(plan, on_run), plan.host.space(space))

    async def run(self) -> None:
        """Tune; `found` has what was found."""
        began = time.monotonic()
        try:
            async with self.found.trials as trials:
                await self._until_stopped(self._tune(trials, began + self._limit))
        finally:
            self.found.seconds = time.monotonic() - began

    async def _until_stopped(self, tuning: Coroutine[None, None, None]) -> None:
        work = asyncio.ensure_future(tuning)
        stopping = asyncio.ensure_future(self.stopping.wait())
        await asyncio.wait({work, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not work.done():
            self.found.stopped = "interrupted"
            work.cancel()
            await asyncio.wait({work})
        if not work.cancelled():
            work.result()

    async def _tune(self, trials: Trials, ends: float) -> None:
        search = self.found.search
        first = await self._first(trials)
        search.record(first)
        level = trials.levels[first.trial]
        self.found.space = self.found.space.within(
            in_flight=self._plan.step.concurrency,
            is_staged=any(level.server.p99.get(name, 0.0) >= 1e-6 for name in ("preprocess", "postprocess")),
            most_workers=_most_workers(trials.runs[0].memory, first.trial.setting.workers),
        )
        steps = search.explore(self.found.space)
        trial = next(steps, None)
        while trial is not None:
            if time.monotonic() + self._needed(trials, 1) > ends:
                self.found.stopped = f"the time limit of {self._limit:g} s"
                break
            trial = _sent(steps, await trials.run(trial))
        await self._close(trials, ends)

    async def _first(self, trials: Trials) -> Outcome:
        """Measure the default; without it there is nothing to compare with."""
        outcome = await trials.run(self.found.search.begin())
        if problem := trials.runs[0].problem:
            raise LoadFailed(f"{self._plan.host.name} could not be measured: {problem}")
        return outcome

    async def _close(self, trials: Trials, ends: float) -> None:
        for trial in self.found.search.closing():
            if trial.rung == LAST or time.monotonic() + self._needed(trials, 1) <= ends:
                self.found.search.record(await trials.run(trial))

    def _needed(self, trials: Trials, more: int) -> float:
        """The time that so many trials take, and those that have to be at the end."""
        search = self.found.search
        last = 1 if search.best == search.default else 2
        return SPARE * trials.usual * (more + last)


def _sent(steps: Steps, outcome: Outcome) -> Trial | None:
    try:
        return steps.send(outcome)
    except StopIteration:
        return None


def _most_workers(memory: int, workers: int) -> int:
    """How many workers there is room for, a fifth of the memory left alone; any number where nobody knows."""
    each, free = memory / max(1, workers), available_memory()
    if not each or not free:
        return 1_000_000
    return max(workers, int((free + memory) * 0.8 / each))

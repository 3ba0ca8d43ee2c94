"""The tuner: the default, the search, the finals; ended by time or Ctrl-C, it keeps what it has."""

import asyncio
import time
from collections.abc import Callable, Coroutine

import msgspec

from shoal.errors import LoadFailed
from shoal.tools.machine import available_memory
from shoal.tools.tune.schedule import Schedule
from shoal.tools.tune.search import Search
from shoal.tools.tune.space import Space
from shoal.tools.tune.trials import Plan, Run, Trials

LOOKS = 30  # that a short time limit is shared out among
SHORTEST = 0.25  # s of a look, unless a shorter one is asked for
TURNS = 10  # median latencies that a look covers: batches that just missed its end are too much of a shorter one


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
        await self._first(trials)
        schedule = Schedule(search, lambda: ends - time.monotonic(), trials.cost)
        for setting in schedule.trials(self.found.space):
            search.record(setting, await trials.run(setting))
            self.found.stopped = f"the time limit of {self._limit:g} s" if schedule.is_cut else ""

    async def _first(self, trials: Trials) -> None:
        """Measure the default, without which there is nothing to compare with; then leave out what cannot help."""
        search, host = self.found.search, self._plan.host
        asked = trials.window
        trials.window = look_of(asked, self._limit)
        merit = await trials.run(search.default)
        if trials.first is None and trials.window < asked:  # a look so short may see no answer of a slow model
            trials.runs.clear()
            trials.window = asked
            merit = await trials.run(search.default)
        search.record(search.default, merit)
        if (level := trials.first) is None:
            raise LoadFailed(f"{host.name} could not be measured: {trials.runs[0].problem}")
        trials.window = look_of(asked, self._limit, trials.runs[0].figures["p50"])
        self.found.space = self.found.space.within(
            in_flight=self._plan.step.concurrency,
            is_staged=any(level.server.p99.get(name, 0.0) >= 1e-6 for name in ("preprocess", "postprocess")),
            most_workers=_most_workers(trials.runs[0].memory, search.default.workers),
        )


def look_of(asked: float, limit: float, median: float = 0.0) -> float:
    """Give the length of a look: shorter than asked for where time is short, as far as the latency allows it."""
    return min(asked, max(SHORTEST, limit / LOOKS, TURNS * median))


def _most_workers(memory: int, workers: int) -> int:
    """How many workers there is room for, a fifth of the memory left alone; any number where nobody knows."""
    each, free = memory / max(1, workers), available_memory()
    if not each or not free:
        return 1_000_000
    return max(workers, int((free + memory) * 0.8 / each))

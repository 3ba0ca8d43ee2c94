"""Runs trials: a server with the setting, a short load on it, what came back; whatever fails is an outcome too."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from shoal.errors import ServingError
from shoal.tools.bench.crew import Crew
from shoal.tools.bench.plan import Settings, Step
from shoal.tools.bench.results import Level
from shoal.tools.bench.runner import Runner
from shoal.tools.bench.target import Target, check, request_of, with_tensors
from shoal.tools.bench.tensors import Form
from shoal.tools.calls import site_of
from shoal.tools.management import Management
from shoal.tools.samples import Sample
from shoal.tools.tune.goal import FAILED, Goals, Merit, figures_of, merit_of
from shoal.tools.tune.hosts import Host, Served
from shoal.tools.tune.server import Servers
from shoal.tools.tune.setting import Setting

SLACK = 10.0  # s over its own time before a trial is given up
WARM = 3  # a server that was warm gets one in so many parts of the warm-up


class Plan(msgspec.Struct, frozen=True):
    """What all trials share. Times in seconds."""

    host: Host
    samples: Sequence[Sample]  # empty: tensors are made up
    step: Step
    goals: Goals
    look: Settings
    start_timeout: float = 120.0
    tensors: Form | None = None
    shapes: Mapping[str, list[int]] = {}


class Run(msgspec.Struct, frozen=True):
    """One trial and what was measured in it."""

    setting: Setting
    look: int  # the first at this setting is 1
    began: float  # s after the first
    seconds: float  # it took, the server's start included
    figures: dict[str, float]  # answers per second, latencies in s
    memory: int  # bytes of the workers
    merit: Merit
    mean_rows: float = 0.0
    errors: dict[str, int] = {}
    problem: str = ""  # why nothing was measured
    is_fresh: bool = True  # the server was started for it


class Trials:
    """Runs one trial after the other with the same load processes. Use with `async with`."""

    def __init__(self, plan: Plan, on_run: Callable[[Run], None]) -> None:
        self._plan = plan
        self._on_run = on_run
        self._crew: Crew | None = None
        self._servers = Servers(plan.host, plan.start_timeout)
        self._awaited = ""  # what the trial at hand waits for
        self._is_given_up = False  # it took longer than all that it waits for may
        self._began = time.monotonic()
        self.window = plan.look.window  # s of a look
        self.runs: list[Run] = []
        self.first: Level | None = None  # what the first that was measured gave

    async def __aenter__(self) -> "Trials":
        self._crew = await Crew(self._plan.look.processes).__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        try:
            await self._servers.end_all()
        finally:
            if self._crew is not None:
                await self._crew.__aexit__(*error)

    def cost(self, setting: Setting) -> float:
        """The seconds that a look at it will take, as far as one can tell."""
        is_fresh = not self._servers.has(setting)
        taken = [run.seconds for run in self.runs if run.is_fresh == is_fresh and not run.problem]
        if not taken and not is_fresh:
            return self.window + self._plan.look.warmup
        return sum(taken) / len(taken) if taken else 0.0

    async def run(self, setting: Setting) -> Merit:
        """Run one; what fails has the worst merit.

        What fails beside other servers is tried once more alone; so is what stood still, for each of its parts has a
        limit of its own: a machine that was paused does that, and no setting.
        """
        run = await self._run(setting)
        is_beside = self._servers.count > self._servers.has(setting)
        if self._is_given_up:
            self._on_run(run)
            await self._servers.end_all()
            run = await self._run(setting)
        elif (run.problem or run.errors) and is_beside and run.seconds < self._plan.start_timeout / 2:
            await self._servers.end_all()
            run = await self._run(setting)
        self.runs.append(run)
        self._on_run(run)
        return run.merit

    async def _run(self, setting: Setting) -> Run:
        began = time.monotonic()
        is_fresh = not self._servers.has(setting)
        look = self._look(is_fresh)
        problem, level, memory = "", None, 0
        self._is_given_up = False
        # a look may wait as long as a request for its first answer, and as long again for those that are on their way
        within = self._plan.start_timeout + look.warmup + look.window + 2 * look.timeout + SLACK
        try:
            async with asyncio.timeout(within):
                level, memory = await self._measured(setting, look)
        except TimeoutError:
            problem = f"it did not end within {within:.0f} s: {self._awaited} was waited for"
            self._is_given_up = True
            await self._renew()
        except ServingError as error:
            problem = str(error)
        if problem:
            await self._servers.end(setting)
        if self._crew is None or not self._crew.is_whole:
            await self._renew()
        self.first = self.first or level
        return Run(
            setting,
            1 + sum(run.setting == setting for run in self.runs),
            began - self._began,
            time.monotonic() - began,
            figures_of(level.pieces, level.seconds_each) if level is not None else {},
            memory,
            merit_of(self._plan.goals, level, memory) if level is not None else FAILED,
            level.server.mean_rows if level is not None else 0.0,
            level.errors if level is not None else {},
            problem,
            is_fresh,
        )

    def _look(self, is_fresh: bool) -> Settings:
        look = self._plan.look
        warmup = look.warmup if is_fresh else look.warmup / WARM
        return msgspec.structs.replace(look, window=self.window, warmup=warmup, most_windows=1, stability=0.99)

    async def _measured(self, setting: Setting, look: Settings) -> tuple[Level, int]:
        plan, crew = self._plan, self._crew
        assert crew is not None
        self._awaited = "the start of its server"
        at = await self._servers.at(setting)
        self._awaited = "what its model takes"
        target, samples = await asyncio.to_thread(self._aimed, at)
        self._awaited = "the first answer"
        await asyncio.to_thread(check, target, samples[0], look.timeout)
        requests = [request_of(target, sample) for sample in samples]
        runner = Runner(target.site, requests, look, lambda *_: None)
        self._awaited = "the end of the load"
        await runner.run_with(crew, [plan.step])
        if runner.findings.problem:
            raise ServingError(runner.findings.problem)
        if not runner.findings.levels or not runner.findings.levels[0].answered:
            raise ServingError("no request was answered")
        self._awaited = "the memory that it takes"
        return runner.findings.levels[0], await asyncio.to_thread(self._memory, at)

    def _aimed(self, at: Served) -> tuple[Target, Sequence[Sample]]:
        plan = self._plan
        target = Target(site_of(at.inference), plan.host.path, plan.host.name)
        if plan.tensors is None:
            return target, plan.samples
        target, sample = with_tensors(target, plan.shapes, plan.tensors)
        return target, [sample]

    def _memory(self, at: Served) -> int:
        """The bytes that the workers take; 0 where nobody can be asked."""
        if not at.management:
            return 0
        rows = Management(site_of(at.management), "").rows()
        return sum(row.memory for row in rows if row.name == self._plan.host.name)

    async def _renew(self) -> None:
        """Start load processes anew: after a trial that was given up nobody knows what they are at."""
        if self._crew is not None:
            await self._crew.__aexit__()
        self._crew = await Crew(self._plan.look.processes).__aenter__()

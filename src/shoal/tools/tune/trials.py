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
from shoal.tools.tune.goal import FAILED, Goals, Merit, draws_of, figures_of, merit_of
from shoal.tools.tune.hosts import Host, Served
from shoal.tools.tune.search import TOP, Outcome, Trial
from shoal.tools.tune.server import serving
from shoal.tools.tune.setting import Setting

SLACK = 10.0  # s over its own time before a trial is given up


class Plan(msgspec.Struct, frozen=True):
    """What all trials share. Times in seconds."""

    host: Host
    samples: Sequence[Sample]  # empty: tensors are made up
    step: Step
    goals: Goals
    look: Settings  # of the longest rung
    start_timeout: float = 120.0
    tensors: Form | None = None
    shapes: Mapping[str, list[int]] = {}


class Run(msgspec.Struct, frozen=True):
    """One trial and what was measured in it."""

    setting: Setting
    rung: int
    began: float  # s after the first
    seconds: float  # it took, the server's start included
    figures: dict[str, float]  # answers per second, latencies in s
    memory: int  # bytes of the workers
    merit: Merit
    mean_rows: float = 0.0
    errors: dict[str, int] = {}
    problem: str = ""  # why nothing was measured


class Trials:
    """Runs one trial after the other with the same load processes. Use with `async with`."""

    def __init__(self, plan: Plan, on_run: Callable[[Run], None]) -> None:
        self._plan = plan
        self._on_run = on_run
        self._crew: Crew | None = None
        self._began = time.monotonic()
        self.runs: list[Run] = []
        self.levels: dict[Trial, Level] = {}

    async def __aenter__(self) -> "Trials":
        self._crew = await Crew(self._plan.look.processes).__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._crew is not None:
            await self._crew.__aexit__(*error)

    @property
    def usual(self) -> float:
        """The time that a long trial takes."""
        long = [run.seconds for run in self.runs if run.rung >= TOP]
        return sum(long) / len(long) if long else 0.0

    async def run(self, trial: Trial) -> Outcome:
        """Run one; what fails has the worst merit."""
        began = time.monotonic()
        look = _look(self._plan.look, trial.rung)
        problem, level, memory = "", None, 0
        within = self._plan.start_timeout + look.warmup + look.window + look.timeout + SLACK
        try:
            async with asyncio.timeout(within):
                level, memory = await self._measured(trial.setting, look)
        except TimeoutError:
            problem = f"it did not end within {within:.0f} s"
            await self._renew()
        except ServingError as error:
            problem = str(error)
        if self._crew is None or not self._crew.is_whole:
            await self._renew()
        return self._keep(trial, level, memory, problem, began)

    def _keep(self, trial: Trial, level: Level | None, memory: int, problem: str, began: float) -> Outcome:
        goals = self._plan.goals
        merit, draws = FAILED, []
        if level is not None:
            merit = merit_of(goals, level, memory)
            draws = draws_of(goals, level, memory)
            self.levels[trial] = level
        run = Run(
            trial.setting,
            trial.rung,
            began - self._began,
            time.monotonic() - began,
            figures_of(level.pieces, level.seconds_each) if level is not None else {},
            memory,
            merit,
            level.server.mean_rows if level is not None else 0.0,
            level.errors if level is not None else {},
            problem,
        )
        self.runs.append(run)
        self._on_run(run)
        return Outcome(trial, merit, draws)

    async def _measured(self, setting: Setting, look: Settings) -> tuple[Level, int]:
        plan, crew = self._plan, self._crew
        assert crew is not None
        async with serving(plan.host, setting, plan.start_timeout) as at:
            target, samples = await asyncio.to_thread(self._aimed, at)
            await asyncio.to_thread(check, target, samples[0], look.timeout)
            requests = [request_of(target, sample) for sample in samples]
            runner = Runner(target.site, requests, look, lambda *_: None)
            await runner.run_with(crew, [plan.step])
            if runner.findings.problem:
                raise ServingError(runner.findings.problem)
            if not runner.findings.levels or not runner.findings.levels[0].answered:
                raise ServingError("no request was answered")
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


def _look(longest: Settings, rung: int) -> Settings:
    """The shorter rungs look for a half and a quarter of the time; warming up takes what it takes."""
    shorter = 2 ** max(0, TOP - rung)
    return msgspec.structs.replace(longest, window=longest.window / shorter, most_windows=1, stability=0.99)

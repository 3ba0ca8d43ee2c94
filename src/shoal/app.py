"""The composition root: builds every object, knows every layer, decides nothing."""

import asyncio
import gc
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec
import uvloop

from shoal import heap, logs
from shoal.alarm import Bell, LoopAlarm
from shoal.apis import Apis
from shoal.archive.intake import Intake
from shoal.board import Board
from shoal.clock import MonotonicClock
from shoal.config.deployment import Deployment
from shoal.config.load import with_own_settings
from shoal.config.model import ModelConfig, WorkerLimits
from shoal.config.profile import kept_costs
from shoal.config.server import ServerConfig
from shoal.config.snapshot import Kind, Snapshots
from shoal.core.choice import batcher_for
from shoal.core.model import Model, Proof
from shoal.core.poison import Poison
from shoal.core.repository import Repository
from shoal.core.rollout import Rollouts
from shoal.core.scheduler import Scheduler
from shoal.errors import ModelNotFound
from shoal.frontend.budget import Budget
from shoal.frontend.tokens import Tokens
from shoal.fronts.crew import Crew
from shoal.fronts.memory import arena_of
from shoal.measuring import Measuring
from shoal.pool.local import LocalPool
from shoal.series.canary import canary_page
from shoal.signals import serve_until_told
from shoal.startup import Startup, snapshot_models
from shoal.strain import Watcher
from shoal.telemetry import Metrics, ModelFacts, ModelStats
from shoal.v2 import V2
from shoal.watch import Watch

log = logging.getLogger("shoal")


class App:
    """One server: `start` brings it up, `drain` finishes it. Both run on the event loop that will serve.

    `models` and `archives` (settings with a path) are what an operator named: one that cannot be loaded ends the start.
    What a deployment lists is loaded after the listeners are bound, and one that fails is logged.
    """

    def __init__(
        self,
        config: ServerConfig,
        models: Sequence[ModelConfig] = (),
        archives: Sequence[Mapping[str, object]] = (),
        deployment: Deployment | None = None,
        *,
        watch: bool = False,
    ) -> None:
        self.config = config
        self.models = models
        self.archives = archives
        self.deployment = deployment or Deployment(server=config)
        self.clock = MonotonicClock()
        self.bell = Bell(self.clock)
        self.arena = arena_of(config)
        self.crew = Crew(config, self.arena) if config.frontends > 1 else None
        self.budget = Budget(config.body_memory)
        self.repository = Repository(self._build)
        self.intake = Intake(config, self.deployment.defaults, self.deployment.tuning)
        self.rollouts = Rollouts(
            self.repository, self.clock, drain_within=config.removal_timeout, on_gone=self.intake.discard
        )
        self.watch = Watch(self.repository, self.rollouts, self.intake.discard) if watch else None
        self.snapshots = Snapshots(self.deployment.snapshots, self.deployment.properties, time.time)
        tokens = _tokens(config)
        lend = self.arena.lend if self.arena else lambda _: None
        self.v2 = V2(
            self.deployment,
            self.repository,
            self.clock,
            lend,
            drain_within=config.removal_timeout,
            check_key=partial(tokens.check, "inference") if tokens else None,
        )
        self.board = Board(self.v2.parts.desk, self.v2.parts.control, largest=config.max_request_size)
        self.apis = Apis(
            *(config, self.deployment, self.repository, self.clock),
            intake=self.intake,
            rollouts=self.rollouts,
            v2=self.v2,
            tokens=tokens,
            lend=lend,
            budget=self.budget,
            crew=self.crew,
            page=self._page,
            on_changed=lambda: self._save("snapshot"),
        )
        self.measuring = Measuring(
            config,
            Metrics(self._facts, time.time(), self._memory),
            lambda: self.apis.server.answers,
            logs.write_metrics,
            gpus=self.deployment.defaults.gpus,
            is_default=self._is_default,
        )
        self.strain = Watcher(config.frontends)

    @property
    def addresses(self) -> dict[str, str]:
        """Where each API is bound."""
        return self.apis.addresses

    async def start(self) -> None:
        """Bind the listeners and load the models; what fails undoes the rest and is raised."""
        startup = Startup(self.intake, self.repository, self.rollouts, self.watch)
        self.bell.start()
        try:
            await self.apis.start()
            await startup.load(self.models, self.archives)
            await startup.load_listed(self.deployment)
            await self.v2.start()
            if self.crew is not None:  # whoever asked before would hear of a model that is not there yet
                await self.crew.start()
        except BaseException:
            await self.drain(0.0)
            raise
        if self.watch is not None:
            self.watch.start()
        self.measuring.start()
        self.strain.start()
        self._save("startup")
        gc.collect()
        gc.freeze()  # what lives as long as the server is not looked at again and again

    async def drain(self, within: float | None = None) -> None:
        """Say that it is not ready; then finish what was admitted, take nothing new, end every process."""
        limit = self.config.drain_timeout if within is None else within
        self.repository.is_closing = True
        if within is None and self.config.shutdown_delay:
            log.info("not ready any more; requests are taken for %g s yet", self.config.shutdown_delay)
            await asyncio.sleep(self.config.shutdown_delay)
        end = self.clock.now() + limit
        self._save("shutdown")
        if self.watch is not None:
            await self.watch.stop()
        self.strain.stop()
        await self.measuring.stop()
        await self.apis.drain(limit)
        if self.crew is not None:
            await self.crew.stop()
        await self.v2.stop()
        left = max(0.0, end - self.clock.now())
        await asyncio.gather(self.repository.drain(left), self.rollouts.close(left))
        self.v2.close()
        if self.arena is not None:
            self.arena.close()
        self.apis.close()
        await asyncio.to_thread(self.intake.close)
        self.bell.stop()

    def _restricted(self, config: ModelConfig) -> ModelConfig:
        """Give a model's workers the user and the limits of the server where it has none of its own."""
        limits = config.limits if config.limits != WorkerLimits() else self.config.worker_limits
        return msgspec.structs.replace(config, user=config.user or self.config.worker_user, limits=limits)

    def _build(self, config: ModelConfig) -> Model:
        config = self._restricted(config)
        stats = ModelStats(config.name, config.version)
        self.measuring.watch(stats)
        if config.interface is not None:
            self.v2.watch(stats)
        alarm = LoopAlarm(asyncio.get_running_loop(), self.clock, self.bell)
        if config.backend == "ensemble":
            return self.v2.ensemble(config, stats, alarm)
        batcher = batcher_for(
            *(config.name, config.queue_size, config.batching, config.scheduling),
            client_share=config.client_share,
            costs=kept_costs(Path(config.path)) if config.batching.rule == "adaptive" else None,
        )
        scheduler = Scheduler(
            batcher,
            alarm,
            stats,
            max_attempts=1 if config.side_effects else config.max_attempts,
            isolates=config.isolate and not config.side_effects,
            poison=Poison(config.poison_after, config.poison_for),
            gate=self.v2.gate(config, alarm.soon),
        )
        alarm.connect(scheduler.feed)
        proof = Proof()
        pool = LocalPool(
            config,
            scheduler,
            self.arena,
            self.clock,
            development=self.config.development,
            on_measured=lambda report: self.measuring.measured(report.measures),
            on_loaded=self.measuring.loaded,
            proof=proof,
            board=self.board,
        )
        return self.v2.model(config, scheduler, pool, proof)

    def _page(self, names: Sequence[str]) -> bytes:
        return self.measuring.page(names) + (b"" if names else self.v2.page() + canary_page(*self._shares()))

    def _facts(self) -> list[ModelFacts]:
        return [
            (
                model.scheduler.stats,
                len(model.scheduler.batcher.queue),
                model.scheduler.running,
                model.scheduler.batcher.fleet.size,
            )
            for model in self.repository
        ]

    def _shares(self) -> tuple[list[tuple[str, str, float]], dict[str, int]]:
        trials = self.rollouts.trials()
        return [(name, trial.new.version, trial.rule.weight) for name, trial in trials.items()], self.rollouts.returns

    def _memory(self) -> dict[str, int]:
        arena = self.arena
        counts = {
            "arena_lent_bytes": arena.lent if arena else 0,
            "arena_limit_bytes": arena.total if arena else 0,
            "body_memory_bytes": self.budget.used,
            "body_memory_limit_bytes": self.budget.limit,
            "bodies_refused": self.budget.refused,
        }
        if self.crew is not None:
            for name, value in self.crew.memory.items():
                counts[name] += value
        return counts

    def _is_default(self, name: str, version: str) -> bool:
        try:
            return self.repository.find(name).version == version
        except ModelNotFound:  # removed since
            return False

    def _save(self, kind: Kind) -> None:
        if self.deployment.snapshots:
            self.snapshots.save(kind, snapshot_models(self.repository))


def _tokens(config: ServerConfig) -> Tokens | None:
    if not config.token_authorization:
        return None
    return Tokens(config.key_file, 60 * config.token_expiration, time.time)


def run(
    config: ServerConfig,
    models: Sequence[ModelConfig],
    on_started: Callable[[App], None],
    archives: Sequence[Mapping[str, object]] = (),
    *,
    watch: bool = False,
) -> int:
    """Serve until SIGTERM or SIGINT, then drain; the exit code. With `watch`, models are loaded anew when saved."""
    return _run(lambda: App(config, models, archives, watch=watch), on_started)


def run_deployment(deployment: Deployment, on_started: Callable[[App], None]) -> int:
    """Serve what another server's settings say, until SIGTERM or SIGINT; the exit code."""
    config = with_own_settings(deployment.server, os.environ)
    return _run(lambda: App(config, deployment=deployment), on_started)


def _run(build: Callable[[], App], on_started: Callable[[App], None]) -> int:
    heap.keep(heap.FRONT)
    heap.collect_seldom()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(serve_until_told(build, on_started))

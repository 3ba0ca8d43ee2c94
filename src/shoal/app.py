"""The composition root: builds every object, knows every layer, decides nothing."""

import asyncio
import gc
import logging
import signal
import ssl
import sys
import time
from collections.abc import Callable, Mapping, Sequence

import uvloop

from shoal import logs
from shoal.alarm import LoopAlarm
from shoal.archive.intake import Intake
from shoal.clock import MonotonicClock
from shoal.config.deployment import Deployment
from shoal.config.devices import GpuUsage
from shoal.config.model import ModelConfig
from shoal.config.server import ServerConfig
from shoal.config.snapshot import Kind, Snapshots
from shoal.core.choice import batcher_for
from shoal.core.model import Model, Proof
from shoal.core.repository import Repository
from shoal.core.scheduler import Scheduler
from shoal.core.workflow import Workflows
from shoal.errors import ConfigError, ModelNotFound
from shoal.frontend.actions import Actions
from shoal.frontend.dialect import dialect_of
from shoal.frontend.exchange import Exchange
from shoal.frontend.grpc.listen import grpc_listeners
from shoal.frontend.management import Management
from shoal.frontend.mms import Inference
from shoal.frontend.server import Server
from shoal.frontend.tokens import Api, Tokens
from shoal.frontend.workflows import WorkflowRoutes
from shoal.measuring import Measuring
from shoal.pool.local import LocalPool
from shoal.startup import Startup, snapshot_models
from shoal.telemetry import Metrics, ModelFacts, ModelStats
from shoal.v2 import V2
from shoal.version import __version__
from shoal.wire.memory import Arena
from shoal.workflows import WorkflowIntake

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
    ) -> None:
        self.config = config
        self.models = models
        self.archives = archives
        self.deployment = deployment or Deployment(server=config)
        defaults = self.deployment.defaults
        self.clock = MonotonicClock()
        self.arena = Arena(config.shared_memory) if sys.platform == "linux" and config.shared_memory else None
        self.repository = Repository(self._build)
        self.dialect = dialect_of(config, __version__)
        self.tokens = (
            Tokens(config.key_file, 60 * config.token_expiration, time.time) if config.token_authorization else None
        )
        self.intake = Intake(config, defaults, self.deployment.tuning)
        lend = self.arena.lend if self.arena else lambda _: None
        self.snapshots = Snapshots(self.deployment.snapshots, self.deployment.properties, time.time)
        drain_within = config.unregister_timeout or config.drain_timeout
        self.v2 = V2(self.deployment, self.repository, self.clock, lend, drain_within=drain_within)
        speaks_v2 = config.compat in ("", "triton")
        self.actions = Actions(
            self.repository,
            self.intake,
            self.dialect,
            self.clock,
            drain_within=drain_within,
            model_api=config.model_api,
            gpu_usage=GpuUsage(self.clock),
            first_worker=defaults.first_worker_id,
            on_changed=lambda: self._save("snapshot"),
        )
        inference = Inference(
            self.repository,
            self.clock,
            self.dialect,
            open_inference=config.open_inference,
            authorise=self._authorise_inference if self.tokens else None,
        )
        management = Management(
            self.repository,
            self.actions,
            self.dialect,
            tokens=self.tokens,
            cors_origin=config.cors_origin,
        )
        workflows = WorkflowRoutes(
            Workflows(self.repository, self.clock),
            WorkflowIntake(self.intake, self.deployment.workflow_store),
            self.dialect,
            drain_within=drain_within,
            authorise=self._authorise if self.tokens else None,
        )
        self._access = logs.AccessLog(lambda delay, flush: asyncio.get_running_loop().call_later(delay, flush))
        has_workflows = config.compat != "mms"
        metrics = Metrics(self._facts, time.time())
        self.measuring = Measuring(
            config,
            metrics,
            lambda: self.server.answers,
            logs.write_metrics,
            gpus=defaults.gpus,
            is_default=self._is_default,
        )
        self.server = Server(
            config,
            inference,
            management,
            self._page,
            self.dialect,
            self.clock,
            lend=lend,
            tls=_tls(config),
            first=[self.v2.routes.take] if speaks_v2 else (),
            more={"inference": [workflows.predict], "management": [workflows.manage]} if has_workflows else None,
            on_answered=self._log_access if config.compat in ("torchserve", "mms") else None,
        )
        self.grpc = grpc_listeners(
            config,
            self.repository,
            self.actions,
            self.dialect,
            self.clock,
            tokens=self.tokens,
            kserve=self.v2.parts if speaks_v2 else None,
            tls=_tls(config) if config.grpc_tls else None,
        )

    @property
    def addresses(self) -> dict[str, str]:
        """Where each API is bound."""
        return self.server.addresses | {name: f"grpc://{listener.address}" for name, listener in self.grpc.items()}

    async def start(self) -> None:
        """Bind the listeners and load the models; what fails undoes the rest and is raised."""
        startup = Startup(self.intake, self.repository)
        try:
            await self.server.start()
            for listener in self.grpc.values():
                await listener.start()
            if self.tokens is not None:
                self.tokens.start()
            await startup.load(self.models, self.archives)
            await startup.load_listed(self.deployment)
            await self.v2.start()
        except BaseException:
            await self.drain(0.0)
            raise
        self.measuring.start()
        self._save("startup")
        gc.collect()
        gc.freeze()  # what lives as long as the server is not looked at again and again

    async def drain(self, within: float | None = None) -> None:
        """Finish what was admitted, take nothing new, end every process."""
        limit = self.config.drain_timeout if within is None else within
        self._save("shutdown")
        await self.measuring.stop()
        await asyncio.gather(self.server.drain(limit), *(listener.drain(limit) for listener in self.grpc.values()))
        await self.v2.stop()
        await self.repository.drain(limit)
        self.v2.close()
        if self.tokens is not None:
            self.tokens.stop()
        if self.arena is not None:
            self.arena.close()
        self._access.flush()
        await asyncio.to_thread(self.intake.close)

    def _build(self, config: ModelConfig) -> Model:
        stats = ModelStats(config.name, config.version)
        self.measuring.watch(stats)
        if config.interface is not None:
            self.v2.watch(stats)
        alarm = LoopAlarm(asyncio.get_running_loop(), self.clock)
        batcher = batcher_for(config.name, config.queue_size, config.batching, config.scheduling)
        scheduler = Scheduler(
            batcher,
            alarm,
            stats,
            max_attempts=1 if config.side_effects else config.max_attempts,
            isolates=config.isolate and not config.side_effects,
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
        )
        return Model(config, scheduler, pool, self.clock, proof)

    def _page(self, names: Sequence[str]) -> bytes:
        return self.measuring.page(names) + (b"" if names else self.v2.page())

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

    def _is_default(self, name: str, version: str) -> bool:
        try:
            return self.repository.find(name).version == version
        except ModelNotFound:  # removed since
            return False

    def _authorise(self, api: Api, exchange: Exchange) -> None:
        assert self.tokens is not None
        self.tokens.check(api, exchange.header(b"authorization"))

    def _authorise_inference(self, exchange: Exchange) -> None:
        self._authorise("inference", exchange)

    def _log_access(self, exchange: Exchange, status: int, milliseconds: float) -> None:
        self._access.add(exchange.peer, exchange.method, exchange.target.decode("latin-1"), status, milliseconds)

    def _save(self, kind: Kind) -> None:
        if self.deployment.snapshots:
            self.snapshots.save(kind, snapshot_models(self.repository))


def _tls(config: ServerConfig) -> ssl.SSLContext | None:
    if not config.certificate_file:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(config.certificate_file, config.private_key_file)
    except (OSError, ssl.SSLError) as error:
        files = f"{config.certificate_file} and {config.private_key_file}"
        raise ConfigError(f"cannot use {files} for TLS: {error}") from None
    return context


def run(
    config: ServerConfig,
    models: Sequence[ModelConfig],
    on_started: Callable[[App], None],
    archives: Sequence[Mapping[str, object]] = (),
) -> int:
    """Serve until SIGTERM or SIGINT, then drain; the exit code."""
    return _run(lambda: App(config, models, archives), on_started)


def run_deployment(deployment: Deployment, on_started: Callable[[App], None]) -> int:
    """Serve what another server's settings say, until SIGTERM or SIGINT; the exit code."""
    return _run(lambda: App(deployment.server, deployment=deployment), on_started)


def _run(build: Callable[[], App], on_started: Callable[[App], None]) -> int:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(build, on_started))


async def _serve(build: Callable[[], App], on_started: Callable[[App], None]) -> int:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    app = build()
    starting = loop.create_task(app.start())
    waiting = loop.create_task(stopping.wait())
    await asyncio.wait({starting, waiting}, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():  # told to stop while models were loading
        starting.cancel()
        await asyncio.wait({starting})
        return 0
    starting.result()
    on_started(app)
    await waiting
    log.info("draining")
    await app.drain()
    log.info("stopped")
    return 0

"""V2: everything a server needs to speak KServe v2 and Triton's extensions of it, put together."""

import logging
import time
from collections.abc import Callable

from shoal.clock import Clock
from shoal.config.deployment import Deployment
from shoal.config.model import ModelConfig
from shoal.core.model import Model, Pool, Proof
from shoal.core.relay import NoWorkers
from shoal.core.repository import Repository
from shoal.core.scheduler import Alarm, Scheduler
from shoal.core.turns import Gate, Turns, amounts_of
from shoal.frontend.http import Lend
from shoal.frontend.kserve.access import OPEN, KeyedAccess, grpc_access, http_access
from shoal.frontend.kserve.control import Control, Fixed
from shoal.frontend.kserve.describe import About
from shoal.frontend.kserve.desk import Desk
from shoal.frontend.kserve.infer import Infer
from shoal.frontend.kserve.memory import Regions
from shoal.frontend.kserve.parts import Parts
from shoal.frontend.kserve.routes import Routes
from shoal.frontend.kserve.settings import LogSettings, TraceSettings
from shoal.series.system import Machine
from shoal.series.triton import Series
from shoal.telemetry import ModelStats
from shoal.triton import control as triton
from shoal.triton.cache import ResponseCache
from shoal.triton.cached import CachedModel
from shoal.triton.inside import Inside
from shoal.triton.passage import relay_of
from shoal.triton.rates import Claims
from shoal.triton.setup import control_of

log = logging.getLogger("shoal.triton")
COMPATIBLE = "2.51.0"  # the release of Triton whose behaviour is kept


class V2:
    """One server's. `control` is there where models come from a Triton repository."""

    def __init__(
        self,
        deployment: Deployment,
        repository: Repository,
        clock: Clock,
        lend: Lend,
        *,
        drain_within: float,
        check_key: Callable[[bytes | None], None] | None = None,
    ) -> None:
        settings, largest = deployment.triton, deployment.server.max_request_size
        self._repository = repository
        self._clock = clock
        self.cache: ResponseCache[bytes] | None = None
        self._turns: Turns | None = None  # of instances that share resources
        self.control: triton.Control | None = None
        control: Control = Fixed(repository)
        if settings is not None:
            if settings.cache_size:
                self.cache = ResponseCache(settings.cache_size)
            if settings.rate_limit:
                self._turns = Turns(amounts_of(settings.rate_resources))
            control = self.control = control_of(repository, settings, drain_within=drain_within)
        self.series = Series(time.time, Machine())
        self.regions = Regions(is_on=settings is not None and settings.client_shared_memory, lend=lend, largest=largest)
        desk = Desk(
            repository,
            clock,
            self.regions,
            lambda model, index, kind, seconds: self.series.of(model.scheduler.stats).response(index, kind, seconds),
        )
        if self.control is not None:
            desk.is_known = self.control.knows
        self.inside = Inside(desk)
        are_ready: Callable[[], bool] = self.control.is_ready if self.control is not None else desk.all_ready
        name = settings.id if settings is not None else "triton"
        own = KeyedAccess(check_key) if check_key is not None else OPEN
        self.parts = Parts(
            desk,
            control,
            lambda model: self.series.statistics(model.scheduler.stats),
            About(name, COMPATIBLE, lambda: True, lambda: not repository.is_closing and are_ready()),
            TraceSettings(),
            LogSettings(logging.getLogger("shoal").setLevel if settings is not None else None),
            http_access(settings.http_restrictions, settings.http_header_forward) if settings is not None else own,
            grpc_access(settings.grpc_restrictions, settings.grpc_header_forward) if settings is not None else own,
        )
        self.routes = Routes(self.parts, Infer(desk, largest=largest, access=self.parts.http))

    def watch(self, stats: ModelStats) -> None:
        """Count what a model does."""
        self.series.watch(stats)

    def gate(self, config: ModelConfig, wake: Callable[[], None]) -> Gate | None:
        """Make what a model's instances wait at; None where they need nothing. ConfigError: they could never start."""
        claims = Claims(config)
        if self._turns is None or not claims.is_any:
            return None
        self._turns.check(claims.all)
        return Gate(self._turns, claims.of, wake)

    def model(self, config: ModelConfig, scheduler: Scheduler, pool: Pool, proof: Proof | None = None) -> Model:
        """Make a model; its answers are kept where it says so and there is a cache."""
        if self.cache is None and _is_cached(config):
            log.warning("model '%s' wants its answers kept; --cache-config=local,size=BYTES lets it", config.name)
        if self.cache is None or not _is_cached(config):
            return Model(config, scheduler, pool, self._clock, proof)
        tally, now = self.series.of(scheduler.stats), self._clock.now
        return CachedModel(config, scheduler, pool, self._clock, proof, cache=self.cache, tally=tally, now=now)

    def ensemble(self, config: ModelConfig, stats: ModelStats, alarm: Alarm) -> Model:
        """Make a model whose requests go to other models."""
        relay = relay_of(config, self.inside, alarm, stats, self._clock.now)
        model = self.model(config, relay, NoWorkers(relay))
        model.min_workers = model.max_workers = 0
        return model

    async def start(self) -> None:
        """Load the models of the repositories."""
        if self.control is not None:
            await self.control.start()

    async def stop(self) -> None:
        """Let the repositories go."""
        if self.control is not None:
            await self.control.close()

    def close(self) -> None:
        """Let clients' shared memory go, once nobody uses it."""
        self.regions.close()

    def page(self) -> bytes:
        """Give Triton's metrics; empty where nothing takes tensors and nobody expects them."""
        models = [model for model in self._repository if model.config.interface is not None]
        if not models and self.control is None:
            return b""
        facts = [
            (
                model.scheduler.stats,
                len(model.scheduler.batcher.queue),
                model.config.settings.get("metric_tags", {}),
                self.cache is not None and _is_cached(model.config),
            )
            for model in models
        ]
        return self.series.page(facts, self.cache.gauges() if self.cache is not None else ()).encode()


def _is_cached(config: ModelConfig) -> bool:
    return bool(config.settings.get("response_cache", {}).get("enable"))

"""V2: everything a server needs to speak KServe v2 and Triton's extensions of it, put together."""

import logging
import time
from collections.abc import Callable

from shoal.clock import Clock
from shoal.config.deployment import Deployment
from shoal.core.repository import Repository
from shoal.frontend.http import Lend
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

COMPATIBLE = "2.51.0"  # the release of Triton whose behaviour is kept


class V2:
    """One server's. `control` is there where models come from a Triton repository."""

    def __init__(
        self, deployment: Deployment, repository: Repository, clock: Clock, lend: Lend, *, drain_within: float
    ) -> None:
        settings, largest = deployment.triton, deployment.server.max_request_size
        self._repository = repository
        self.control: triton.Control | None = None
        control: Control = Fixed(repository)
        if settings is not None:
            control = self.control = triton.control_of(repository, settings, drain_within=drain_within)
        self.series = Series(time.time, Machine())
        self.regions = Regions(is_on=settings is not None and settings.client_shared_memory, lend=lend, largest=largest)
        desk = Desk(
            repository,
            clock,
            self.regions,
            lambda model, index, kind, seconds: self.series.of(model.scheduler.stats).response(index, kind, seconds),
        )
        is_ready: Callable[[], bool] = self.control.is_ready if self.control is not None else desk.all_ready
        name = settings.id if settings is not None else "triton"
        self.parts = Parts(
            desk,
            control,
            lambda model: self.series.statistics(model.scheduler.stats),
            About(name, COMPATIBLE, lambda: True, is_ready),
            TraceSettings(),
            LogSettings(logging.getLogger("shoal").setLevel),
        )
        self.routes = Routes(self.parts, Infer(desk, largest=largest))

    def watch(self, stats: ModelStats) -> None:
        """Count what a model does."""
        self.series.watch(stats)

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
        return self.series.page(
            (
                model.scheduler.stats,
                len(model.scheduler.batcher.queue),
                model.config.settings.get("metric_tags", {}),
                bool(model.config.settings.get("response_cache", {}).get("enable")),
            )
            for model in models
        ).encode()

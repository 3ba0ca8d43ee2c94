"""Startup: the models a server begins with: named by an operator, listed in settings, or kept in a snapshot."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from shoal.archive.intake import Intake
from shoal.config.deployment import Deployment
from shoal.config.model import ModelConfig
from shoal.config.snapshot import SnapshotModel
from shoal.core.model import Model
from shoal.core.repository import Repository
from shoal.core.rollout import Rollouts
from shoal.errors import ServingError
from shoal.watch import Again, Watch, watchable

log = logging.getLogger("shoal.startup")


class Startup:
    """Loads models into a repository."""

    def __init__(self, intake: Intake, repository: Repository, rollouts: Rollouts, watch: Watch | None = None) -> None:
        self._intake = intake
        self._repository = repository
        self._rollouts = rollouts
        self._watch = watch

    async def load(self, models: Sequence[ModelConfig], archives: Sequence[Mapping[str, object]]) -> None:
        """Load what an operator named: all of it, or the first failure is raised. Canaries come after the others."""
        if self._watch is not None:
            models = [watchable(model) for model in models]
        prepared = await asyncio.gather(*(self._prepare(values) for values in archives))
        for config, values in zip(prepared, archives, strict=True):
            self._look_at(config, str(values["path"]), partial(self._prepare, values))
        for model in models:
            self._look_at(model, model.path, partial(_same, model))
        configs = [msgspec.structs.replace(model, loaded_at_startup=True) for model in (*models, *prepared)]
        await asyncio.gather(*(self._repository.register(config) for config in configs if config.canary is None))
        for config in configs:
            if config.canary is not None:
                await self._rollouts.load_on_trial(config, config.canary)

    def _look_at(self, config: ModelConfig, source: str, again: Again) -> None:
        if self._watch is not None and config.canary is None:
            self._watch.add(config.name, Path(source), again)

    async def _prepare(self, values: Mapping[str, object]) -> ModelConfig:
        config = await self._intake.prepare_source(Path(str(values["path"])), values)
        return config if self._watch is None else watchable(config)

    async def load_listed(self, deployment: Deployment) -> None:
        """Load what another server's settings list; one that fails is logged and the others go on."""
        if deployment.snapshot is not None:
            await self._restore(deployment.snapshot)
            return
        listed = [f"{name}={location}" if name else location for name, location in deployment.startup]
        try:
            entries = self._intake.startup_entries(listed) if listed else []
        except ServingError as error:
            log.error("cannot list the models to load: %s", error)
            return
        for name, location in entries:
            await self._begin({"url": location, **({"model_name": name} if name else {})}, {})

    async def _restore(self, snapshot: Mapping[str, Any]) -> None:
        for name, versions in snapshot["models"].items():
            for version, kept in versions.items():
                parameters = {
                    "url": kept["marName"],
                    "model_name": name,
                    "response_timeout": str(kept["responseTimeout"]),
                    "startup_timeout": str(kept["startupTimeout"]),
                }
                if kept["batchSize"] > 1:
                    parameters |= {"batch_size": str(kept["batchSize"]), "max_batch_delay": str(kept["maxBatchDelay"])}
                counts = {"workers": kept["minWorkers"], "max_workers": kept["maxWorkers"], "version": version}
                if await self._begin(parameters, counts) and kept["defaultVersion"]:
                    self._repository.set_default(name, version)

    async def _begin(self, parameters: Mapping[str, str], changes: Mapping[str, Any]) -> bool:
        """Put a model in and let its workers come up by themselves; whether it could be put in."""
        try:
            config = await self._intake.prepare(parameters, at_startup=True)
        except ServingError as error:
            log.error("cannot load %s: %s", parameters["url"], error)
            return False
        try:
            model = self._repository.add(msgspec.structs.replace(config, loaded_at_startup=True, **changes))
        except ServingError as error:
            self._intake.discard(config)
            log.error("cannot load %s: %s", parameters["url"], error)
            return False
        _tasks.add(task := asyncio.get_running_loop().create_task(_start(model)))
        task.add_done_callback(_tasks.discard)
        return True


async def _same(config: ModelConfig) -> ModelConfig:
    return config


_tasks: set[asyncio.Task[None]] = set()


async def _start(model: Model) -> None:
    try:
        await model.start()
    except ServingError as error:
        fields = {"model": model.name, "version": model.version, "traceback": getattr(error, "traceback", "")}
        log.error("%s", error, extra={"fields": fields})


def snapshot_models(repository: Repository) -> list[SnapshotModel]:
    """Tell what a snapshot keeps of the models that are registered now."""
    kept = []
    for model in repository:
        config = model.config
        if config.workflow:
            continue
        batching = config.batching
        is_fixed = batching.rule == "fixed"
        kept.append(
            SnapshotModel(
                name=model.name,
                version=model.version,
                is_default=repository.find(model.name) is model,
                archive=config.url or config.path,
                min_workers=model.min_workers,
                max_workers=model.max_workers,
                batch_size=max(1, batching.batch_size) if is_fixed else 1,
                max_batch_delay=batching.max_batch_delay if is_fixed else 100.0,
                response_timeout=max(1.0, config.response_timeout),
                startup_timeout=max(1.0, config.startup_timeout),
                runtime=config.runtime,
            )
        )
    return kept

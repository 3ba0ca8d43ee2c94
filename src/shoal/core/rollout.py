"""Rollouts: a new version comes up beside the old and takes its requests in one step; the old one finishes and goes."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import msgspec

from shoal.clock import Clock
from shoal.config.model import Canary, ModelConfig
from shoal.core.model import Model
from shoal.core.repository import Repository
from shoal.core.trial import Trial
from shoal.errors import Conflict, ServingError, Unavailable

log = logging.getLogger("shoal.rollout")
STOPPING = "the server is being stopped"
LOOK_EVERY = 0.25  # s between two looks at a trial
T = TypeVar("T")
State = Literal["loading", "serving", "failed", "trial", "returned"]


@dataclass(frozen=True, slots=True)
class Attempt:
    """The last version that was brought to a name, and what became of it."""

    version: str
    state: State
    at: float
    error: str = ""  # why it does not serve
    traceback: str = ""


class Rollouts:
    """Changes what names mean without a request lost. What it takes out of the repository it lets finish itself."""

    def __init__(
        self,
        repository: Repository,
        clock: Clock,
        *,
        drain_within: float,
        on_gone: Callable[[ModelConfig], None] = lambda config: None,
    ) -> None:
        self._repository = repository
        self._clock = clock
        self._drain_within = drain_within
        self._on_gone = on_gone  # a version was unloaded, or never got so far
        self._attempts: dict[str, Attempt] = {}
        self._busy: set[str] = set()
        self._is_closed = False
        self._leaving: set[Model] = set()
        self._loads: set[asyncio.Task[Any]] = set()
        self._drains: set[asyncio.Task[Any]] = set()
        self._trials: dict[str, Trial] = {}
        self._looking: asyncio.Task[None] | None = None
        self.returns: dict[str, int] = {}  # by name: trials that ended because the new version was worse

    async def replace(self, config: ModelConfig) -> Model:
        """Load a model and let its name mean it; those that it takes the place of finish by themselves.

        One that cannot be loaded changes nothing, and why is raised, logged and told by `describe`.
        """
        with self._alone(config.name):
            model = await self._loaded(config)
            for old in self._repository.take_over(model):
                self._retire(old)
            self._note(config, "serving")
        log.info("takes the requests now", extra={"fields": {"model": model.name, "version": model.version}})
        return model

    async def load_on_trial(self, config: ModelConfig, rule: Canary) -> Model:
        """Load a model beside the default version of its name, and let it have a share of the requests."""
        with self._alone(config.name):
            if any(model.version == config.version for model in self._repository.versions(config.name)):
                raise Conflict(f"Model version {config.version} is already registered for model {config.name}")
            model = await self._loaded(config)
            if (replaced := self._repository.put(model)) is not None:  # registered meanwhile
                self._retire(replaced)
            try:
                self.share(config.name, config.version, rule)
            except ServingError:  # the version to share with left meanwhile
                self._repository.take_out(model)
                self._retire(model)
                raise
        return model

    def share(self, name: str, version: str, rule: Canary | None) -> None:
        """Let a version that is here have a share of the requests that name none, another one than before, or none."""
        new = self._repository.find(name, version)
        self._forget(name)
        if rule is None:
            self._repository.split(name, None)
            self._attempts.pop(name, None)
            return
        old = self._repository.find(name)
        if new is old:
            raise Conflict(f"version {version} of model {name} is its default and has all requests; name another one")
        trial = self._trials[name] = Trial(old, new, rule, self._clock.now())
        trial.watch()
        self._repository.split(name, trial)
        self._note(new.config, "trial")
        log.info("gets %g %% of the requests", rule.weight, extra={"fields": {"model": name, "version": version}})
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._look())

    def judge(self) -> None:
        """Look at every trial: one whose new version is worse ends, and the old one has all requests again."""
        now = self._clock.now()
        for name, trial in list(self._trials.items()):
            if self._repository.split_of(name) is not trial:
                self._settle(name, trial)
                continue
            if reason := trial.look(now):
                self._forget(name)
                self._repository.split(name, None)
                self.returns[name] = self.returns.get(name, 0) + 1
                self._note(trial.new.config, "returned", reason)
                log.error(
                    "gets no more requests: %s",
                    reason,
                    extra={"fields": {"model": name, "version": trial.new.version, "serving": trial.old.version}},
                )

    def refuse(self, config: ModelConfig, reason: str, traceback: str = "") -> None:
        """Say why a version was not rolled out, in a line of the log and in `describe`."""
        self._note(config, "failed", reason, traceback)
        fields = {"model": config.name, "version": config.version}
        log.error("not rolled out, what served goes on serving: %s", reason, extra={"fields": fields})

    def trials(self) -> dict[str, Trial]:
        """Give the trials under way by name."""
        return {name: trial for name, trial in self._trials.items() if self._repository.split_of(name) is trial}

    def describe(self, name: str) -> dict[str, Any]:
        """Tell of the last rollout of a name and of its trial; nothing where there was none."""
        now = self._clock.now()
        facts: dict[str, Any] = {}
        if (attempt := self._attempts.get(name)) is not None:
            facts["rollout"] = {
                "version": attempt.version,
                "state": attempt.state,
                "seconds": round(now - attempt.at, 3),
                "error": attempt.error,
                "traceback": attempt.traceback,
            }
        if (trial := self.trials().get(name)) is not None:
            facts["canary"] = trial.describe(now)
        return facts

    async def close(self, timeout: float) -> None:
        """Give up what is being loaded, judge no more, and let what was taken out finish within the time."""
        self._is_closed = True
        if self._looking is not None:
            self._looking.cancel()
        for task in self._loads:
            task.cancel()
        await asyncio.gather(*self._loads, return_exceptions=True)
        await asyncio.gather(*(model.drain(timeout) for model in list(self._leaving)))
        await asyncio.gather(*self._drains, return_exceptions=True)

    async def _loaded(self, config: ModelConfig) -> Model:
        self._note(config, "loading")
        load = _keep(self._loads, self._repository.load(config))
        try:
            return await self._unless_closed(load)
        except BaseException as error:
            self.refuse(config, str(error) or "given up", getattr(error, "traceback", ""))
            raise

    async def _unless_closed(self, load: asyncio.Task[Model]) -> Model:
        try:
            return await load
        except asyncio.CancelledError:
            if self._is_closed:
                raise Unavailable(STOPPING) from None
            raise

    def _retire(self, model: Model) -> None:
        self._leaving.add(model)
        _keep(self._drains, self._drained(model))

    async def _drained(self, model: Model) -> None:
        try:
            await model.drain(self._drain_within)
        finally:
            self._leaving.discard(model)
            self._on_gone(model.config)

    async def _look(self) -> None:
        while self._trials:
            await asyncio.sleep(LOOK_EVERY)
            self.judge()

    def _settle(self, name: str, trial: Trial) -> None:
        """Somebody ended a trial: a default was chosen, or one of the two versions is gone."""
        self._forget(name)
        attempt = self._attempts.get(name)
        if attempt is None or attempt.state != "trial":
            return
        del self._attempts[name]
        if name in self._repository.names() and self._repository.find(name) is trial.new:
            self._note(trial.new.config, "serving")

    def _forget(self, name: str) -> None:
        if (trial := self._trials.pop(name, None)) is not None:
            trial.end()

    @contextmanager
    def _alone(self, name: str) -> Iterator[None]:
        if self._is_closed:
            raise Unavailable(STOPPING)
        if name in self._busy:
            raise Conflict(f"another version of model {name} is being rolled out; try again when it is done")
        self._busy.add(name)
        try:
            yield
        finally:
            self._busy.discard(name)

    def _note(self, config: ModelConfig, state: State, error: str = "", traceback: str = "") -> None:
        for gone in self._attempts.keys() - set(self._repository.names()):
            del self._attempts[gone]
            self.returns.pop(gone, None)
        self._attempts[config.name] = Attempt(config.version, state, self._clock.now(), error, traceback)


def succeeding(config: ModelConfig, old: Model) -> ModelConfig:
    """Give a successor what the one before it was given since: how many workers it was scaled to."""
    return msgspec.structs.replace(
        config,
        workers=old.min_workers,
        max_workers=old.max_workers,
        loaded_at_startup=old.config.loaded_at_startup,
    )


def _keep(tasks: set[asyncio.Task[Any]], work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    task = asyncio.get_running_loop().create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    return task

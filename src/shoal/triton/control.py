"""Control: which models of the repositories are loaded, and what changes that: a start, a client, a file."""

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from shoal.config.model import ModelConfig
from shoal.core.model import Model
from shoal.core.repository import Repository
from shoal.errors import ConfigError, InvalidInput, LoadFailed, ServingError, SourceNotFound, Unavailable
from shoal.triton.held import TWICE, UNLOADED, Edition, Held, IndexEntry
from shoal.triton.repository import Found
from shoal.triton.source import Source, Value, reason_of

log = logging.getLogger("shoal.triton")
T = TypeVar("T")
Mode = Literal["none", "poll", "explicit"]
REFUSED = "explicit model load / unload is not allowed if polling is enabled"
NO_VERSION = "at least one version must be available under the version policy of model '{name}'"
NOT_THERE = "ensemble {ensemble} contains models that are not available or ambiguous: {name}"


class Control:
    """Loads and unloads models. Of each name, the highest version that is ready is the default."""

    def __init__(
        self,
        repository: Repository,
        source: Source,
        *,
        mode: Mode = "none",
        at_start: Sequence[str] = (),  # names, in mode explicit; `*`: all
        poll_every: float = 15.0,  # s
        exit_on_error: bool = True,
        strict_readiness: bool = True,
        at_once: int = 4,  # versions that are loaded at the same time
        drain_within: float = 30.0,  # s
    ) -> None:
        self.mode: Mode = mode
        self._repository = repository
        self._source = source
        self._at_start = at_start
        self._poll_every = poll_every
        self._exit_on_error = exit_on_error
        self._is_strict = strict_readiness
        self._turns = asyncio.Semaphore(max(1, at_once))
        self._drain_within = drain_within
        self._held: dict[str, Held] = {}
        self._stamps: dict[str, object] = {}
        self._draining: list[Model] = []
        self._changes: set[asyncio.Task[None]] = set()  # ended by force when the server stops
        self._drains: set[asyncio.Task[None]] = set()  # waited for
        self._is_up = False

    async def start(self) -> None:
        """Load what is to be there from the start; what fails is raised, unless it is to be put up with."""
        names = await asyncio.to_thread(self._source.names)
        if self.mode == "poll":
            self._stamps = await asyncio.to_thread(self._stamped, names)
        wanted = names if self.mode != "explicit" or "*" in self._at_start else self._at_start
        failures = await self._bring_all(wanted)
        if failures and self._exit_on_error:
            raise LoadFailed(f"creating server: Internal - failed to load all models: {'; '.join(failures)}")
        self._is_up = True
        if self.mode == "poll" and self._poll_every > 0:
            _keep(self._changes, self._poll())

    async def close(self) -> None:
        """Change nothing any more. What serves is the repository's to drain."""
        self._is_up = False
        for task in list(self._changes):
            task.cancel()
        await asyncio.gather(*self._changes, *self._drains, return_exceptions=True)
        await asyncio.to_thread(self._source.close)

    def is_ready(self) -> bool:
        """Say whether the server is ready: started and, where that is strict, with no model on its way or failed."""
        return self._is_up and (not self._is_strict or all(held.is_ready for held in self._held.values()))

    def knows(self, name: str) -> bool:
        """Say whether a model was loaded, though it may not be now."""
        return name in self._held

    async def index(self, *, ready: bool = False) -> list[IndexEntry]:
        """List every model of the repositories and every one that was loaded; or only what is ready."""
        known = set(await asyncio.to_thread(self._source.names))
        lines: list[IndexEntry] = []
        for name in sorted({*known, *self._held}):
            held = self._held.get(name)
            found = held.lines(ready=ready) if held else []
            if not found and not ready and name in known:
                found = [
                    IndexEntry(name, "", "UNAVAILABLE", TWICE) if self._source.is_twice(name) else IndexEntry(name)
                ]
            lines += found
        return lines

    async def load(self, name: str, parameters: Mapping[str, Value] | None = None) -> None:
        """Load a model, anew where it is loaded; returns once it serves. A caller who leaves changes nothing."""
        self._check_explicit()
        await asyncio.shield(_keep(self._changes, self._load(name, parameters or {})))

    def unload(self, name: str, *, unload_dependents: bool = False) -> None:
        """Take a model out at once and let it finish by itself; a name that nobody knows is no error."""
        self._check_explicit()
        if (held := self._held.get(name)) is None:
            return
        held.is_named = False
        if held.lock.locked():
            _keep(self._changes, self._unload_later(held, unload_dependents))
        else:
            self._unload(held, unload_dependents)

    async def poll_once(self) -> None:
        """Follow what changed in the repositories since they were last looked at."""
        names = await asyncio.to_thread(self._source.names)
        stamps = await asyncio.to_thread(self._stamped, names)
        changed = [name for name in names if stamps[name] != self._stamps.get(name)]
        gone = [self._held[name] for name in self._stamps if name not in stamps and name in self._held]
        self._stamps = stamps
        for held in gone:
            async with held.lock:
                held.is_gone = True
                self._unload(held, unload_dependents=False)
        await self._bring_all(changed)

    # -- loading -------------------------------------------------------------------------------------------------------

    async def _load(self, name: str, parameters: Mapping[str, Value]) -> None:
        found = await self._find(name, parameters)
        try:
            await self._bring(found, is_named=True)
        finally:
            self._source.settle(found)
            self._forget_files()

    async def _bring_all(self, names: Iterable[str]) -> list[str]:
        """Load several, ensembles after the rest; why some could not be loaded."""
        failures: list[str] = []

        async def attempt(work: Coroutine[Any, Any, T]) -> T | None:
            try:
                return await work
            except ServingError as error:
                failures.append(str(error).strip())
                return None

        before = {name: held.found for name, held in self._held.items()}
        found = [await attempt(self._find(name, {})) for name in dict.fromkeys(names)]
        async with asyncio.TaskGroup() as group:
            for one in found:
                if one is not None and not one.steps:
                    group.create_task(attempt(self._bring(one, is_named=True)))
        for one in found:
            if one is not None and one.steps:
                held = self._held.get(one.name)
                is_done = held is not None and held.found is not before.get(one.name)  # as a part of another
                await attempt(self._bring(one, is_named=True, only_if_needed=is_done))
        return failures

    async def _find(self, name: str, parameters: Mapping[str, Value]) -> Found:
        """Read a model's settings; what cannot be read changes nothing."""
        try:
            return await asyncio.to_thread(self._source.find, name, parameters)
        except (SourceNotFound, ConfigError) as error:
            is_missing = isinstance(error, SourceNotFound)
            if is_missing and name in self._held and not self._held[name].here:
                del self._held[name]
            words = f"failed to load '{name}', failed to poll from model repository"
            log.error("%s: %s", words, error)
            raise ServingError(words if is_missing else f"{words}: {error}") from None

    async def _bring(self, found: Found, *, is_named: bool, only_if_needed: bool = False) -> None:
        """Load the versions that are chosen, all or none. What served before serves until then, or stays."""
        held = self._held.setdefault(found.name, Held(found.name))
        held.is_gone = False
        try:
            parts = await self._parts(found, ())
            self._source.check(found, parts)
            async with held.lock:
                held.is_named |= is_named
                if only_if_needed and held.serving:
                    return
                if not found.versions:
                    raise ConfigError(NO_VERSION.format(name=found.name))
                self._switch(held, found, await self._load_versions(held, found, parts))
        except ServingError as error:
            words = f"load failed for model '{found.name}': {error}\n"
            log.error("%s", words.strip(), extra={"fields": {"traceback": getattr(error, "traceback", "")}})
            raise InvalidInput(words) from None
        await self._bring_dependents(found.name)

    async def _parts(self, found: Found, above: tuple[str, ...]) -> list[ModelConfig]:
        """Give the settings of each step's model in an ensemble; those that do not serve are loaded first."""
        serving: dict[str, dict[int, Model]] = {}
        path = (*above, found.name)
        for name in found.steps:
            if name in path:
                raise ConfigError(f"circular dependency between ensembles: {name} -> ... -> {found.name} -> {name}")
            if name not in self._held or not self._held[name].serving:
                await self._bring_part(name, found.name, path)
            held = self._held.get(name)
            if held is None or held.found is None or not held.serving:  # unloaded since
                raise ConfigError(NOT_THERE.format(ensemble=found.name, name=name))
            await self._parts(held.found, path)
            wanted = {step.model_version for step in found.message.ensemble_scheduling.step if step.model_name == name}
            for version in sorted(wanted - {-1} - held.serving.keys()):
                need = f"depends on '{name}' whose required version {version} is not loaded."
                raise ConfigError(f"ensemble '{found.name}' {need}")
            serving[name] = held.serving
        return [
            serving[step.model_name][
                step.model_version if step.model_version > 0 else max(serving[step.model_name])
            ].config
            for step in found.message.ensemble_scheduling.step
        ]

    async def _bring_part(self, name: str, ensemble: str, path: tuple[str, ...]) -> None:
        unavailable = NOT_THERE.format(ensemble=ensemble, name=name)
        try:
            part = await asyncio.to_thread(self._source.find, name, {})
        except (ConfigError, SourceNotFound) as error:
            raise ConfigError(f"{unavailable} ({error})") from None
        await self._parts(part, path)
        try:
            await self._bring(part, is_named=False, only_if_needed=True)
        except ServingError as error:
            raise ConfigError(f"{unavailable} ({str(error).strip()})") from None

    async def _bring_dependents(self, name: str) -> None:
        """Load the ensembles again that a model is part of: they look at what it is now, or come back with it."""
        for held in [held for held in self._held.values() if name in held.steps and held.is_wanted]:
            assert held.found is not None
            try:
                await self._bring(held.found, is_named=False)
            except ServingError:  # it has been logged
                self._unload(held, unload_dependents=False)  # it was made for what is no more
                held.is_wanted = True

    async def _load_versions(self, held: Held, found: Found, parts: Sequence[ModelConfig]) -> dict[int, Model]:
        """Load every version beside what serves; when one fails none stays, and why is raised."""
        was, is_fresh = dict(held.editions), not held.here
        if is_fresh:
            held.editions = {**was, **{version: Edition("LOADING") for version in found.versions}}
        try:
            async with asyncio.TaskGroup() as group:
                tasks = {
                    version: group.create_task(self._load_version(found, version, parts)) for version in found.versions
                }
        except BaseException:
            held.editions = was
            raise
        results = {version: task.result() for version, task in tasks.items()}
        models = {version: result for version, result in results.items() if isinstance(result, Model)}
        failures = {version: result for version, result in results.items() if isinstance(result, ServingError)}
        if not failures:
            return models
        for version, model in models.items():
            self._drain(model, held.editions[version] if is_fresh else None, held)
        reasons = {version: reason_of(error) for version, error in failures.items()}
        if is_fresh:
            held.editions |= {version: Edition("UNAVAILABLE", reason) for version, reason in reasons.items()}
        told = "\n".join(f"version {version} is at UNAVAILABLE state: {reason};" for version, reason in reasons.items())
        raise LoadFailed(
            told, "\n".join(filter(None, (getattr(error, "traceback", "") for error in failures.values())))
        )

    async def _load_version(self, found: Found, version: int, parts: Sequence[ModelConfig]) -> Model | ServingError:
        async with self._turns:
            try:
                return await self._repository.load(await self._source.config(found, version, parts))
            except ServingError as error:
                return error
            except Exception as error:
                log.exception("model %s version %d", found.name, version)
                return LoadFailed(f"{type(error).__name__}: {error}")

    def _switch(self, held: Held, found: Found, models: Mapping[int, Model]) -> None:
        """Let the new versions be found, then let go of those that they replace."""
        held.found, held.is_wanted = found, True
        before = dict(held.editions)
        for version, model in sorted(models.items()):
            replaced = self._repository.put(model)
            held.editions[version] = Edition("READY", model=model)
            if replaced is not None:
                self._drain(replaced, None, held)
        self._repository.set_default(held.name, str(max(models)))
        for version, edition in before.items():
            if version not in models and edition.model is not None:
                self._take_out(held, version, edition.model)
        log.info("successfully loaded '%s' version %s", held.name, ", ".join(map(str, sorted(models))))

    # -- unloading -----------------------------------------------------------------------------------------------------

    async def _unload_later(self, held: Held, unload_dependents: bool) -> None:
        async with held.lock:
            if not held.is_named:  # nobody asked for it again meanwhile
                self._unload(held, unload_dependents)

    def _unload(self, held: Held, unload_dependents: bool) -> None:
        """Take a model out, the ensembles it is part of, and, where asked, the models it is made of."""
        held.is_wanted = False
        for ensemble in [other for other in self._held.values() if held.name in other.steps]:
            if ensemble.here:
                is_wanted = ensemble.is_wanted
                self._unload(ensemble, unload_dependents=False)
                ensemble.is_wanted = is_wanted
        for version, model in held.here.items():
            self._take_out(held, version, model)
        if held.is_gone and not any(edition.state == "UNLOADING" for edition in held.editions.values()):
            self._held.pop(held.name, None)
        for name in held.steps if unload_dependents else ():
            part = self._held.get(name)
            is_used = any(name in other.steps and other.here for other in self._held.values())
            if part is not None and not part.is_named and not is_used:
                self._unload(part, unload_dependents)

    def _take_out(self, held: Held, version: int, model: Model) -> None:
        self._repository.take_out(model)
        held.editions[version] = edition = Edition("UNLOADING", model=model)
        self._drain(model, edition, held)

    def _drain(self, model: Model, edition: Edition | None, held: Held) -> None:
        """Let a model finish, once the ensembles that need it have finished."""
        self._draining.append(model)
        above = [drain for other in self._held.values() if held.name in other.steps for drain in other.drains]
        drain = _keep(self._drains, self._drained(model, edition, held, above))
        held.drains.add(drain)
        drain.add_done_callback(held.drains.discard)

    async def _drained(
        self, model: Model, edition: Edition | None, held: Held, above: Sequence[asyncio.Task[None]]
    ) -> None:
        version = int(model.version)
        try:
            await asyncio.gather(*above, return_exceptions=True)
            await model.drain(self._drain_within)
        finally:
            self._draining.remove(model)
            if edition is not None and held.editions.get(version) is edition:
                held.editions[version] = Edition("UNAVAILABLE", UNLOADED)
                log.info("successfully unloaded '%s' version %d", held.name, version)
            if held.is_gone and self._held.get(held.name) is held and not held.here:
                del self._held[held.name]
            self._forget_files()

    # -- the rest ------------------------------------------------------------------------------------------------------

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(self._poll_every)
            try:
                await self.poll_once()
            except OSError as error:
                log.error("cannot look at the model repositories: %s", error)

    def _stamped(self, names: Iterable[str]) -> dict[str, object]:
        return {name: self._source.stamp(name) for name in names}

    def _forget_files(self) -> None:
        """Remove what clients sent for models that neither serve nor finish."""
        served = [held.found.folder for held in self._held.values() if held.found is not None and held.is_wanted]
        ending = [Path(model.config.path).parent for model in self._draining]
        self._source.forget_all_but({*served, *ending})

    def _check_explicit(self) -> None:
        if self.mode != "explicit":
            raise Unavailable(REFUSED)


def _keep(tasks: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    task = asyncio.get_running_loop().create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    return task

"""Repository: the models this server has, by name and version."""

import asyncio
from collections.abc import Callable, Hashable, Iterator
from typing import Protocol

from shoal.config.model import ModelConfig
from shoal.core.model import Life, Model
from shoal.errors import Conflict, ModelNotFound, Protected, VersionNotFound

Build = Callable[[ModelConfig], Model]


class Split(Protocol):
    """Two versions that share the requests for a bare name."""

    old: Model
    new: Model

    def pick(self, client: Hashable) -> Model:
        """Give the one that the next request goes to."""
        ...


class Entry:
    """The versions of one name."""

    __slots__ = ("default", "split", "versions")

    def __init__(self, default: Model) -> None:
        self.default = default
        self.versions: dict[str, Model] = {default.version: default}
        self.split: Split | None = None


class Repository:
    """Finds models; adds and removes them without disturbing the others."""

    def __init__(self, build: Build) -> None:
        self._build = build
        self._entries: dict[str, Entry] = {}
        self.changes = 0  # grows whenever a name may mean another model than before
        self.on_trial: set[Model] = set()  # what becomes of these says nothing of the server
        self.is_closing = False  # the server is being stopped: it answers, but says that it is not ready

    def find(self, name: str, version: str = "") -> Model:
        """Give the default version, or the one named; raises ModelNotFound or VersionNotFound."""
        entry = self._entries.get(name)
        if entry is None:
            raise ModelNotFound(name)
        if not version:
            return entry.default
        model = entry.versions.get(version)
        if model is None:
            raise VersionNotFound(name, version)
        return model

    def pick(self, name: str, version: str = "", client: Hashable = None) -> Model:
        """Give the model for one request: as `find`, but versions that share a bare name take turns."""
        entry = self._entries.get(name)
        if version or entry is None or entry.split is None:
            return self.find(name, version)
        return entry.split.pick(client)

    def split_of(self, name: str) -> Split | None:
        """Give the split of a bare name; while there is one, what it means has to be asked for each request."""
        entry = self._entries.get(name)
        return None if entry is None else entry.split

    def split(self, name: str, split: Split | None) -> None:
        """Let two versions share the requests for a bare name, or only its default have them."""
        self.find(name)
        self._entries[name].split = split
        self.changes += 1
        if split is not None:
            self.on_trial.add(split.new)

    def names(self) -> list[str]:
        """Every name, sorted."""
        return sorted(self._entries)

    def versions(self, name: str) -> list[Model]:
        """Every version of a name, oldest registration first."""
        self.find(name)
        return list(self._entries[name].versions.values())

    def __iter__(self) -> Iterator[Model]:
        return iter([model for entry in self._entries.values() for model in entry.versions.values()])

    def add(self, config: ModelConfig) -> Model:
        """Put a model in, not yet started; the first version of a name is its default. Raises Conflict."""
        entry = self._entries.get(config.name)
        if entry is not None and config.version in entry.versions:
            raise Conflict(f"Model version {config.version} is already registered for model {config.name}")
        model = self._build(config)
        self.changes += 1
        if entry is None:
            self._entries[config.name] = Entry(model)
        else:
            entry.versions[config.version] = model
        return model

    async def register(self, config: ModelConfig) -> Model:
        """Put a model in and load it; one that cannot be loaded is taken out again and the reason raised."""
        model = self.add(config)
        try:
            await model.start()
        except BaseException:
            self._forget(model)
            await model.drain(timeout=0.0)
            raise
        return model

    async def load(self, config: ModelConfig) -> Model:
        """Load a model beside those that are here: nobody finds it before `put`. One that fails raises the reason."""
        model = self._build(config)
        try:
            await model.start()
        except BaseException:
            await model.drain(timeout=0.0)
            raise
        return model

    def put(self, model: Model) -> Model | None:
        """Put a loaded model in, and give back the one of the same name and version that it takes the place of."""
        self.changes += 1
        entry = self._entries.get(model.name)
        if entry is None:
            self._entries[model.name] = Entry(model)
            return None
        replaced = entry.versions.get(model.version)
        entry.versions[model.version] = model
        if entry.default is replaced:
            entry.default = model
        if replaced is not None:
            self.on_trial.discard(replaced)
            _end_split(entry, replaced)
        return replaced

    def take_over(self, model: Model) -> list[Model]:
        """Put a loaded model in as what its name means, in one step.

        Gives back those that were taken out for it: the default before, and one of the same version.
        """
        entry = self._entries.get(model.name)
        before = None if entry is None else entry.default
        replaced = self.put(model)
        self.set_default(model.name, model.version)
        if before is not None and before is not replaced:
            self._forget(before)
        return [old for old in dict.fromkeys((before, replaced)) if old is not None]

    def take_out(self, model: Model) -> None:
        """Let a version be found no more; what it admitted is its own to finish. One that is not here is nothing."""
        self._forget(model)

    async def unregister(self, name: str, version: str, timeout: float) -> bool:
        """Take a version out at once, then let it finish what it had; whether it did in time. The default goes last."""
        model = self.find(name, version)
        entry = self._entries[name]
        if model is entry.default and len(entry.versions) > 1:
            raise Protected(f"Cannot remove default version for model {name}")
        self._forget(model)
        return await model.drain(timeout)

    def set_default(self, name: str, version: str) -> None:
        """Make a version the one that a bare name means, and the only one."""
        model = self.find(name, version)
        entry = self._entries[name]
        entry.default = model
        entry.split = None
        self.on_trial.discard(model)
        self.changes += 1

    async def drain(self, timeout: float) -> None:
        """Finish everything, all models at once."""
        await asyncio.gather(*(model.drain(timeout) for model in self if model.life is not Life.UNLOADED))

    def _forget(self, model: Model) -> None:
        self.on_trial.discard(model)
        entry = self._entries.get(model.name)
        if entry is None or entry.versions.get(model.version) is not model:
            return  # taken out before, while it was loading
        self.changes += 1
        entry.versions.pop(model.version)
        if not entry.versions:
            del self._entries[model.name]
            return
        _end_split(entry, model)
        if entry.default is model:
            entry.default = next(iter(entry.versions.values()))


def _end_split(entry: Entry, gone: Model) -> None:
    """A version that is gone shares nothing."""
    if entry.split is not None and gone in (entry.split.old, entry.split.new):
        entry.split = None

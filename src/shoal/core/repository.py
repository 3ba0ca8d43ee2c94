"""Repository: the models this server has, by name and version."""

import asyncio
from collections.abc import Callable, Iterator

from shoal.config.model import ModelConfig
from shoal.core.model import Life, Model
from shoal.errors import Conflict, ModelNotFound, Protected, VersionNotFound

Build = Callable[[ModelConfig], Model]


class Entry:
    """The versions of one name."""

    __slots__ = ("default", "versions")

    def __init__(self, default: Model) -> None:
        self.default = default
        self.versions: dict[str, Model] = {default.version: default}


class Repository:
    """Finds models; adds and removes them without disturbing the others."""

    def __init__(self, build: Build) -> None:
        self._build = build
        self._entries: dict[str, Entry] = {}
        self.changes = 0  # grows whenever a name may mean another model than before

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
        return replaced

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
        """Make a version the one that a bare name means."""
        model = self.find(name, version)
        self._entries[name].default = model
        self.changes += 1

    async def drain(self, timeout: float) -> None:
        """Finish everything, all models at once."""
        await asyncio.gather(*(model.drain(timeout) for model in self if model.life is not Life.UNLOADED))

    def _forget(self, model: Model) -> None:
        entry = self._entries.get(model.name)
        if entry is None or entry.versions.get(model.version) is not model:
            return  # taken out before, while it was loading
        self.changes += 1
        entry.versions.pop(model.version)
        if not entry.versions:
            del self._entries[model.name]
        elif entry.default is model:
            entry.default = next(iter(entry.versions.values()))

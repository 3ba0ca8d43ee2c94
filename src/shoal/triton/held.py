"""Held: what a server knows of one model of its repositories: each version's state, in the words of the index."""

import asyncio
from typing import Literal, NamedTuple

from shoal.core.model import Life, Model
from shoal.triton.repository import Found

State = Literal["", "LOADING", "READY", "UNLOADING", "UNAVAILABLE"]
UNLOADED = "unloaded"
DRAINED = "drained"
TWICE = "model appears in two or more repositories"


class IndexEntry(NamedTuple):
    """A line of the index; only the name where nothing more is known."""

    name: str
    version: str = ""
    state: State = ""
    reason: str = ""


class Edition:
    """One version of a model, as far as it came."""

    __slots__ = ("_reason", "_state", "model")

    def __init__(self, state: State, reason: str = "", model: Model | None = None) -> None:
        self._state: State = state
        self._reason = reason
        self.model = model

    @property
    def state(self) -> State:
        """Where it is; one without workers that will come by themselves is not available."""
        return "UNAVAILABLE" if self._resting else self._state

    @property
    def reason(self) -> str:
        """Why it is not available."""
        return self._resting or self._reason

    @property
    def is_fine(self) -> bool:
        """Whether it serves, or was taken away on purpose."""
        return self.state == "READY" or self.reason in (UNLOADED, DRAINED)

    @property
    def is_here(self) -> bool:
        """Whether it is in the server, serving or not."""
        return self._state == "READY"

    @property
    def _resting(self) -> str:
        """Why a model that is here does not serve."""
        if not self.is_here or self.model is None:
            return ""
        life = self.model.life
        if life is Life.FAILED:
            return f"Internal: {self.model.error}"
        return DRAINED if life in (Life.DRAINING, Life.DRAINED) else ""


class Held:
    """A model that was loaded, or was to be. Whoever changes its versions holds the lock."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lock = asyncio.Lock()
        self.editions: dict[int, Edition] = {}
        self.drains: set[asyncio.Task[None]] = set()  # of versions that finish what they have
        self.found: Found | None = None  # what serves, or served last
        self.is_named = False  # somebody asked for it, rather than an ensemble that needs it
        self.is_wanted = False  # it comes back with the models it is made of
        self.is_gone = False  # from the repositories: it is forgotten when it has ended

    @property
    def serving(self) -> dict[int, Model]:
        """The versions that answer."""
        return {version: model for version, model in self.here.items() if self.editions[version].state == "READY"}

    @property
    def here(self) -> dict[int, Model]:
        """The versions that are in the server, those that have failed or were drained as well."""
        here = sorted((version, edition.model) for version, edition in self.editions.items() if edition.is_here)
        return {version: model for version, model in here if model is not None}

    @property
    def steps(self) -> list[str]:
        """The models it is made of."""
        return self.found.steps if self.found else []

    @property
    def is_ready(self) -> bool:
        """Whether it is in no state that a server which is ready may not have."""
        return bool(self.editions) and all(edition.is_fine for edition in self.editions.values())

    def lines(self, *, ready: bool) -> list[IndexEntry]:
        """Give its lines of the index."""
        return [
            IndexEntry(self.name, str(version), edition.state, edition.reason)
            for version, edition in sorted(self.editions.items())
            if edition.state == "READY" or not ready
        ]

"""A Control over real folders and a real repository, whose models load and end when the test says so."""

import asyncio
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

from shoal.config.model import ModelConfig
from shoal.core.model import Model, WorkerFacts
from shoal.core.repository import Repository
from shoal.errors import LoadFailed
from shoal.triton.control import Control
from shoal.triton.repository import Folders
from shoal.triton.source import Source
from tests.support import Bench, FakeClock


class Workers:
    """A pool that does what the model's file says: nothing, or `fail REASON`, or `slow`, or `sticky`."""

    def __init__(self, config: ModelConfig, yard: "Yard") -> None:
        self.size = 1
        self.trouble = ""
        self._yard = yard
        file = Path(config.path) / "model.py"
        self._word, _, self._reason = (file.read_text() if file.exists() else "").partition(" ")

    async def start(self) -> None:
        self._yard.starting += 1
        try:
            if self._word == "slow":
                await self._yard.loads.wait()
            if self._word == "fail":
                raise LoadFailed(self._reason, traceback="the model's own line")
            if self._word == "burst":
                raise ZeroDivisionError("not foreseen")
        finally:
            self._yard.starting -= 1

    async def scale(self, workers: int) -> None:
        self.size = workers

    async def stop(self, timeout: float) -> None:
        if self._word == "sticky":
            await self._yard.ends.wait()
        self.size = 0

    def describe(self) -> Sequence[WorkerFacts]:
        return []


class Yard:
    """Everything a test needs around a Control. Built and used on one event loop."""

    def __init__(self, *roots: Path, gpus: int = 0, completes: bool = False, **settings: Any) -> None:
        self.starting = 0
        self.loads = asyncio.Event()
        self.ends = asyncio.Event()
        self.models: list[Model] = []
        self.repository = Repository(self.build)
        self.source = Source(Folders(roots), range(gpus), completes=completes, work=roots[0].parent / "work")
        self.control = Control(self.repository, self.source, **{"mode": "explicit", "poll_every": 0.0, **settings})

    def build(self, config: ModelConfig) -> Model:
        self.models.append(Model(config, Bench().scheduler, Workers(config, self), FakeClock()))
        return self.models[-1]

    async def index(self, *, ready: bool = False) -> list[tuple[str, ...]]:
        """The index without its empty ends."""
        lines = await self.control.index(ready=ready)
        return [tuple(word for word in line if word) for line in lines]

    async def settle(self) -> None:
        """Let whatever can go on go on."""
        for _ in range(50):
            await asyncio.sleep(0.001)

    def serving(self, name: str) -> list[str]:
        return [model.version for model in self.repository.versions(name)] if name in self.repository.names() else []


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 20))

"""Watch: the tracks of every model. They record while somebody watches and for some minutes after, else not at all."""

import asyncio
import contextlib
from collections.abc import Callable

from shoal.clock import Clock
from shoal.core.model import Model
from shoal.core.repository import Repository
from shoal.frontend.dashboard.track import CELLS, Track

PERIOD = 0.25  # s between two beats
BEATS = 4  # to a look
LINGER = float(CELLS)  # s that the tracks are kept when nobody watches any more
OnBeat = Callable[[float, bool], None]  # the time, and whether the models were looked at


class Watch:
    """Attaches a track to each model when `begin` is called, and lets go some time after `end`."""

    def __init__(self, repository: Repository, clock: Clock, on_beat: OnBeat) -> None:
        self.tracks: dict[Model, Track] = {}
        self._repository = repository
        self._clock = clock
        self._on_beat = on_beat
        self._watchers = 0
        self._left = 0.0  # when the last watcher did
        self._task: asyncio.Task[None] | None = None

    @property
    def is_on(self) -> bool:
        """Whether batches are recorded."""
        return self._task is not None

    def begin(self) -> None:
        """Somebody watches."""
        self._watchers += 1
        if self._task is None:
            self.follow(self._clock.now())
            self._task = asyncio.get_running_loop().create_task(self._run())

    def end(self) -> None:
        """Somebody watches no more."""
        self._watchers -= 1
        self._left = self._clock.now()

    async def stop(self) -> None:
        """Record no more."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self._let_all_go()  # also where the task had not begun

    def follow(self, now: float) -> None:
        """Have a track for every model there is, and none for others."""
        models = set(self._repository)
        for model in self.tracks.keys() - models:
            self._let_go(model)
        for model in models - self.tracks.keys():
            track = self.tracks[model] = Track(model, now)
            model.scheduler.stats.on_batch.append(track.hear)

    async def _run(self) -> None:
        beat = 0
        try:
            while self._watchers or self._clock.now() < self._left + LINGER:
                await asyncio.sleep(PERIOD)
                beat += 1
                now = self._clock.now()
                if has_looked := beat % BEATS == 0:
                    self.follow(now)
                    for track in self.tracks.values():
                        track.look(now)
                if self._watchers:
                    self._on_beat(now, has_looked)
        finally:
            self._let_all_go()

    def _let_all_go(self) -> None:
        for model in list(self.tracks):
            self._let_go(model)
        self._task = None

    def _let_go(self, model: Model) -> None:
        model.scheduler.stats.on_batch.remove(self.tracks.pop(model).hear)

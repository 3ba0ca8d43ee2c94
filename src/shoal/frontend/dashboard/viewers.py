"""Viewers: the open pages, each a stream of server-sent events. Who reads slowly misses beats, never holds them up."""

from collections.abc import Callable
from typing import Any

import msgspec

from shoal.clock import Clock
from shoal.core.repository import Repository
from shoal.errors import ModelNotFound, ServingError, Unavailable, VersionNotFound
from shoal.frontend.dashboard.track import Track
from shoal.frontend.dashboard.view import line_of, whole_of
from shoal.frontend.dashboard.watch import PERIOD, Watch
from shoal.frontend.exchange import Exchange

MOST_VIEWERS = 16
MOST_BATCHES = 256  # in one event
HEAD = b"Content-Type: text/event-stream\r\nCache-Control: no-store\r\nX-Accel-Buffering: no\r\n"
Check = Callable[[], None]  # raises Unauthorised once the viewer's key is good no more


class Viewer:
    """One open page, and which model it looks at."""

    def __init__(self, exchange: Exchange, name: str, version: str, check: Check) -> None:
        self.exchange = exchange
        self.name = name
        self.version = version
        self.check = check
        self.track: Track | None = None
        self.cells = 0  # of the track: made when it was last told
        self.batches = 0  # heard of likewise

    def tell(self, event: str, value: Any) -> None:
        """Send one event."""
        self.exchange.write(b"event: %b\ndata: %b\n\n" % (event.encode(), msgspec.json.encode(value)))

    def turn_to(self, track: Track | None) -> None:
        """Look at another model, from its beginning."""
        if self.track is not None:
            self.track.viewers -= 1
        self.track = track
        self.cells = 0
        if track is not None:
            track.viewers += 1
            self.batches = track.batches_heard - min(len(track.ended), MOST_BATCHES)


class Viewers:
    """Everybody who watches. A page that went away, or whose key expired, is let go."""

    def __init__(self, repository: Repository, clock: Clock, about: dict[str, Any]) -> None:
        self._repository = repository
        self._clock = clock
        self._about = about
        self._viewers: list[Viewer] = []
        self.watch = Watch(repository, clock, self._beat)

    def __len__(self) -> int:
        return len(self._viewers)

    def join(self, exchange: Exchange, name: str, version: str, check: Check) -> None:
        """Begin a stream; raises Unavailable where too many watch already."""
        if len(self._viewers) >= MOST_VIEWERS:
            raise Unavailable(f"{MOST_VIEWERS} pages watch this server already, and no more may; close one")
        viewer = Viewer(exchange, name, version, check)
        self.watch.begin()
        self._viewers.append(viewer)
        exchange.on_gone = lambda: self._leave(viewer)
        exchange.close_after = True
        exchange.start(200, HEAD)
        viewer.tell("hello", {**self._about, "period": PERIOD})
        now = self._clock.now()
        self._tell_models([viewer], now)
        self._tell_batches(viewer, now)

    async def stop(self) -> None:
        """End every stream, and say so."""
        for viewer in list(self._viewers):
            self._dismiss(viewer, "the server is stopping")
        await self.watch.stop()

    def _beat(self, now: float, has_looked: bool) -> None:
        if has_looked:
            for viewer in list(self._viewers):
                try:
                    viewer.check()
                except ServingError as error:
                    self._dismiss(viewer, str(error))
        reading = [viewer for viewer in self._viewers if viewer.exchange.writable]
        if has_looked and reading:
            self._tell_models(reading, now)
        for viewer in reading:
            self._tell_batches(viewer, now)

    def _tell_models(self, viewers: list[Viewer], now: float) -> None:
        lines = [line_of(track, self._is_default(track)) for track in self.watch.tracks.values()]
        lines.sort(key=lambda line: (line["name"], line["version"]))
        for viewer in viewers:
            self._find(viewer)
            viewer.tell("models", {"now": round(now, 3), "models": lines})
            if viewer.track is not None:
                viewer.tell("model", whole_of(viewer.track, viewer.cells))
                viewer.cells = viewer.track.cells_made

    def _tell_batches(self, viewer: Viewer, now: float) -> None:
        track = viewer.track
        if track is None:
            return
        ended, missed = track.ended_since(viewer.batches, MOST_BATCHES)
        viewer.batches = track.batches_heard
        waiting = len(track.model.scheduler.batcher.queue)
        facts = {"ended": ended, "missed": missed, "held": track.held(), "waiting": waiting, "arrived": track.waiting()}
        viewer.tell("batches", {"now": round(now, 5), **facts})

    def _find(self, viewer: Viewer) -> None:
        """Keep the viewer's eye on the model it named, or on the first there is where it named none that is here."""
        tracks = self.watch.tracks
        try:
            wanted = tracks.get(self._repository.find(viewer.name, viewer.version))
        except (ModelNotFound, VersionNotFound):
            wanted = min(tracks.values(), key=lambda track: (track.model.name, track.model.version), default=None)
        if wanted is not viewer.track:
            viewer.turn_to(wanted)

    def _is_default(self, track: Track) -> bool:
        try:
            return self._repository.find(track.model.name) is track.model
        except ModelNotFound:
            return False

    def _dismiss(self, viewer: Viewer, reason: str) -> None:
        viewer.tell("bye", {"reason": reason})
        viewer.exchange.on_gone = None
        viewer.exchange.end()
        self._leave(viewer)

    def _leave(self, viewer: Viewer) -> None:
        viewer.turn_to(None)
        self._viewers.remove(viewer)
        self.watch.end()

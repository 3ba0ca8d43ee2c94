"""Trial: a new version that gets a share of a name's requests, and what both versions do meanwhile."""

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

from shoal.config.model import Canary
from shoal.core.canary import Share, Tally, Window, is_chosen, verdict
from shoal.core.model import Life, Model
from shoal.core.request import State
from shoal.telemetry import ModelStats

if TYPE_CHECKING:
    from shoal.core.batch import Batch


class Trial:
    """Splits the requests between two versions. `watch` begins to count what they do, `look` judges, `end` stops."""

    def __init__(self, old: Model, new: Model, rule: Canary, now: float) -> None:
        self.old = old
        self.new = new
        self.rule = rule
        self.began = now
        self._share = Share(rule.weight)
        self._sides = (_Side(old, rule.window), _Side(new, rule.window))

    def pick(self, client: Hashable) -> Model:
        """Give the version for the next request; a new one that could not answer gets none."""
        if self.rule.sticky:
            is_new = is_chosen(getattr(client, "address", client), self._share.parts)
        else:
            is_new = self._share.take()
        return self.new if is_new and self.new.is_ready else self.old

    def watch(self) -> None:
        """Begin to hear of batches."""
        for side in self._sides:
            side.watch()

    def look(self, now: float) -> str:
        """Say why the new version gets no more requests; empty while it goes on."""
        if self.new.life is not Life.READY:
            return f"it is {self.new.life.value}" + (f": {self.new.error}" if self.new.error else "")
        for side in self._sides:
            side.count(now)
        return verdict(self.rule, *self._tallies(now))

    def end(self) -> None:
        """Hear no more."""
        for side in self._sides:
            side.leave()

    def describe(self, now: float) -> dict[str, Any]:
        """Tell how it goes."""
        old, new = self._tallies(now)
        return {
            "version": self.new.version,
            "weight": self.rule.weight,
            "sticky": self.rule.sticky,
            "seconds": round(now - self.began, 3),
            "old": _facts(self.old, old),
            "new": _facts(self.new, new),
        }

    def _tallies(self, now: float) -> tuple[Tally, Tally]:
        old, new = self._sides
        return old.window.tally(now), new.window.tally(now)


class _Side:
    """One version: its answers are heard of as their batches end, everything else is read off its counters."""

    def __init__(self, model: Model, span: float) -> None:
        self.window = Window(span)
        self._stats = model.scheduler.stats
        self._failed = _failures(self._stats)
        self._hear: Callable[[ModelStats, Batch, float], None] = self._batch

    def watch(self) -> None:
        self._stats.on_batch.append(self._hear)

    def leave(self) -> None:
        if self._hear in self._stats.on_batch:
            self._stats.on_batch.remove(self._hear)

    def count(self, now: float) -> None:
        failed = _failures(self._stats)
        if failed > self._failed:
            self.window.failed(now, failed - self._failed)
        self._failed = failed

    def _batch(self, stats: ModelStats, batch: "Batch", now: float) -> None:
        for request in batch.requests:
            if request.state is State.ANSWERED:
                self.window.answered(now, now - request.arrived)


def _failures(stats: ModelStats) -> int:
    return stats.failed + stats.expired + stats.refused + stats.poisoned


def _facts(model: Model, tally: Tally) -> dict[str, Any]:
    return {
        "version": model.version,
        "answered": tally.answered,
        "failed": tally.failed,
        "p90Ms": round(1000 * tally.slow, 3),
    }

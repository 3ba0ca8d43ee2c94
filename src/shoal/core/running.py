"""Running: which batches are on their way through which instance, and when each should be done."""

from dataclasses import dataclass
from typing import Final

from shoal.core.batch import Batch, Stages

KEEPS: Final = 0.95  # what the batches so far count for when another one tells its stages


@dataclass(slots=True)
class Run:
    """A batch on its way through an instance."""

    number: int
    requests: int
    rows: int
    since: float  # from when it has had the instance to itself
    took: float  # seconds it should take from then
    behind: int  # rows of the batch before it; 0: nothing was before it when it was sent

    @property
    def end(self) -> float:
        """When it should be done."""
        return self.since + self.took


class Running:
    """The runs of every instance, in the order they were sent; instances without any are not kept."""

    def __init__(self) -> None:
        self._runs: dict[str, list[Run]] = {}

    def __len__(self) -> int:
        return len(self._runs)

    def of(self, instance: str) -> list[Run]:
        """Give what an instance runs."""
        return self._runs.get(instance, [])

    def begin(self, batch: Batch, took: float, size: int, now: float) -> None:
        """Note a batch that should take so long; of more than `size` instances the one overdue most went silently."""
        runs = self._runs.setdefault(batch.instance, [])
        since = max(now, runs[-1].end) if runs else now
        behind = max(1, runs[-1].rows) if runs else 0
        runs.append(Run(batch.number, len(batch), batch.rows, since, took, behind))
        if len(self._runs) > max(1, size):
            others = [name for name in self._runs if name != batch.instance]
            del self._runs[min(others, key=lambda name: self._runs[name][-1].end)]

    def end(self, batch: Batch, now: float) -> tuple[float, int]:
        """Forget a batch; give the seconds for which it had its instance to itself, and the rows it was behind."""
        runs = self._runs.get(batch.instance, [])
        index = 0
        while index < len(runs) and runs[index].number != batch.number:
            index += 1
        if index == len(runs):
            return now - batch.left, 0
        run = runs.pop(index)
        if not runs:
            del self._runs[batch.instance]
        elif index == 0:
            runs[0].since = now
        return now - (run.since if run.since <= now else batch.left), run.behind

    @property
    def requests(self) -> int:
        """How many requests are on their way."""
        return sum([run.requests for runs in self._runs.values() for run in runs])

    @property
    def rows(self) -> int:
        """How many rows are on their way."""
        return sum([run.rows for runs in self._runs.values() for run in runs])

    def ends(self) -> list[tuple[float, int]]:
        """Give (when it should be free, rows until then) of every instance that runs something."""
        return [(runs[-1].end, sum([run.rows for run in runs])) for runs in self._runs.values()]


class Edges:
    """What batches do before and after their inference, while the one before or the next may have its own."""

    def __init__(self) -> None:
        self._before = self._after = self._rows = 0.0
        self._saved = self._overlapped = 0.0  # of batches behind another: what that saved, and what their edges were

    def learn(self, rows: int, stages: Stages) -> None:
        """Note how long a batch took; many rows say more than a few."""
        self._before = KEEPS * self._before + stages.preprocess
        self._after = KEEPS * self._after + stages.postprocess
        self._rows = KEEPS * self._rows + rows

    def share(self, took: float, stages: Stages) -> float:
        """Learn from a batch that overlapped the one before, and ended so long after it; give what it cost."""
        whole = stages.preprocess + stages.inference + stages.postprocess
        took = min(max(took, stages.preprocess, stages.inference, stages.postprocess), whole)
        self._saved = KEEPS * self._saved + whole - took
        self._overlapped = KEEPS * self._overlapped + stages.preprocess + stages.postprocess
        return took

    def before(self, rows: int) -> float:
        """How long so many rows take to be ready for inference."""
        return self._before * rows / self._rows if self._rows else 0.0

    def after(self, rows: int) -> float:
        """How long it takes from the end of their inference until they are answered."""
        return self._after * rows / self._rows if self._rows else 0.0

    def hidden(self, rows: int) -> float:
        """How much of both is saved where batches overlap: all, until some did."""
        part = min(1.0, self._saved / self._overlapped) if self._overlapped else 1.0
        return part * (self.before(rows) + self.after(rows))


class HandOver:
    """The time a batch spends outside its worker: on the way there and back, and waiting for a busy front process.

    Only the usual share of it belongs to a batch. The rest says how busy the front process was, nothing about the size
    of the batch, and would drown the small differences between sizes of a cheap model.
    """

    FASTER = 0.25  # what a shorter way than usual counts for
    SLOWER = 0.01  # and a longer one

    def __init__(self) -> None:
        self.usual = 0.0
        self._is_known = False

    def cost(self, took: float, inside: float) -> float:
        """Give what a batch cost that took so long in all and spent `inside` seconds of it in its worker."""
        way = took - inside
        if way <= 0.0 or inside <= 0.0:
            return took
        if not self._is_known:
            self.usual, self._is_known = way, True
        elif way < self.usual:
            self.usual += self.FASTER * (way - self.usual)
        else:
            self.usual += self.SLOWER * (min(way, 2.0 * self.usual) - self.usual)
        return inside + min(way, self.usual)

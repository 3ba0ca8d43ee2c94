"""Lessons: what batches that have ended took, kept until there is time to learn from it."""

from dataclasses import dataclass

from shoal.core.batch import Stages
from shoal.core.cost import CostCurve
from shoal.core.cuts import Load
from shoal.core.running import Edges, HandOver


@dataclass(slots=True)
class Ended:
    """A batch that has ended."""

    rows: int
    stages: Stages
    took: float  # seconds for which it had its instance to itself
    behind: int  # rows of the batch before it; 0: it was alone
    now: float


class Lessons:
    """Teaches a curve what a batch costs, and knows beside it what overlapping saves and how busy the server is."""

    def __init__(self) -> None:
        self.edges = Edges()
        self.load = Load()
        self._hand_over = HandOver()
        self._ended: list[Ended] = []

    def add(self, ended: Ended) -> None:
        """Keep one for later."""
        self._ended.append(ended)

    def learn(self, curve: CostCurve) -> bool:
        """Learn from all that were kept; True when the curve is another by it."""
        is_new = False
        for ended in self._ended:
            took = self._cost(ended)
            if ended.rows:
                is_new |= curve.learn(ended.rows, took)
        self._ended.clear()
        if curve.is_due:
            curve.refit()
            is_new = True
        return is_new

    def _cost(self, ended: Ended) -> float:
        """Seconds that a whole batch like this one costs; what its edges and the server's time tell is noted."""
        stages = ended.stages
        inside = stages.preprocess + stages.inference + stages.postprocess
        took = share = ended.took
        if not ended.behind:
            took = share = self._hand_over.cost(took, inside)
        elif inside:
            took, share = inside, self.edges.share(took, stages)
        self.edges.learn(ended.rows, stages)
        self.load.note(share, ended.now)
        return took

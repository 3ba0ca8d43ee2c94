"""A simulated server whose model has stages: reading a batch and writing its answers overlap the batches around it."""

from dataclasses import dataclass
from functools import partial

from benchmarks.policy_sim import Simulation, World
from shoal.core.batch import Batch, Stages
from shoal.core.policy import Hold, Leave, Policy

PLACES = 2  # batches that an instance may have


@dataclass
class StagedWorld(World):
    """`seconds` are those of the stage in the middle."""

    before: float = 0.0  # seconds a row
    after: float = 0.0
    handing: float = 0.0  # seconds for each answer: those of a batch are handed out one after the other


class Pipeline:
    """One instance: a thread for each stage."""

    def __init__(self) -> None:
        self.held: list[Batch] = []
        self.free = [0.0, 0.0, 0.0]  # from when on each stage has time

    def end_of(self, now: float, stages: Stages) -> float:
        """Send a batch through; when it comes out."""
        for number, seconds in enumerate((stages.preprocess, stages.inference, stages.postprocess)):
            now = self.free[number] = max(now, self.free[number]) + seconds
        return now


class StagedSimulation(Simulation):
    """One run; batches go to instances that run one as the policy says, as in the server."""

    def __init__(self, world: StagedWorld, policy: Policy) -> None:
        super().__init__(world, policy)
        self._staged = world
        self._pipelines = {name: Pipeline() for name in self._idle}
        self._handed = 0.0  # when the last answer was

    def _offer(self) -> None:
        super()._offer()
        if not self.lane or self._idle:
            return
        for name, pipeline in self._pipelines.items():
            if not self.lane or len(pipeline.held) >= PLACES:
                continue
            opens = self.policy.ahead(self.lane, name, self.now)
            if opens is None:
                continue
            if opens > self.now:
                self._sleep(opens)
                continue
            decision = self.policy.decide(self.lane, self.fleet, self.now)
            if isinstance(decision, Hold):
                self._sleep(decision.until)
            elif isinstance(decision, Leave):
                self._start(self._made_of(decision), name)
            else:
                self._refuse(decision)

    def _send(self, decision: Leave) -> None:
        name = self._idle.pop()
        self.fleet.idle -= 1
        self._start(self._made_of(decision), name)

    def _start(self, batch: Batch, name: str) -> None:
        batch.instance = name
        pipeline = self._pipelines[name]
        pipeline.held.append(batch)
        self.policy.sent(batch, self.fleet, self.now)
        rows = batch.rows
        times = self._staged.before * rows, self._staged.seconds[rows], self._staged.after * rows
        batch.stages = Stages(*(self.take(seconds) for seconds in times))
        self._at(pipeline.end_of(self.now, batch.stages), partial(self._done, batch))

    def _done(self, batch: Batch) -> None:
        held = self._pipelines[batch.instance].held
        held.remove(batch)
        if not held:
            self._idle.append(batch.instance)
            self.fleet.idle += 1
        self._answer(batch)

    def _back(self) -> float:
        self._handed = max(self._handed, self.now) + self._staged.handing
        return self._handed - self.now + super()._back()

"""A server of one lane for tests of the adaptive rule: the test says what happens and when."""

import math

from benchmarks.policy_sim import EMPTY, FifoLane
from shoal.core.adaptive import Adaptive
from shoal.core.batch import Batch, Stages
from shoal.core.cost import CostCurve
from shoal.core.policy import Decision, Fleet, Hold, Leave
from shoal.core.request import Outcome, Request


def learn(curve: CostCurve, rows: int, seconds: float) -> bool:
    """Tell a curve of a batch as the rule does that has the time; True when it was fitted anew."""
    is_new = curve.learn(rows, seconds)
    if curve.is_due:
        curve.refit()
        return True
    return is_new


def ignore(request: Request, outcome: Outcome, is_last: bool) -> None: ...


class Server:
    """One lane, some instances, and a clock that goes where it is told."""

    def __init__(self, policy: Adaptive, instances: int = 1) -> None:
        self.policy = policy
        self.lane = FifoLane()
        self.fleet = Fleet(instances, instances)
        self.now = 100.0
        self.made = 0
        self.names = [str(number) for number in range(instances)]

    def arrive(self, client: int | None = None, patience: float = math.inf, rows: int = 1) -> Request:
        request = Request(EMPTY, ignore, self.now, client=client, deadline=self.now + patience, rows=rows)
        self.lane.add(request)
        self.policy.arrived(request, self.lane, self.fleet, self.now)
        return request

    def decide(self) -> Decision:
        return self.policy.decide(self.lane, self.fleet, self.now)

    def leave(self) -> Batch:
        decision = self.decide()
        assert isinstance(decision, Leave), decision
        self.made += 1
        batch = Batch(self.made, self.lane.pop(decision.rows), decision.reason, self.now)
        batch.instance = self.names.pop()
        self.fleet.idle -= 1
        self.policy.sent(batch, self.fleet, self.now)
        return batch

    def end(self, batch: Batch, took: float | None = None, stages: Stages | None = None) -> None:
        self.now = batch.left + (took if took is not None else self.policy.curve.seconds[batch.rows])
        batch.stages = stages or Stages()
        self.names.append(batch.instance)
        self.fleet.idle += 1
        self.policy.done(batch, self.now)

    def loop(self, clients: int, rounds: int, pause: float = 0.0003) -> None:
        """Clients that all come back `pause` after their answers, and so ride together."""
        for _ in range(rounds):
            self.now += pause
            for client in range(clients):
                self.arrive(client)
            self.end(self.leave_when_due())

    def leave_when_due(self) -> Batch:
        decision = self.decide()
        if isinstance(decision, Hold):
            self.now = decision.until
        return self.leave()

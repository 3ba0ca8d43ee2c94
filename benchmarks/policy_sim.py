"""A discrete-event simulation of one model: clients, one lane, instances with a known cost curve, and a real policy.

Nothing here waits: time is a number. The policies are the ones the server runs; requests and batches are the core's.
All times are seconds; the curves below are measured milliseconds and are converted once.
"""

import heapq
import math
import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from shoal.core.batch import Batch, Stages
from shoal.core.policy import Decision, Fixed, Fleet, Hold, Lane, Leave, Policy, Refuse
from shoal.core.request import Request
from shoal.payload import Payload

CURVES_MS: dict[str, dict[int, float]] = {
    "rtx3090": {1: 2.75, 2: 3.89, 4: 5.88, 8: 10.7, 16: 19.4, 32: 37.3, 64: 70.5, 128: 136, 256: 262},
    "h200": {1: 3.84, 4: 4.10, 8: 5.75, 16: 5.96, 32: 10.4, 64: 18.9, 128: 35.9, 256: 69.3},
    "flat": {1: 20.1, 256: 45.6},  # launch-bound: 20 + 0.1 n
    "weak": {8: 140, 16: 260, 32: 440, 64: 1040},  # 32 is the most efficient size
    "dented": {1: 2.2, 2: 6.0, 4: 8.0, 7: 9.0, 8: 6.8, 16: 9.0, 32: 12.0, 64: 17.0, 256: 51.0},  # an MLP on a CPU
    "straight": {1: 5.8, 8: 11.5, 14: 15.6, 25: 24.0, 32: 28.0, 68: 53.0, 86: 65.6, 100: 75.0, 256: 186},  # an MLP
    "echo": {1: 0.08, 32: 0.2, 256: 1.1},  # so cheap that no timer can help
}
NOISE = 0.05  # of a batch's duration
TURNAROUND = 0.3e-3  # mean seconds from an answer to the client's next request
THINK = 20e-3  # mean seconds a thinking client adds
LATE = 0.04  # share of the returns of a loop with stragglers that are late,
LATE_BY = (1e-3, 8e-3)  # seconds, anything between
TURN = 50e-6  # mean seconds until the next client of a process that has its clients answered in turn,
FIRST_TURN = 0.5e-3  # after those until the first
BUSY = 0.08  # share of the batches at whose end that process is busy with something else,
BUSY_FOR = (1e-3, 4e-3)  # seconds, anything between
WARM_UP = 0.3  # share of a run that is not counted
EMPTY = Payload(())

Arrivals = Callable[[random.Random], Iterator[float]]


def curve(name: str) -> list[float]:
    """Seconds by rows, 0 to the largest size of the table."""
    points = {rows: value / 1e3 for rows, value in CURVES_MS[name].items()}
    sizes = sorted(points)
    table: list[float] = []
    segment = 0
    for rows in range(sizes[-1] + 1):
        while segment < len(sizes) - 2 and rows > sizes[segment + 1]:
            segment += 1
        start, end = sizes[segment], sizes[segment + 1]
        table.append(points[start] + (points[end] - points[start]) * (rows - start) / (end - start))
    return [max(1e-6, seconds) for seconds in table]


def capacity(seconds: list[float]) -> float:
    """Rows a second of one instance at its best size."""
    return max(rows / seconds[rows] for rows in range(1, len(seconds)))


# -- workloads ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Workload:
    """Who sends: `kind` and its one number, clients for the closed loops and share of the capacity for the others."""

    kind: str
    x: float

    def __str__(self) -> str:
        return f"{self.kind} {self.x:g}"

    @property
    def clients(self) -> int:
        """Closed-loop clients; 0 for the open ones."""
        return int(self.x) if self.kind in ("closed", "think", "late", "turns") else 0

    @property
    def think(self) -> float:
        """Mean pause of a client, seconds."""
        return THINK if self.kind == "think" else 0.0

    @property
    def length(self) -> int:
        """Requests of a short run."""
        if self.clients:
            return max(6000, 60 * self.clients)
        return {"volleys": 60_000, "poisson": 40_000}.get(self.kind, 24_000)  # 3,000 volleys: a p99 of 30

    def arrivals(self, seconds: list[float], instances: int) -> Arrivals | None:
        """Make the open-loop arrivals for a model that costs `seconds`; None in a closed loop."""
        mean = self.x * capacity(seconds) * instances
        match self.kind:
            case "poisson":
                return varying(lambda _: mean, mean)
            case "diurnal":  # one wave per 400 batches of 8
                wave = 400 * seconds[8]
                return varying(lambda t: mean * (1 + 0.8 * math.sin(2 * math.pi * t / wave)), 1.8 * mean)
            case "onoff":  # a fifth of the time at four times the mean, else a quarter of it
                on = 50 * seconds[8]
                return varying(lambda t: mean * (4.0 if t % (5 * on) < on else 0.25), 4 * mean)
            case "volleys":
                return volleys(mean, 20, 2e-3)
            case _:
                return None


RATES = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95)  # of the capacity
WORKLOADS = (
    [Workload("closed", n) for n in (1, 2, 5, 10, 50, 100, 500, 1000)]
    + [Workload("think", n) for n in (1, 10, 100, 1000)]
    + [Workload("late", n) for n in (5, 20, 50)]
    + [Workload("turns", n) for n in (50, 100, 200)]
    + [Workload("poisson", x) for x in RATES]
    + [Workload("volleys", x) for x in RATES]
    + [Workload("diurnal", 0.5), Workload("onoff", 0.2)]
)


def varying(rate_at: Callable[[float], float], peak: float) -> Arrivals:
    """Poisson arrivals whose rate changes with time and is never above `peak`."""

    def generate(rng: random.Random) -> Iterator[float]:
        now = 0.0
        while True:
            now += rng.expovariate(peak)
            if rng.random() * peak <= rate_at(now):
                yield now

    return generate


def volleys(rate: float, size: int, spread: float) -> Arrivals:
    """Volleys of `size` requests within `spread` seconds, `rate` requests a second in all."""

    def generate(rng: random.Random) -> Iterator[float]:
        start = 0.0
        pending: list[float] = []
        while True:
            start += rng.expovariate(rate / size)
            while pending and pending[0] <= start:
                yield heapq.heappop(pending)
            for _ in range(size):
                heapq.heappush(pending, start + rng.random() * spread)

    return generate


# -- rivals that are not part of the server ----------------------------------------------------------------------------


class Triton(Fixed):
    """Triton's dynamic batcher: full, or its oldest request is `delay` seconds old; 0 sends whatever waits."""

    def decide(self, lane: Lane, fleet: Fleet, now: float) -> Decision:
        """Leave when full or when the head has waited enough."""
        leaves_at = lane[0].arrived + self.delay
        if lane.rows >= self.limit or now >= leaves_at - 1e-9:
            return Leave(min(lane.rows, self.limit), "delay")
        return Hold(leaves_at, "delay")


# -- the simulation ----------------------------------------------------------------------------------------------------


class FifoLane:
    """Requests in the order they came."""

    def __init__(self) -> None:
        self._waiting: deque[Request] = deque()
        self.rows = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def __getitem__(self, index: int) -> Request:
        return self._waiting[index]

    def add(self, request: Request) -> None:
        """Join at the end."""
        self._waiting.append(request)
        self.rows += request.rows

    def pop(self, rows: int) -> list[Request]:
        """Take requests of together at most `rows` from the head, at least one."""
        taken: list[Request] = []
        room = rows
        while self._waiting and (not taken or self._waiting[0].rows <= room):
            request = self._waiting.popleft()
            room -= request.rows
            self.rows -= request.rows
            taken.append(request)
        return taken


@dataclass
class Report:
    """What a run showed."""

    throughput: float  # answers a second
    p50: float
    p99: float
    mean: float
    batch: float  # mean rows
    refused: int
    longest_hold: float  # seconds a lane was held while an instance was free
    reasons: dict[str, int] = field(default_factory=dict)


@dataclass
class World:
    """What surrounds the policy in a run."""

    seconds: list[float]
    workload: Workload
    instances: int = 1
    seed: int = 0
    noise: float = NOISE
    patience: float = math.inf  # seconds from arrival to deadline
    tick: float = 0.0  # timers ring at multiples of this


class Simulation:
    """One run: feed it a policy, then `run` as often as wanted; `world.seconds` may change in between."""

    def __init__(self, world: World, policy: Policy) -> None:
        self.world = world
        self.policy = policy
        self.lane = FifoLane()
        self.fleet = Fleet(world.instances, world.instances)
        self.now = 0.0
        self.latencies: list[float] = []
        self.batches: list[int] = []
        self.refused = 0
        self.reasons: dict[str, int] = {}
        self._idle = [str(n) for n in range(world.instances)]
        self._service, self._open, self._client = (random.Random(3 * world.seed + n) for n in range(3))
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._pushed = 0
        self._made = 0
        self._wakes_at = math.inf
        self._held_since: float | None = None
        self._woken = 0.0  # when clients in turn were last answered,
        self._turns_at = 0.0  # when the next of them has its turn,
        self._turn = TURN  # and how long one takes
        self._longest_hold = 0.0
        arrivals = world.workload.arrivals(world.seconds, world.instances)
        if arrivals:
            self._next_open(arrivals(self._open))
        for client in range(world.workload.clients):
            moment = self._client.random() * (TURNAROUND + world.workload.think)
            self._at(moment, partial(self._arrive, client))

    def run(self, requests: int, warm_up: float = WARM_UP) -> Report:
        """Go on until so many more were answered or refused; the first share of them is not counted."""
        start = len(self.latencies) + self.refused
        counted = start + int(warm_up * requests)
        base: tuple[float, int, int] | None = None
        while (ended := len(self.latencies) + self.refused) < start + requests:
            if base is None and ended >= counted:
                base = self.now, len(self.latencies), len(self.batches)
            self.now, _, act = heapq.heappop(self._events)
            act()
            self._offer()
        return self._report(*(base or (0.0, 0, 0)))

    def take(self, seconds: float) -> float:
        """Blur a duration as real ones are."""
        return seconds * max(0.5, self._service.gauss(1.0, self.world.noise))

    def _at(self, moment: float, act: Callable[[], None]) -> None:
        self._pushed += 1
        heapq.heappush(self._events, (moment, self._pushed, act))

    def _next_open(self, arrivals: Iterator[float]) -> None:
        def act() -> None:
            self._next_open(arrivals)
            self._arrive(None)

        self._at(next(arrivals), act)

    def _arrive(self, client: int | None) -> None:
        deadline = self.now + self.world.patience
        request = Request(EMPTY, _ignore, self.now, client=client, deadline=deadline)
        self.lane.add(request)
        self.policy.arrived(request, self.lane, self.fleet, self.now)

    def _offer(self) -> None:
        while self.lane and self._idle:
            decision = self.policy.decide(self.lane, self.fleet, self.now)
            if isinstance(decision, Hold):
                self._held_since = self.now if self._held_since is None else self._held_since
                return self._sleep(decision.until)
            if isinstance(decision, Leave):
                self._send(decision)
            else:
                self._refuse(decision)

    def _refuse(self, decision: Refuse) -> None:
        for request in self.lane.pop(sum(request.rows for request in decision.requests)):
            self.refused += 1
            self._come_again(request)

    def _send(self, decision: Leave) -> None:
        batch = self._made_of(decision)
        batch.instance = self._idle.pop()
        self.fleet.idle -= 1
        self.policy.sent(batch, self.fleet, self.now)
        self._at(self.now + self.take(self.world.seconds[batch.rows]), lambda: self._done(batch))

    def _made_of(self, decision: Leave) -> Batch:
        if self._held_since is not None:
            self._longest_hold = max(self._longest_hold, self.now - self._held_since)
            self._held_since = None
        self._made += 1
        rows = min(decision.rows, len(self.world.seconds) - 1)
        self.reasons[decision.reason] = self.reasons.get(decision.reason, 0) + 1
        return Batch(self._made, self.lane.pop(rows), decision.reason, self.now)

    def _done(self, batch: Batch) -> None:
        batch.stages = Stages()
        self._idle.append(batch.instance)
        self.fleet.idle += 1
        self._answer(batch)

    def _answer(self, batch: Batch) -> None:
        self.batches.append(batch.rows)
        self.policy.done(batch, self.now)
        for request in batch.requests:
            self.latencies.append(self.now - request.arrived)
            self._come_again(request)

    def _come_again(self, request: Request) -> None:
        client = request.client
        if isinstance(client, int):
            self._at(self.now + self._back(), lambda: self._arrive(client))

    def _back(self) -> float:
        """Seconds until a client that is answered asks again."""
        if self.world.workload.kind == "turns":
            return self._in_turn()
        think = self.world.workload.think
        pause = self._client.expovariate(1 / think) if think else 0.0
        back = TURNAROUND * (0.5 + self._client.expovariate(2.0))
        if self.world.workload.kind == "late" and self._client.random() < LATE:
            back += self._client.uniform(*LATE_BY)
        return pause + back

    def _in_turn(self) -> float:
        """Seconds until the next client of a process that wakes them one after the other."""
        chance = self._client
        if self._woken != self.now:
            self._woken = self.now
            self._turn = TURN * max(0.5, chance.gauss(1.0, 0.25))
            self._turns_at = self.now + FIRST_TURN + (chance.uniform(*BUSY_FOR) if chance.random() < BUSY else 0.0)
        self._turns_at += self._turn * (0.5 + chance.expovariate(2.0))
        return self._turns_at - self.now

    def _sleep(self, until: float) -> None:
        if self.world.tick:
            until = math.ceil(until / self.world.tick) * self.world.tick
        if until < self._wakes_at or self._wakes_at <= self.now:
            self._wakes_at = until
            self._at(until, _nothing)

    def _report(self, since: float, first: int, first_batch: int) -> Report:
        counted = sorted(self.latencies[first:]) or [math.inf]
        batches = self.batches[first_batch:] or [0]
        return Report(
            throughput=len(counted) / max(1e-9, self.now - since),
            p50=counted[int(0.5 * len(counted))],
            p99=counted[int(0.99 * len(counted))],
            mean=sum(counted) / len(counted),
            batch=sum(batches) / len(batches),
            refused=self.refused,
            longest_hold=self._longest_hold,
            reasons=dict(self.reasons),
        )


def _ignore(request: Request, outcome: object, is_last: bool) -> None:
    """Nobody listens in a simulation."""


def _nothing() -> None:
    """A timer's only work is to make the simulation ask again."""

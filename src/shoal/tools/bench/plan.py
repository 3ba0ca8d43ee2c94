"""The plan of a bench: which levels of load, how each is split over processes, and how long it is looked at."""

import time
from collections.abc import Sequence

import msgspec

from shoal.errors import InvalidInput
from shoal.tools import units
from shoal.tools.bench import arrivals
from shoal.tools.bench.messages import Kind, Load
from shoal.tools.calls import Site

SLICES = 20  # of a window
START = 0.15  # s for all load processes to hear of a load before it begins


class Step(msgspec.Struct, frozen=True):
    """One level of load."""

    kind: Kind
    label: str
    concurrency: int = 0  # of a closed loop
    rate: float = 0.0
    burst: int = 1
    times: list[float] = []


class Settings(msgspec.Struct, frozen=True):
    """How each level is looked at. Times in seconds."""

    window: float = 2.0
    warmup: float = 1.0
    stability: float = 0.05
    most_windows: int = 10
    timeout: float = 30.0
    connections: int = 1000  # of an open loop, at most
    processes: int = 1
    patience: float = 2.0  # without an answer, before a server is given up
    seed: int = 1

    @property
    def slice(self) -> float:
        """The length of a slice of time."""
        return self.window / SLICES


def steps(concurrency: str, rate: str, trace: str, kind: Kind, burst: int) -> list[Step]:
    """Read what load is wanted; a closed loop of 1, 8 and 64 if nothing is said."""
    if sum(map(bool, (concurrency, rate, trace))) > 1:
        raise InvalidInput("--concurrency, --rate and --trace are three kinds of load; give one of them")
    if burst > 1 and not rate:
        raise InvalidInput("--burst belongs to --rate: so many requests come at the same moment")
    if trace:
        times = arrivals.read_trace(trace)
        return [Step("trace", f"trace of {len(times)}", times=times)]
    if rate:
        return [Step(kind, _rate_label(each, kind, burst), rate=each, burst=burst) for each in units.rates(rate)]
    return [
        Step("closed", "1 connection" if each == 1 else f"{each} connections", concurrency=each)
        for each in units.levels(concurrency or "1,8,64", "--concurrency")
    ]


def _rate_label(rate: float, kind: str, burst: int) -> str:
    return f"{rate:g}/s {kind}" + (f", {burst} at once" if burst > 1 else "")


def loads(step: Step, settings: Settings, site: Site, requests: Sequence[bytes], block: bytes = b"") -> list[Load]:
    """Split a level over the processes: none has nothing to do."""
    most = step.concurrency if step.kind == "closed" else max(1, len(step.times)) if step.times else settings.processes
    count = max(1, min(settings.processes, most))
    total = step.concurrency or settings.connections
    begin = time.monotonic() + START
    times = arrivals.shared(step.times, count)
    return [
        Load(
            site=site,
            requests=[*requests[number % len(requests) :], *requests[: number % len(requests)]],
            kind=step.kind,
            begin=begin,
            slice=settings.slice,
            timeout=settings.timeout,
            connections=max(1, total // count + (number < total % count)),
            rate=step.rate / count,
            burst=step.burst,
            times=times[number],
            seed=settings.seed + 1024 * number // count if step.kind == "constant" else settings.seed + number,
            block=block,
        )
        for number in range(count)
    ]

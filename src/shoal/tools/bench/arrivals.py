"""When requests of an open loop are due: seconds from the beginning, whatever the server does."""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

from shoal.errors import InvalidInput

MOST = 10_000_000  # arrivals of a trace


def constant(rate: float, burst: int = 1, first: float = 0.0) -> Iterator[float]:
    """Evenly spaced; `burst` at each moment."""
    pause = burst / rate
    for number in itertools.count():
        yield from itertools.repeat(first + number * pause, burst)


def poisson(rate: float, random: Random, burst: int = 1) -> Iterator[float]:
    """As independent clients come: pauses are exponential; `burst` at each moment."""
    at = 0.0
    while True:
        at += random.expovariate(rate / burst)
        yield from itertools.repeat(at, burst)


def shared(times: Sequence[float], processes: int) -> list[list[float]]:
    """Deal arrivals out to processes, in turn."""
    return [list(times[number::processes]) for number in range(processes)]


def read_trace(path: str) -> list[float]:
    """Read a file of arrivals, a number of seconds a line; they are shifted so that the first is at 0."""
    try:
        text = Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"cannot read the trace {path}: {getattr(error, 'strerror', None) or error}") from None
    times = []
    for number, line in enumerate(text.splitlines(), 1):
        word = line.partition("#")[0].strip().rstrip(",")
        if not word:
            continue
        try:
            times.append(float(word))
        except ValueError:
            raise InvalidInput(f"{path} line {number}: an arrival is a number of seconds, got {word!r}") from None
    if not times or len(times) > MOST:
        raise InvalidInput(f"{path} has {len(times)} arrivals; a trace has 1 to {MOST}")
    times.sort()
    if not times[-1] - times[0] < float("inf"):
        raise InvalidInput(f"{path}: arrivals are finite numbers of seconds")
    return [time - times[0] for time in times]

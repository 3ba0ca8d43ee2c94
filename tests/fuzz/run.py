"""A run: so many inputs for each target, from a seed; a run of one seed is the same again."""

import signal
import time
import traceback
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import FrameType

from tests.fuzz.files import Archives, Forms, Manifests, Properties, Settings
from tests.fuzz.http1 import Http1
from tests.fuzz.http2 import Hpack, Http2, Huffman
from tests.fuzz.mutator import Mutator
from tests.fuzz.target import Finding, Target
from tests.fuzz.v2 import Bodies, Messages

TARGETS: Sequence[Callable[[], Target]] = (
    *(Http1, Http2, Hpack, Huffman, Bodies, Messages, Forms, Properties, Settings, Manifests, Archives),
)
FOUND = Path(__file__).parent / "found"  # inputs that once showed a mistake: TARGET-NAME
HUNG = 10.0  # s of this process's own time for one input
MOST = 20  # findings of a target after which it is left


@dataclass
class Result:
    """What became of one target."""

    target: str
    inputs: int = 0
    seconds: float = 0.0
    outcomes: int = 0
    findings: list[tuple[bytes, str]] = field(default_factory=list)


class Hung(Finding):
    """An input takes for ever."""


def fuzz(make: Callable[[], Target], inputs: int, seed: int) -> Result:
    """Try a target: first what once failed and the seeds as they are, then inputs made of them."""
    target = make()
    random = Random(f"{seed} {target.name}")
    old = [path.read_bytes() for path in sorted(FOUND.glob(f"{target.name}-*"))]
    mutator = Mutator(random, [*target.seeds, *old], target.words)
    result = Result(target.name)
    seen: set[Hashable] = set()
    began = time.monotonic()
    with _hanging_is_found():
        for number in range(max(inputs, len(old) + len(target.seeds))):
            first = [*old, *target.seeds]
            data = first[number] if number < len(first) else mutator.make()
            result.inputs += 1
            try:
                outcome = _attempt(target, data, random)
            except Exception as error:  # whatever it is, it should not have left
                result.findings.append((data, _told(error)))
                if len(result.findings) >= MOST:
                    break
                continue
            if outcome not in seen and len(seen) < 10_000:
                seen.add(outcome)
                mutator.keep(data)
    result.seconds = time.monotonic() - began
    result.outcomes = len(seen)
    if close := getattr(target, "close", None):
        close()
    return result


def _attempt(target: Target, data: bytes, random: Random) -> Hashable:
    signal.setitimer(signal.ITIMER_VIRTUAL, HUNG)
    return target.attempt(data, random)


@contextmanager
def _hanging_is_found() -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise Hung(f"no end after {HUNG:g} s")

    before = signal.signal(signal.SIGVTALRM, stop)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)


def _told(error: Exception) -> str:
    return (
        f"{type(error).__name__}: {error}" if isinstance(error, Finding) else "".join(traceback.format_exception(error))
    )

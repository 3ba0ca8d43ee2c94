"""When what is broken, drawn from a seed: the same seed breaks the same things in the same order. Pure."""

import random
from dataclasses import dataclass

WEIGHTS = {
    "kill worker": 9,
    "kill template": 1,
    "stop worker": 3,  # for a moment
    "hang worker": 1,  # stopped for longer than the response time-out
    "poison: raises": 5,
    "poison: no memory": 3,
    "poison: segfault": 2,
    "poison: hangs": 1,
    "drop in the body": 4,
    "drop in the answer": 4,
    "drop with a reset": 3,
    "cancel a call": 3,
    "slow writer": 3,
    "slow reader": 3,
    "fill a queue": 3,
    "fill shared memory": 2,
    "scale": 2,
    "rollout": 1,
    "leave the queue": 1,
    "deadline in the queue": 1,
    "garbage to HTTP": 4,
    "garbage to HTTP/2": 4,
}
RATE = 8.0  # faults a second


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing to break: when (seconds from the start), what, and a number that makes its details."""

    at: float
    what: str
    draw: int

    @property
    def random(self) -> random.Random:
        """Numbers for its details, the same each time."""
        return random.Random(self.draw)


def schedule(seed: int, seconds: float, rate: float = RATE) -> list[Fault]:
    """Draw all faults of a run; a longer run of the same seed begins like a shorter one."""
    draws = random.Random(f"{seed} faults")
    faults, at = [], draws.expovariate(rate)
    while at < seconds:
        (what,) = draws.choices(list(WEIGHTS), list(WEIGHTS.values()))
        faults.append(Fault(at, what, draws.getrandbits(63)))
        at += draws.expovariate(rate)
    return faults

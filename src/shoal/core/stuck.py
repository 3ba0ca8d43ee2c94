"""Whether models that call models wait for each other in a circle, so that none of them ever goes on."""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

Key = Hashable  # a model


class Wait(NamedTuple):
    """A worker that runs nothing else until a model has answered it."""

    worker: str
    model: Key  # the worker's own
    on: Key  # the model that it called
    at: str = ""  # the worker that has the call; empty while it waits in the queue


def is_stuck(worker: str, waits: Sequence[Wait], sizes: Mapping[Any, int]) -> bool:
    """Say whether a worker waits for what can never come; `sizes` are the numbers of the models' workers."""
    stuck: dict[str, list[Wait]] = {}
    for wait in waits:
        stuck.setdefault(wait.worker, []).append(wait)
    while True:
        busy = Counter(of[0].model for of in stuck.values())
        free = [
            name
            for name, of in stuck.items()
            if all(wait.at not in stuck if wait.at else busy[wait.on] < sizes.get(wait.on, 1) for wait in of)
        ]
        if not free:
            return worker in stuck
        for name in free:
            del stuck[name]

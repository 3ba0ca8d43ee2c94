"""Preferred: Triton's dynamic batcher. Batches of preferred sizes leave at once, others when the oldest has waited.

Triton fills a batch that no instance has begun yet; here a batch is made only when an instance is free, so every
request that came until then is looked at, and the same table decides: what waits is walked from the head to the first
request that does not fit any more, and the point where the batch ends is chosen on the way.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Final

from shoal.core.policy import Decision, Fleet, Hold, Lane, Leave, Told
from shoal.core.request import Request

LONE: Final = Leave(1, "delay")  # made once: so the batch of a lone request leaves


def decide(requests: Iterable[Request], sizes: Sequence[int], limit: int, delay: float, now: float) -> Leave | Hold:
    """Say how many rows of `requests`, which are in the order they would leave, leave now, or until when they wait.

    `sizes` are the preferred ones, the largest last; `limit` is the most rows of a batch. The queue is never searched:
    a request that does not fit, or has another group, ends the batch before it, and nothing is waited for then.
    """
    rows = best = 0
    oldest = math.inf
    group = None
    is_ended = False
    for request in requests:
        if rows and (request.group != group or rows + request.rows > limit):
            is_ended = True
            break
        group = request.group
        if not best and rows + request.rows > sizes[-1]:
            best = rows
        rows += request.rows
        oldest = min(oldest, request.arrived)
        if rows in sizes:
            best = rows
    is_late = now >= oldest + delay
    if best and (delay <= 0.0 or not is_late):
        return Leave(best, "preferred")
    if is_ended:
        return Leave(rows, "full")
    if rows >= sizes[-1]:
        return Leave(rows, "preferred")
    if not is_late:
        return Hold(oldest + delay, "delay")
    return LONE if rows == 1 else Leave(rows, "delay")


class Preferred(Told):
    """The rule as a policy. It needs a queue that keeps one line, whatever the groups: `LevelQueue`."""

    def __init__(self, limit: int, sizes: Sequence[int] = (), delay: float = 0.0) -> None:
        super().__init__(limit, delay)
        self.sizes = sorted(set(sizes)) or [limit]

    def decide(self, lane: Lane, fleet: Fleet, now: float) -> Decision:
        """Leave at a preferred size, when nothing more fits, or when the oldest has waited; idle or not."""
        return decide(iter(lane), self.sizes, self.limit, self.delay, now)

    def describe(self) -> dict[str, object]:
        """Tell what it was given."""
        delay = round(1e6 * self.delay)
        return {
            "batch_size": self.limit,
            "preferred_batch_size": list(self.sizes),
            "max_queue_delay_microseconds": delay,
        }

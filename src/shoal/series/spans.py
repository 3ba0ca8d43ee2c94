"""Spans: how often and how long, with Triton's accounting: per request, per execution and per batch size.

Every request of a batch is charged the full times of that batch, so times per request can be read off, and the rows by
batch size are charged once. Everything is fed once per batch.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from shoal.core.batch import Batch

NANO = 1_000_000_000
STAGES = ("compute_input", "compute_infer", "compute_output")


class Counters(Protocol):
    """What is counted of one version of a model anyway."""

    model: str
    version: str
    answered: int
    failed: int
    expired: int
    withdrawn: int
    refused: int
    on_batch: list[Any]


class Span:
    """How often something happened, and how long it took in all."""

    __slots__ = ("count", "ns")

    def __init__(self) -> None:
        self.count = 0
        self.ns = 0

    def add(self, count: int, seconds: float) -> None:
        """Count so many, and their time."""
        self.count += count
        if seconds > 0.0:
            self.ns += round(seconds * NANO)

    def shown(self) -> dict[str, int]:
        """Give it as clients read it."""
        return {"count": self.count, "ns": self.ns}


class ModelSeries:
    """One version of a model since it was loaded."""

    def __init__(self, wall: Callable[[], float]) -> None:
        self._wall = wall
        self.last = 0  # ms of Unix time
        self.inferences = 0
        self.executions = 0
        self.success = Span()
        self.fail_ns = 0
        self.queue = Span()
        self.stages = (Span(), Span(), Span())
        self.cache_hit = Span()
        self.cache_miss = Span()
        self.batches: dict[int, tuple[Span, Span, Span]] = {}
        self.responses: dict[int, dict[str, Span]] = {}
        self.memory: list[dict[str, Any]] = []

    def batch(self, counters: Counters, batch: "Batch", now: float) -> None:
        """Count a batch that has ended, and those of its requests that were answered or failed for good."""
        answered = batch.requests
        if batch.answered < len(answered):
            for request in answered:
                if request.state.name == "FAILED":
                    self.fail_ns += max(0, round((request.answered - request.arrived) * NANO))
            answered = [request for request in answered if request.state.name == "ANSWERED"]
        stages = batch.stages
        if stages is None:
            return  # its worker died over it: nothing was executed to its end
        self.last = round(1000 * self._wall())
        self.executions += 1
        if not answered:
            return
        times = (stages.preprocess, stages.inference, stages.postprocess)
        count = len(answered)
        rows, taken, queued = 0, 0.0, 0.0
        for request in answered:
            rows += request.rows
            taken += request.answered - request.arrived
            queued += request.batched - request.arrived
        self.inferences += rows
        self.success.add(count, taken)
        self.queue.add(count, queued)
        row = self.batches.get(batch.rows)
        if row is None:
            row = self.batches[batch.rows] = (Span(), Span(), Span())
        for common, own, seconds in zip(self.stages, row, times, strict=True):
            common.add(count, count * seconds)
            own.add(1, seconds)

    def hit(self, seconds: float, lookup: float) -> None:
        """Count a request that was answered from the cache, in so many seconds, `lookup` of them in the cache."""
        self.success.add(1, seconds)
        self.queue.add(1, max(0.0, seconds - lookup))
        self.cache_hit.add(1, lookup)

    def miss(self, seconds: float) -> None:
        """Count a request that was not in the cache: the time to look for it and to put it there."""
        self.cache_miss.add(1, seconds)
        self.success.ns += max(0, round(seconds * NANO))

    def response(self, index: int, kind: str, seconds: float) -> None:
        """Count one of several answers to a request: success, fail, empty_response or cancel."""
        row = self.responses.get(index)
        if row is None:
            names = ("compute_infer", "compute_output", "success", "fail", "empty_response", "cancel")
            row = self.responses[index] = {name: Span() for name in names}
        row[kind].add(1, seconds)
        if kind in ("success", "fail"):
            row["compute_infer"].add(1, seconds)
            row["compute_output"].add(1, 0.0)

    def shown(self, counters: Counters) -> dict[str, Any]:
        """Give all of it as clients read it."""
        fail = {"count": counters.failed + counters.expired + counters.withdrawn, "ns": self.fail_ns}
        return {
            "name": counters.model,
            "version": counters.version,
            "last_inference": self.last,
            "inference_count": self.inferences,
            "execution_count": self.executions,
            "inference_stats": {
                "success": self.success.shown(),
                "fail": fail,
                "queue": self.queue.shown(),
                **{name: span.shown() for name, span in zip(STAGES, self.stages, strict=True)},
                "cache_hit": self.cache_hit.shown(),
                "cache_miss": self.cache_miss.shown(),
            },
            "response_stats": {
                str(index): {name: span.shown() for name, span in self.responses[index].items()}
                for index in sorted(self.responses)
            },
            "batch_stats": [
                {
                    "batch_size": rows,
                    **{name: span.shown() for name, span in zip(STAGES, self.batches[rows], strict=True)},
                }
                for rows in sorted(self.batches)
            ],
            "memory_usage": self.memory,
        }

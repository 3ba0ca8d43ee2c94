"""What operators read: counters and histograms per model, their Prometheus form, and the set-up of logs.

Everything is fed once per batch from the marks on its requests, so the hot path of a request pays nothing for it.
"""

import json
import logging
import math
import sys
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from shoal.redact import redact

if TYPE_CHECKING:
    from shoal.core.batch import Batch

SECONDS = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1),
    *(0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)
BODIES: Final = "Large request bodies: in shared memory (arena), beside it, and refused for want of room."
CORE: Final = "Processor time of the process that decides. Near a second a second, clients wait for it."
ROWS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512, 1024)


class Histogram:
    """Counts of values at or below each bound."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def cumulative(self) -> list[tuple[str, float]]:
        """Give Prometheus' form: how many values were at or below each bound."""
        rows, seen = [], 0
        for bound, count in zip((*self.bounds, math.inf), self.counts, strict=True):
            seen += count
            rows.append(("+Inf" if bound == math.inf else f"{bound:g}", float(seen)))
        return rows


class ModelStats:
    """What one version of a model has done so far."""

    def __init__(self, model: str, version: str) -> None:
        self.model = model
        self.version = version
        self.answered = 0
        self.failed = 0
        self.expired = 0
        self.withdrawn = 0
        self.refused = 0
        self.poisoned = 0  # refused because their content had taken workers down
        self.restarts = 0
        self.recycled = 0  # workers that were replaced before they failed
        self.reruns = 0  # times a request was run again because its batch failed or its worker died
        self.out_of_memory = 0  # batches
        self.ceilings: dict[str, int] = {}  # rows that instances have memory for, where it ran out
        self.reasons: dict[str, int] = {}
        self.queue_time = Histogram(SECONDS)
        self.compute_time = Histogram(SECONDS)
        self.batch_rows = Histogram(ROWS)
        self.on_batch: list[Callable[[ModelStats, Batch, float], None]] = []  # who hears of each batch as well

    def record(self, batch: "Batch", now: float) -> None:
        """Count a batch that has ended and the requests that ended with it."""
        self.reasons[batch.reason] = self.reasons.get(batch.reason, 0) + 1
        self.batch_rows.observe(batch.rows)
        self.compute_time.observe(now - batch.left)
        left, bounds, counts = batch.left, self.queue_time.bounds, self.queue_time.counts
        total = 0.0
        for request in batch.requests:
            waited = left - request.arrived
            counts[bisect_left(bounds, waited)] += 1
            total += waited
        self.queue_time.total += total
        self.answered += batch.answered
        self.failed += batch.failed
        for hear in self.on_batch:
            hear(self, batch, now)


ModelFacts = tuple[ModelStats, int, int, int]  # counters; requests waiting; batches running; instances up


class Metrics:
    """The Prometheus page of a server."""

    def __init__(
        self,
        models: Callable[[], Iterable[ModelFacts]],
        started: float,
        memory: Callable[[], Mapping[str, int]] = dict,
        spent: Callable[[], float] = time.process_time,
    ) -> None:
        self._models = models
        self._memory = memory
        self._spent = spent
        self._started = started
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def page(self) -> bytes:
        """Give the text exposition."""
        return generate_latest(self._registry)

    def collect(self) -> Iterable[Metric]:
        """Build the families anew from the counters (prometheus_client calls this)."""
        labels = ["model_name", "model_version"]
        requests = CounterMetricFamily("shoal_requests", "Requests that ended, by how.", labels=[*labels, "outcome"])
        batches = CounterMetricFamily("shoal_batches", "Batches that left, by why.", labels=[*labels, "reason"])
        reruns = CounterMetricFamily("shoal_reruns", "Requests run again after a failed batch.", labels=labels)
        restarts = CounterMetricFamily("shoal_worker_restarts", "Workers that were replaced.", labels=labels)
        recycled = CounterMetricFamily(
            "shoal_workers_recycled", "Workers that made room for fresh ones.", labels=labels
        )
        short = CounterMetricFamily("shoal_out_of_memory", "Batches that ran out of memory.", labels=labels)
        ceilings = GaugeMetricFamily(
            "shoal_ceiling_rows",
            "Rows that an instance has memory for, where it ran out.",
            labels=[*labels, "instance"],
        )
        waiting = GaugeMetricFamily("shoal_queue_requests", "Requests waiting.", labels=labels)
        running = GaugeMetricFamily("shoal_batches_running", "Batches held by instances.", labels=labels)
        up = GaugeMetricFamily("shoal_instances", "Instances ready to run a batch.", labels=labels)
        queue_time = HistogramMetricFamily("shoal_queue_seconds", "Arrival to leaving in a batch.", labels=labels)
        compute = HistogramMetricFamily("shoal_compute_seconds", "A batch's time at its worker.", labels=labels)
        rows = HistogramMetricFamily("shoal_batch_rows", "Rows of each batch.", labels=labels)
        for stats, depth, held, instances in self._models():
            key = [stats.model, stats.version]
            for outcome in ("answered", "failed", "expired", "withdrawn", "refused", "poisoned"):
                requests.add_metric([*key, outcome], getattr(stats, outcome))
            for reason, count in stats.reasons.items():
                batches.add_metric([*key, reason], count)
            restarts.add_metric(key, stats.restarts)
            recycled.add_metric(key, stats.recycled)
            reruns.add_metric(key, stats.reruns)
            short.add_metric(key, stats.out_of_memory)
            for instance, most in stats.ceilings.items():
                ceilings.add_metric([*key, instance], most)
            waiting.add_metric(key, depth)
            running.add_metric(key, held)
            up.add_metric(key, instances)
            queue_time.add_metric(key, stats.queue_time.cumulative(), stats.queue_time.total)
            compute.add_metric(key, stats.compute_time.cumulative(), stats.compute_time.total)
            rows.add_metric(key, stats.batch_rows.cumulative(), stats.batch_rows.total)
        start = GaugeMetricFamily("shoal_start_time_seconds", "When the server started, Unix time.", self._started)
        spent = CounterMetricFamily("shoal_core_cpu_seconds", CORE, self._spent())
        return [
            requests,
            batches,
            restarts,
            recycled,
            reruns,
            short,
            ceilings,
            waiting,
            running,
            up,
            queue_time,
            compute,
            rows,
            start,
            spent,
            *(GaugeMetricFamily(f"shoal_{name}", BODIES, value) for name, value in self._memory().items()),
        ]


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, logger, message and the record's own fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record as one line; no text a client or handler sent can begin another."""
        fields: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        fields = {key: redact(value) if isinstance(value, str) else value for key, value in fields.items()}
        text = json.dumps(fields, ensure_ascii=False, default=str)
        return text if text.isprintable() else "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


class PlainLines(logging.Formatter):
    """For a person at a terminal: time, level, message, then the fields; what handlers print keeps its lines."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record as one line, a traceback below it, set in so that nothing in it passes for another record."""
        fields = " ".join(
            f"{key}={value}" for key, value in getattr(record, "fields", {}).items() if key != "traceback"
        )
        text = f"{time.strftime('%H:%M:%S', time.localtime(record.created))} {record.levelname.lower():<7} "
        text += _printable(record.getMessage()) + (f"  [{_printable(fields)}]" if fields else "")
        traceback = getattr(record, "fields", {}).get("traceback", "")
        if record.exc_info:
            traceback = self.formatException(record.exc_info)
        return "\n".join([text, *(f"    {_printable(line)}" for line in traceback.rstrip().splitlines())])


def set_up_logs(level: str, form: str) -> None:
    """Send the `shoal` loggers to standard error, as `json` or `plain` lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else PlainLines())
    root = logging.getLogger("shoal")
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    root.propagate = False


def _printable(text: str) -> str:
    """Keep control characters and secrets out of a terminal line."""
    text = redact(text)
    return text if text.isprintable() else "".join(c if c.isprintable() or c == "\t" else repr(c)[1:-1] for c in text)

"""Statistics with Triton's accounting: per request, per execution and per batch size; and the same as metrics.

Every request of a batch is charged the full times of that batch, so times per request can be read off, and the rows by
batch size are charged once. Everything is fed once per batch.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from shoal.series.system import Machine

if TYPE_CHECKING:
    from shoal.core.batch import Batch

NANO = 1_000_000_000
STAGES = ("compute_input", "compute_infer", "compute_output")
COUNTERS = (
    ("nv_inference_request_success", "Number of successful inference requests, all batch sizes"),
    ("nv_inference_request_failure", "Number of failed inference requests, all batch sizes"),
    ("nv_inference_count", "Number of inferences performed (does not include cached requests)"),
    ("nv_inference_exec_count", "Number of model executions performed (does not include cached requests)"),
    ("nv_inference_request_duration_us", "Cumulative inference request duration in microseconds"),
    ("nv_inference_queue_duration_us", "Cumulative inference queuing duration in microseconds"),
    ("nv_inference_compute_input_duration_us", "Cumulative compute input duration in microseconds"),
    ("nv_inference_compute_infer_duration_us", "Cumulative compute inference duration in microseconds"),
    ("nv_inference_compute_output_duration_us", "Cumulative inference compute output duration in microseconds"),
)
CACHE = (
    ("nv_cache_num_hits_per_model", "Number of cache hits per model"),
    ("nv_cache_num_misses_per_model", "Number of cache misses per model"),
    ("nv_cache_hit_duration_per_model", "Total cache hit duration per model, in microseconds"),
    ("nv_cache_miss_duration_per_model", "Total cache miss duration per model, in microseconds"),
)
Labels = Mapping[str, str]


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


class Series:
    """The statistics of a server's models. `wall` is Unix time."""

    def __init__(self, wall: Callable[[], float], machine: Machine | None = None) -> None:
        self._wall = wall
        self._machine = machine

    def watch(self, counters: Counters) -> ModelSeries:
        """Hear of the batches of a model from now on."""
        series = ModelSeries(self._wall)
        counters.on_batch.append(series.batch)
        return series

    def of(self, counters: Counters) -> ModelSeries:
        """Give what is known of a model."""
        series = _series_of(counters)
        if series is None:
            raise LookupError(f"nobody watches the model {counters.model!r}")
        return series

    def statistics(self, counters: Counters) -> dict[str, Any]:
        """Give a model's statistics as clients read them."""
        return self.of(counters).shown(counters)

    def page(
        self,
        models: Iterable[tuple[Counters, int, Labels, bool]],
        gauges: Iterable[tuple[str, str, float]] = (),
    ) -> str:
        """Write the metrics page: of each model its counters, requests waiting, labels of its own, and cache or not.

        `gauges` are of the whole server: name, words and value.
        """
        rows: dict[str, list[tuple[str, float]]] = {name: [] for name, _ in (*COUNTERS, *CACHE)}
        pending: list[tuple[str, float]] = []
        for counters, waiting, tags, is_cached in models:
            series = _series_of(counters)
            if series is None:
                continue
            own = {"model": counters.model, "version": counters.version, **{f"_{k}": v for k, v in tags.items()}}
            labels = _labels(own)
            for name, value in _values(series).items():
                rows[name].append((labels, value))
            failures = {
                "OTHER": 0,
                "BACKEND": counters.failed,
                "CANCELED": counters.withdrawn,
                "REJECTED": counters.refused + counters.expired,
            }
            rows["nv_inference_request_failure"] += [
                (_labels({**own, "reason": reason}), count) for reason, count in failures.items()
            ]
            if is_cached:
                for (name, _), value in zip(CACHE, _cache_values(series), strict=True):
                    rows[name].append((labels, value))
            pending.append((labels, waiting))
        lines = [line for name, help in COUNTERS for line in _family(name, help, "counter", rows[name])]
        lines += _family(
            "nv_inference_pending_request_count", "Instantaneous number of pending requests awaiting execution",
            "gauge", pending,
        )  # fmt: skip
        lines += [line for name, help in CACHE if rows[name] for line in _family(name, help, "counter", rows[name])]
        lines += [line for name, help, value in gauges for line in _family(name, help, "gauge", [("", value)])]
        return "".join(f"{line}\n" for line in (*lines, *self._machine_lines()))

    def _machine_lines(self) -> list[str]:
        if self._machine is None:
            return []
        read = {name: value for name, value, labels in self._machine.read() if not labels}
        lines = _family(
            "nv_cpu_utilization", "CPU utilization rate [0.0 - 1.0]", "gauge", [("", read["CPUUtilization"] / 100)]
        )
        if "MemoryUsed" in read:
            used = read["MemoryUsed"] * 2**20
            total = used + read["MemoryAvailable"] * 2**20
            lines += _family("nv_cpu_memory_total_bytes", "CPU total memory (RAM), in bytes", "gauge", [("", total)])
            lines += _family("nv_cpu_memory_used_bytes", "CPU used memory (RAM), in bytes", "gauge", [("", used)])
        return lines


def _series_of(counters: Counters) -> ModelSeries | None:
    """Give the series that hears of these counters' batches: it lives as long as they do, and is kept nowhere else."""
    owners = (getattr(hear, "__self__", None) for hear in counters.on_batch)
    return next((owner for owner in owners if isinstance(owner, ModelSeries)), None)


def _values(series: ModelSeries) -> dict[str, float]:
    spans = (series.success, series.queue, *series.stages)
    names = [name for name, _ in COUNTERS[4:]]
    return {
        "nv_inference_request_success": series.success.count,
        "nv_inference_count": series.inferences,
        "nv_inference_exec_count": series.executions,
        **{name: span.ns // 1000 for name, span in zip(names, spans, strict=True)},
    }


def _cache_values(series: ModelSeries) -> tuple[int, ...]:
    hit, miss = series.cache_hit, series.cache_miss
    return hit.count, miss.count, hit.ns // 1000, miss.ns // 1000


def _family(name: str, help: str, kind: str, rows: Iterable[tuple[str, float]]) -> list[str]:
    return [f"# HELP {name} {help}", f"# TYPE {name} {kind}", *(f"{name}{labels} {value}" for labels, value in rows)]


def _labels(labels: Labels) -> str:
    pairs = (f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return "{" + ",".join(pairs) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

"""Triton's statistics and metrics page of a server's models."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from shoal.series.spans import Counters, ModelSeries
from shoal.series.system import Machine

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

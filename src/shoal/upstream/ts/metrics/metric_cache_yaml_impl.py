"""MetricsCacheYamlImpl: the metrics of a worker, with those that a metrics file declares for models."""

import logging
from pathlib import Path
from typing import Any

import yaml

from shoal.upstream.ts.metrics.caching_metric import CachingMetric, Sink, write_line
from shoal.upstream.ts.metrics.metric_cache_abstract import MetricCacheAbstract, check_type
from shoal.upstream.ts.metrics.metric_cache_errors import (
    MetricsCacheIOError,
    MetricsCacheKeyError,
    MetricsCachePyYamlError,
    MetricsCacheTypeError,
)
from shoal.upstream.ts.metrics.metric_type_enum import MetricTypes

logger = logging.getLogger(__name__)


class MetricsCacheYamlImpl(MetricCacheAbstract):
    """What `context.metrics` is. Without a file nothing is declared ahead, and every call declares what it names."""

    def __init__(self, config_file_path: str = "", sink: Sink = write_line) -> None:
        super().__init__(config_file_path)
        self._sink = sink

    def initialize_cache(self) -> None:
        """Declare the metrics under `model_metrics` of the file."""
        for kind, entries in _model_metrics(self.config_file_path).items():
            metric_type = MetricTypes(kind)
            for entry in entries or ():
                self.add_metric_to_cache(entry["name"], entry["unit"], list(entry.get("dimensions") or ()), metric_type)

    def add_metric_to_cache(
        self,
        metric_name: str,
        unit: str,
        dimension_names: list[str] | None = None,
        metric_type: MetricTypes = MetricTypes.COUNTER,
    ) -> CachingMetric:
        """Declare a metric with exactly these dimensions; one of this type and name that was there is replaced."""
        check_type(metric_name, str, "`metric_name` must be a str")
        check_type(unit, str, "`unit` must be a str")
        names = [] if dimension_names is None else dimension_names
        check_type(names, list, "`dimension_names` should be a list of dimension name strings")
        check_type(metric_type, MetricTypes, "`metric_type` must be a MetricTypes enum")
        metrics = self.cache.setdefault(metric_type, {})
        if metric_name in metrics:
            logger.warning("Overriding existing key %s:%s", metric_type, metric_name)
        metric = metrics[metric_name] = CachingMetric(metric_name, unit, names, metric_type)
        metric.sink = self._sink
        return metric

    def get_metric(self, metric_name: str, metric_type: MetricTypes = MetricTypes.COUNTER) -> CachingMetric:
        """A metric that was declared or used before; MetricsCacheKeyError if there is none."""
        check_type(metric_name, str, "`metric_name` must be a str")
        check_type(metric_type, MetricTypes, "`metric_type` must be a MetricTypes enum")
        metric = self.cache.get(metric_type, {}).get(metric_name)
        if metric is None:
            raise MetricsCacheKeyError(f"Metric of type '{metric_type}' and name '{metric_name}' doesn't exist")
        return metric

    def cache_keys(self) -> list[str]:
        """What is declared, as type:name."""
        return [f"{kind.value}:{name}" for kind, metrics in self.cache.items() for name in metrics]


def _model_metrics(path: str) -> dict[str, Any]:
    try:
        declared = yaml.safe_load(Path(path).read_text())
    except OSError as error:
        raise MetricsCacheIOError(f"the metrics file {path} cannot be read: {error}") from error
    except yaml.YAMLError as error:
        raise MetricsCachePyYamlError(f"the metrics file {path} is not valid YAML: {error}") from error
    section = declared.get("model_metrics") if isinstance(declared, dict) else None
    kinds = {kind.value for kind in MetricTypes}
    if not isinstance(section or {}, dict) or not set(section or {}) <= kinds:
        raise MetricsCacheTypeError(f"model_metrics in {path} holds lists under {', '.join(sorted(kinds))}")
    return section or {}

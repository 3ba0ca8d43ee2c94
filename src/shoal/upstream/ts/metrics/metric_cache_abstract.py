"""MetricCacheAbstract: the calls that handlers make through `context.metrics`."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from shoal.upstream.ts.metrics.caching_metric import CachingMetric
from shoal.upstream.ts.metrics.dimension import Dimension
from shoal.upstream.ts.metrics.metric_cache_errors import (
    MetricsCacheKeyError,
    MetricsCacheTypeError,
    MetricsCacheValueError,
)
from shoal.upstream.ts.metrics.metric_type_enum import MetricTypes

TIME_UNITS = ("ms", "s")
SIZE_UNITS = ("MB", "kB", "GB", "B")


class MetricCacheAbstract(ABC):
    """The metrics of one worker, by type and name."""

    def __init__(self, config_file_path: str = "") -> None:
        self.config_file_path = config_file_path
        self.cache: dict[MetricTypes, dict[str, CachingMetric]] = {}
        self.model_name: str | None = None
        self.request_ids: dict[int, str] | None = None

    def set_request_ids(self, request_ids: dict[int, str] | None) -> None:
        """Say whose requests the next values belong to."""
        self.request_ids = request_ids

    def add_counter(
        self, name: str, value: float, idx: int | None = None, dimensions: Sequence[Dimension] = ()
    ) -> None:
        """Let a counter grow."""
        self.add_metric(name, value, "count", idx, dimensions)

    def add_time(
        self,
        name: str,
        value: float,
        idx: int | None = None,
        unit: str = "ms",
        dimensions: Sequence[Dimension] = (),
        metric_type: MetricTypes = MetricTypes.GAUGE,
    ) -> None:
        """Note a duration."""
        if unit not in TIME_UNITS:
            raise MetricsCacheValueError(f"the unit for a timed metric should be one of {list(TIME_UNITS)}")
        self.add_metric(name, value, unit, idx, dimensions, metric_type)

    def add_size(
        self,
        name: str,
        value: float,
        idx: int | None = None,
        unit: str = "MB",
        dimensions: Sequence[Dimension] = (),
        metric_type: MetricTypes = MetricTypes.GAUGE,
    ) -> None:
        """Note a size."""
        if unit not in SIZE_UNITS:
            raise MetricsCacheValueError(f"the unit for a size metric should be one of {list(SIZE_UNITS)}")
        self.add_metric(name, value, unit, idx, dimensions, metric_type)

    def add_percent(
        self,
        name: str,
        value: float,
        idx: int | None = None,
        dimensions: Sequence[Dimension] = (),
        metric_type: MetricTypes = MetricTypes.GAUGE,
    ) -> None:
        """Note a percentage."""
        self.add_metric(name, value, "percent", idx, dimensions, metric_type)

    def add_error(self, name: str, value: float, dimensions: Sequence[Dimension] = ()) -> None:
        """Count an error; it belongs to no request."""
        labels = _with(dimensions, Dimension("Level", "Error"))
        self._note(name, value, "", labels, MetricTypes.COUNTER, "")

    def add_metric(
        self,
        name: str,
        value: float,
        unit: str,
        idx: int | None = None,
        dimensions: Sequence[Dimension] = (),
        metric_type: MetricTypes = MetricTypes.COUNTER,
    ) -> None:
        """Note a value in any unit."""
        labels = _with(dimensions, Dimension("ModelName", self.model_name), Dimension("Level", "Model"))
        self._note(name, value, unit, labels, metric_type, self._ids(idx))

    @abstractmethod
    def initialize_cache(self) -> None:
        """Read the metrics that were declared ahead."""

    @abstractmethod
    def add_metric_to_cache(
        self,
        metric_name: str,
        unit: str,
        dimension_names: list[str] | None = None,
        metric_type: MetricTypes = MetricTypes.COUNTER,
    ) -> CachingMetric:
        """Declare a metric with exactly these dimensions."""

    @abstractmethod
    def get_metric(self, metric_name: str, metric_type: MetricTypes = MetricTypes.COUNTER) -> CachingMetric:
        """A metric that was declared or used before."""

    def _note(
        self, name: str, value: float, unit: str, labels: list[Dimension], metric_type: MetricTypes, request_ids: str
    ) -> None:
        try:
            metric = self.get_metric(name, metric_type)
        except MetricsCacheKeyError:
            metric = self.add_metric_to_cache(name, unit, [label.name for label in labels], metric_type)
        metric.add_or_update(value, [label.value for label in labels], request_ids)

    def _ids(self, idx: int | None) -> str:
        """The id of one request, or all of them."""
        ids = self.request_ids or {}
        return ids[idx] if idx in ids else ",".join(ids.values())


def _with(dimensions: Sequence[Dimension], *defaults: Dimension) -> list[Dimension]:
    """The caller's dimensions, then the defaults it did not name."""
    given = list(dimensions or ())
    names = {dimension.name for dimension in given}
    return given + [default for default in defaults if default.name not in names]


def check_type(value: Any, kind: type, what: str) -> None:
    """Refuse an argument of another type."""
    if not isinstance(value, kind):
        raise MetricsCacheTypeError(what)

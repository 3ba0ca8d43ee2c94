"""MetricsStore: the metrics of one call, kept until somebody takes them."""

from collections.abc import Sequence
from typing import Any

from shoal.upstream.ts.metrics.dimension import Dimension
from shoal.upstream.ts.metrics.metric import Metric
from shoal.upstream.ts.metrics.metric_cache_abstract import SIZE_UNITS, TIME_UNITS

Dimensions = Sequence[Dimension] | None


class MetricsStore:
    """Metrics by name, unit, requests and dimensions."""

    def __init__(self, request_ids: Any, model_name: str) -> None:
        self.store: list[Metric] = []
        self.request_ids = request_ids
        self.model_name = model_name
        self.cache: dict[str, Metric] = {}

    def add_counter(self, name: str, value: Any, idx: int | None = None, dimensions: Dimensions = None) -> None:
        """Let a counter grow."""
        self._add(name, value, self._ids(idx), "count", dimensions, "counter")

    def add_time(
        self, name: str, value: Any, idx: int | None = None, unit: str = "ms", dimensions: Dimensions = None
    ) -> None:
        """Note a duration."""
        if unit not in TIME_UNITS:
            raise ValueError(f"the unit for a timed metric should be one of {list(TIME_UNITS)}")
        self._add(name, value, self._ids(idx), unit, dimensions)

    def add_size(
        self, name: str, value: Any, idx: int | None = None, unit: str = "MB", dimensions: Dimensions = None
    ) -> None:
        """Note a size."""
        if unit not in SIZE_UNITS:
            raise ValueError(f"the unit for a size metric should be one of {list(SIZE_UNITS)}")
        self._add(name, value, self._ids(idx), unit, dimensions)

    def add_percent(self, name: str, value: Any, idx: int | None = None, dimensions: Dimensions = None) -> None:
        """Note a percentage."""
        self._add(name, value, self._ids(idx), "percent", dimensions)

    def add_error(self, name: str, value: Any, dimensions: Dimensions = None) -> None:
        """Note an error; it belongs to no request."""
        self._add(name, value, None, "", dimensions)

    def add_metric(
        self, name: str, value: Any, unit: str | None, idx: int | None = None, dimensions: Dimensions = None
    ) -> None:
        """Note a value in any unit."""
        self._add(name, value, self._ids(idx), unit, dimensions)

    def _add(
        self,
        name: str,
        value: Any,
        request_id: str | None,
        unit: str | None,
        dimensions: Dimensions,
        method: str | None = None,
    ) -> None:
        labels = list(dimensions or ())
        if request_id is None:
            labels.append(Dimension("Level", "Error"))
        else:
            labels += [Dimension("ModelName", self.model_name), Dimension("Level", "Model")]
        self._keep(name, value, request_id, unit, labels, method)

    def _keep(
        self,
        name: str,
        value: Any,
        request_id: str | None,
        unit: str | None,
        labels: list[Dimension],
        method: str | None,
    ) -> None:
        key = "-".join([name, str(unit), str(request_id), *map(str, labels)])
        if key in self.cache:
            self.cache[key].update(value)
        else:
            self.cache[key] = Metric(name, value, unit, labels, request_id, method)
            self.store.append(self.cache[key])

    def _ids(self, idx: int | None) -> str:
        """The id of one request, or all of them."""
        ids = self.request_ids
        if not isinstance(ids, dict):
            return str(ids or "")
        return str(ids[idx]) if idx in ids else ",".join(map(str, ids.values()))

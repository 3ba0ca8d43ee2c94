"""CachingMetric: one metric of a handler; every value it is given is handed on at once."""

import logging
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

from shoal.upstream.ts.metrics.dimension import Dimension
from shoal.upstream.ts.metrics.metric_abstract import MetricAbstract
from shoal.upstream.ts.metrics.metric_type_enum import MetricTypes

logger = logging.getLogger(__name__)
# What takes a value: name, unit as it is written, type, value, dimensions, ids of the requests joined by commas.
Sink = Callable[[str, str, MetricTypes, Any, Sequence[tuple[str, str]], str], None]


def write_line(
    name: str, unit: str, kind: MetricTypes, value: Any, dimensions: Sequence[tuple[str, str]], request_ids: str
) -> None:
    """Log the line that TorchServe's workers say a value with; a worker here reports values another way."""
    labels = ",".join(f"{label}:{text}" for label, text in dimensions)
    end = f",{request_ids}" if request_ids else ""
    host = f"hostname:{socket.gethostname()},{int(time.time())}{end}"
    logger.info("[METRICS]%s.%s:%s|#%s|#type:%s|#%s", name, unit, value, labels, kind.name, host)


class CachingMetric(MetricAbstract):
    """A metric. What is wrong with a value is logged, not raised: a metric never fails a prediction."""

    def __init__(
        self,
        metric_name: str,
        unit: str | None,
        dimension_names: list[str] | None = None,
        metric_type: MetricTypes = MetricTypes.COUNTER,
    ) -> None:
        super().__init__(metric_name, unit, dimension_names, metric_type)
        self.sink: Sink = write_line

    def add_or_update(self, value: Any, dimension_values: list[Any] | None = None, request_id: str = "") -> None:
        """Note a value: a counter grows by it, any other takes it. `dimension_values` follow the names in order."""
        values = [] if dimension_values is None else list(dimension_values)
        if len(values) != len(self.dimension_names):
            self._refuse(
                value, f"Dimension values: {values} should correspond to Dimension names: {self.dimension_names}"
            )
        else:
            self._note(value, list(zip(self.dimension_names, map(str, values), strict=True)), request_id)

    def update(self, value: Any, request_id: str = "", dimensions: list[Dimension] | None = None) -> None:
        """Note a value with dimensions that replace those the metric had."""
        dimensions = dimensions or []
        self.dimension_names = [dimension.name for dimension in dimensions]
        self._note(value, [(dimension.name, str(dimension.value)) for dimension in dimensions], request_id)

    def _note(self, value: Any, dimensions: list[tuple[str, str]], request_id: str) -> None:
        try:
            number = float(value)
        except (TypeError, ValueError):
            self._refuse(value, "it is not a number")
            return
        if self.metric_type is MetricTypes.COUNTER and not number >= 0:
            self._refuse(value, "Counter metric update value cannot be negative")
        else:
            self.sink(self.metric_name, self.unit, self.metric_type, value, dimensions, request_id)

    def _refuse(self, value: Any, why: str) -> None:
        logger.error("[METRICS]Failed to update metric with name:%s with value: %s: %s", self.metric_name, value, why)

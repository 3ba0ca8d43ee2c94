"""Metric: one value in a MetricsStore."""

import socket
import time
from collections import OrderedDict
from typing import Any

from shoal.upstream.ts.metrics.dimension import Dimension
from shoal.upstream.ts.metrics.metric_type_enum import MetricTypes
from shoal.upstream.ts.metrics.unit import word


class Metric:
    """A named value with its unit and dimensions; with the method `counter` values add up."""

    def __init__(
        self,
        name: str,
        value: Any,
        unit: str | None,
        dimensions: list[Dimension],
        request_id: str | None = None,
        metric_method: str | None = None,
    ) -> None:
        self.name = name
        self.unit = word(unit)
        self.metric_method = metric_method
        self.metric_type = MetricTypes.COUNTER if metric_method == "counter" else MetricTypes.GAUGE
        self.value = value
        self.dimensions = dimensions
        self.request_id = request_id

    def update(self, value: Any) -> None:
        """Take another value."""
        self.value = self.value + value if self.metric_method == "counter" else value

    def reset(self) -> None:
        """Begin again."""
        self.value = 0

    def __str__(self) -> str:
        labels = ",".join(map(str, self.dimensions))
        end = f",{self.request_id}" if self.request_id else ""
        return (
            f"{self.name}.{self.unit}:{self.value}|#{labels}|#hostname:{socket.gethostname()},{int(time.time())}{end}"
        )

    def to_dict(self) -> "OrderedDict[str, Any]":
        """The metric as it is written in JSON."""
        return OrderedDict(
            MetricName=self.name,
            Value=self.value,
            Unit=self.unit,
            Dimensions=self.dimensions,
            Timestamp=int(time.time()),
            HostName=socket.gethostname(),
            RequestId=self.request_id,
        )

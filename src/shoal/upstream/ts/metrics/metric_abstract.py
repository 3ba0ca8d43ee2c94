"""MetricAbstract: what every metric has."""

from abc import ABC, abstractmethod
from typing import Any

from shoal.upstream.ts.metrics.metric_type_enum import MetricTypes
from shoal.upstream.ts.metrics.unit import word


class MetricAbstract(ABC):
    """A name, a unit, the names of its dimensions, and a type."""

    def __init__(
        self,
        metric_name: str,
        unit: str | None,
        dimension_names: list[str] | None = None,
        metric_type: MetricTypes = MetricTypes.COUNTER,
    ) -> None:
        self.metric_name = metric_name
        self.unit = word(unit)
        self.dimension_names = list(dimension_names or ())
        self.metric_type = metric_type

    @abstractmethod
    def add_or_update(self, value: Any, dimension_values: list[Any], request_id: str = "") -> None:
        """Note a value for one combination of dimensions."""

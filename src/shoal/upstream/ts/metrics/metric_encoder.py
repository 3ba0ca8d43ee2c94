"""MetricEncoder: metrics and dimensions as JSON."""

from json import JSONEncoder
from typing import Any

from shoal.upstream.ts.metrics.dimension import Dimension
from shoal.upstream.ts.metrics.metric import Metric


class MetricEncoder(JSONEncoder):
    """Writes what `to_dict` gives."""

    def default(self, obj: Any) -> Any:
        """The plain form of a metric or dimension."""
        return obj.to_dict() if isinstance(obj, Metric | Dimension) else super().default(obj)

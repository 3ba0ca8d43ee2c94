"""MetricsStore: the metrics of one call, which is what `context.metrics` is in Multi Model Server."""

from typing import Any

from shoal.upstream.ts.metrics.metrics_store import Dimensions
from shoal.upstream.ts.metrics.metrics_store import MetricsStore as TorchServeStore


class MetricsStore(TorchServeStore):
    """As TorchServe's, but for the order of one call's arguments."""

    def add_metric(  # type: ignore[override]
        self,
        name: str,
        value: Any,
        idx: int | None = None,
        unit: str | None = None,
        dimensions: Dimensions = None,
    ) -> None:
        """Note a value in any unit."""
        super().add_metric(name, value, unit, idx, dimensions)

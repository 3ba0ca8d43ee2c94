"""MetricEncoder: metrics and dimensions as JSON."""

from shoal.upstream.ts.metrics.metric_encoder import MetricEncoder

__all__ = ["MetricEncoder"]

"""Metric: one value in a MetricsStore."""

from shoal.upstream.ts.metrics.metric import Metric

__all__ = ["Metric"]

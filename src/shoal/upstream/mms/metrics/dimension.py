"""Dimension: one label of a metric and its value."""

from shoal.upstream.ts.metrics.dimension import Dimension

__all__ = ["Dimension"]

"""The words that metrics write their units with."""

from shoal.upstream.ts.metrics.unit import Units

__all__ = ["Units"]

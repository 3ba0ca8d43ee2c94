"""MetricTypes: what becomes of the values of a metric."""

import enum


class MetricTypes(enum.Enum):
    """Counters add up, gauges keep the last value, histograms count values by size."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"

"""The series of canaries: which share of the requests new versions have, and how often one was taken back."""

from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric


def canary_page(shares: Iterable[tuple[str, str, float]], returns: Mapping[str, int]) -> bytes:
    """Write them from (model, version, percent) of each, and how many were taken back by model; empty without any."""
    weights = GaugeMetricFamily(
        "shoal_canary_weight_percent",
        "Share of the requests that name no version.",
        labels=["model_name", "model_version"],
    )
    for model, version, weight in shares:
        weights.add_metric([model, version], weight)
    taken_back = CounterMetricFamily(
        "shoal_canary_returns", "Canaries that were taken back because they were worse.", labels=["model_name"]
    )
    for model, count in returns.items():
        taken_back.add_metric([model], count)
    families: list[Metric] = [family for family in (weights, taken_back) if family.samples]
    if not families:
        return b""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Given(families))
    return generate_latest(registry)


class _Given:
    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families

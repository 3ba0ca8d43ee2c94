"""Catalogue: which of TorchServe's metrics there are, by kind, unit and dimensions; from its YAML file or built in."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import yaml

from shoal.errors import ConfigError

Kind = Literal["COUNTER", "GAUGE", "HISTOGRAM"]
KINDS: dict[str, Kind] = {"counter": "COUNTER", "gauge": "GAUGE", "histogram": "HISTOGRAM"}
HOST = ("Level", "Hostname")
OF_MODEL = ("model_name", "model_version", "hostname")


@dataclass(frozen=True, slots=True)
class Declared:
    """One metric: what it is called, counted in and told apart by."""

    name: str
    kind: Kind
    unit: str
    dimensions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The metrics of the server itself and those that handlers may report."""

    server: Mapping[str, Declared] = field(default_factory=dict)
    model: Mapping[str, Declared] = field(default_factory=dict)


def _table(kind: Kind, unit: str, dimensions: tuple[str, ...], *names: str) -> dict[str, Declared]:
    return {name: Declared(name, kind, unit, dimensions) for name in names}


BUILT_IN = Catalogue(
    server={
        **_table("COUNTER", "Count", HOST, "Requests2XX", "Requests4XX", "Requests5XX"),
        **_table("COUNTER", "Count", OF_MODEL, "ts_inference_requests_total"),
        **_table(
            "COUNTER", "Microseconds", OF_MODEL, "ts_inference_latency_microseconds", "ts_queue_latency_microseconds"
        ),
        **_table("GAUGE", "Milliseconds", HOST, "QueueTime", "WorkerThreadTime"),
        **_table("GAUGE", "Milliseconds", ("WorkerName", *HOST), "WorkerLoadTime"),
        **_table("GAUGE", "Percent", HOST, "CPUUtilization", "MemoryUtilization", "DiskUtilization"),
        **_table("GAUGE", "Megabytes", HOST, "MemoryUsed", "MemoryAvailable"),
        **_table("GAUGE", "Gigabytes", HOST, "DiskUsage", "DiskAvailable"),
        **_table("GAUGE", "Percent", ("Level", "DeviceId", "Hostname"), "GPUMemoryUtilization", "GPUUtilization"),
        **_table("GAUGE", "Megabytes", ("Level", "DeviceId", "Hostname"), "GPUMemoryUsed"),
    },
    model=_table("GAUGE", "ms", ("ModelName", *HOST), "HandlerTime", "PredictionTime"),
)
LEGACY = ("ts_inference_requests_total", "ts_inference_latency_microseconds", "ts_queue_latency_microseconds")


def read_catalogue(text: str, where: str) -> Catalogue:
    """Read a `metrics_config` file; raises ConfigError that says what is wrong in it."""
    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{where}: {error}") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{where}: expected the keys ts_metrics and model_metrics")
    return Catalogue(
        server=_section(values.get("ts_metrics"), f"{where}: ts_metrics", ()),
        model=_section(values.get("model_metrics"), f"{where}: model_metrics", ("Hostname",)),
    )


def _section(values: Any, where: str, extra: tuple[str, ...]) -> dict[str, Declared]:
    if values is None:
        return {}
    if not isinstance(values, dict) or not values.keys() <= KINDS.keys():
        raise ConfigError(f"{where}: expected lists under counter, gauge and histogram")
    found = {}
    for kind, entries in values.items():
        for entry in entries or ():
            declared = _declared(entry, KINDS[kind], f"{where}.{kind}", extra)
            found[declared.name] = declared
    return found


def _declared(entry: Any, kind: Kind, where: str, extra: tuple[str, ...]) -> Declared:
    if not isinstance(entry, dict) or not entry.get("name") or not entry.get("unit"):
        raise ConfigError(f"{where}: each metric needs a name and a unit, got {entry!r}")
    dimensions = entry.get("dimensions") or []
    if not isinstance(dimensions, list):
        raise ConfigError(f"{where}.{entry['name']}: dimensions is a list of names, got {dimensions!r}")
    names = tuple(map(str, dimensions))
    return Declared(
        str(entry["name"]), kind, str(entry["unit"]), names + tuple(name for name in extra if name not in names)
    )

"""MetricFamily and Metric: a model's own numbers, kept here and handed on as they change."""

import re
import threading
from enum import Enum

from shoal.upstream.triton_python_backend_utils.errors import TritonModelException

Labels = tuple[tuple[str, str], ...]
Key = tuple[str, Labels]
Change = tuple[str, str, float, Labels]
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")


class Kind(Enum):
    """How the values of a family behave."""

    COUNTER = "COUNTER"
    GAUGE = "GAUGE"
    HISTOGRAM = "HISTOGRAM"


class Registry:
    """All families of this process, and what has changed since it was last taken."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.kinds: dict[str, Kind] = {}
        self.values: dict[Key, float] = {}
        self._counted: dict[Key, float] = {}
        self._set: dict[Key, float] = {}
        self._observed: list[Change] = []

    def change(self, family: str, labels: Labels, kind: Kind, value: float) -> None:
        """Note a value: a counter has grown by it, a gauge has it now, a histogram has seen it."""
        key = (family, labels)
        match kind:
            case Kind.COUNTER:
                self._counted[key] = self._counted.get(key, 0.0) + value
            case Kind.GAUGE:
                self._set[key] = value
            case Kind.HISTOGRAM:
                self._observed.append((family, kind.name, value, labels))

    def take(self) -> list[Change]:
        """Hand over what has changed: name, kind, value, labels."""
        if not self._counted and not self._set and not self._observed:
            return []
        with self.lock:
            counted, self._counted = self._counted, {}
            values, self._set = self._set, {}
            observed, self._observed = self._observed, []
        taken = [(name, "COUNTER", value, labels) for (name, labels), value in counted.items()]
        taken += [(name, "GAUGE", value, labels) for (name, labels), value in values.items()]
        return taken + observed


registry = Registry()


class MetricFamily:
    """Metrics of one name that differ by their labels."""

    COUNTER = Kind.COUNTER
    GAUGE = Kind.GAUGE
    HISTOGRAM = Kind.HISTOGRAM

    def __init__(self, name: str, description: str, kind: Kind) -> None:
        if not isinstance(kind, Kind):
            raise TypeError(f"the kind of a MetricFamily is COUNTER, GAUGE or HISTOGRAM, got {kind!r}")
        if not _NAME.fullmatch(name):
            raise TritonModelException(f"Error when creating MetricFamily: Invalid metric name {name!r}")
        with registry.lock:
            known = registry.kinds.setdefault(name, kind)
        if known is not kind:
            raise TritonModelException(
                f"Error when creating MetricFamily: {name!r} is a {known.name} already and cannot be a {kind.name} too"
            )
        self.name = name
        self.description = description
        self.kind = kind

    def Metric(self, labels: dict[str, str] | None = None, buckets: list[float] | None = None) -> "Metric":
        """Give the metric with these labels; the same labels are the same metric."""
        return Metric(self, labels or {}, buckets)


class Metric:
    """One value, or one distribution."""

    def __init__(self, family: MetricFamily, labels: dict[str, str], buckets: list[float] | None) -> None:
        for label, value in labels.items():
            if not isinstance(value, str):
                raise TritonModelException(f"Error when creating Metric: label {label!r} must be a str, got {value!r}")
        is_histogram = family.kind is Kind.HISTOGRAM
        if is_histogram != bool(buckets):
            words = "Missing required buckets." if is_histogram else "Unexpected buckets found."
            raise TritonModelException(f"Failed to create metric. {words}")
        if buckets and list(buckets) != sorted(set(buckets)):
            raise TritonModelException(f"Error when creating Metric: buckets must ascend, got {buckets!r}")
        self._family = family
        self._labels = tuple(sorted(labels.items()))
        self.buckets = list(buckets or ())
        if not is_histogram:
            with registry.lock:
                registry.values.setdefault(self._key, 0.0)

    @property
    def _key(self) -> Key:
        return self._family.name, self._labels

    def increment(self, value: float) -> None:
        """Add to it."""
        self._needs("increment", Kind.COUNTER, Kind.GAUGE)
        if self._family.kind is Kind.COUNTER and not value >= 0:
            raise TritonModelException(
                "Failed to increment metric value: TRITONSERVER_METRIC_KIND_COUNTER can only be incremented "
                "monotonically by non-negative values."
            )
        with registry.lock:
            registry.values[self._key] += float(value)
            is_gauge = self._family.kind is Kind.GAUGE
            self._note(registry.values[self._key] if is_gauge else float(value))

    def set(self, value: float) -> None:
        """Replace it."""
        self._needs("set", Kind.GAUGE)
        with registry.lock:
            registry.values[self._key] = float(value)
            self._note(float(value))

    def observe(self, value: float) -> None:
        """Add a value to the distribution."""
        self._needs("observe", Kind.HISTOGRAM)
        with registry.lock:
            self._note(float(value))

    def value(self) -> float:
        """Give it."""
        self._needs("get", Kind.COUNTER, Kind.GAUGE)
        return registry.values[self._key]

    def _note(self, value: float) -> None:
        registry.change(self._family.name, self._labels, self._family.kind, value)

    def _needs(self, verb: str, *kinds: Kind) -> None:
        if self._family.kind not in kinds:
            raise TritonModelException(
                f"Failed to {verb} metric value: {self._family.name!r} is a "
                f"TRITONSERVER_METRIC_KIND_{self._family.kind.name}, which does not support it."
            )

"""The values of a metric for each set of labels, and their text in the form TorchServe's own page has."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping

from shoal.series.catalogue import Declared

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
MOST_LABELS = 10_000  # sets of labels of one metric; further ones are not taken


class Distribution:
    """How many values were at or below each bound, and their sum."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(BUCKETS, value)] += 1
        self.total += value


class Values:
    """One metric."""

    def __init__(self, declared: Declared) -> None:
        self.declared = declared
        self.numbers: dict[tuple[str, ...], float] = {}
        self.distributions: dict[tuple[str, ...], Distribution] = {}

    def take(self, labels: Mapping[str, str], value: float) -> None:
        """Count, set or observe a value, as the metric's kind says; labels it does not have are dropped."""
        key = tuple(labels.get(name, "") for name in self.declared.dimensions)
        if key not in self.numbers and key not in self.distributions and len(self) >= MOST_LABELS:
            return
        match self.declared.kind:
            case "COUNTER":
                self.numbers[key] = self.numbers.get(key, 0.0) + max(0.0, value)
            case "GAUGE":
                self.numbers[key] = value
            case "HISTOGRAM":
                self.distributions.setdefault(key, Distribution()).observe(value)

    def set(self, labels: Mapping[str, str], value: float) -> None:
        """Replace the value; for counters that are kept elsewhere."""
        self.numbers[tuple(labels.get(name, "") for name in self.declared.dimensions)] = value

    def __len__(self) -> int:
        return len(self.numbers) + len(self.distributions)


def page(metrics: Iterable[Values], wanted: Iterable[str] = ()) -> str:
    """The text of these metrics, all of them or those wanted; what has no value yet still shows its head."""
    names = frozenset(wanted)
    return "".join(_text(values) for values in metrics if not names or values.declared.name in names)


def _text(values: Values) -> str:
    declared = values.declared
    name, kind = declared.name, declared.kind.lower()
    lines = [f"# HELP {name} Torchserve prometheus {kind} metric with unit: {declared.unit}", f"# TYPE {name} {kind}"]
    lines += [f"{name}{_labels(declared, key)} {value}" for key, value in values.numbers.items()]
    for key, distribution in values.distributions.items():
        seen = 0
        for bound, count in zip((*BUCKETS, "+Inf"), distribution.counts, strict=True):
            seen += count
            more = f'le="{bound}",'
            lines.append(f"{name}_bucket{_labels(declared, key, more)} {float(seen)}")
        lines.append(f"{name}_count{_labels(declared, key)} {float(seen)}")
        lines.append(f"{name}_sum{_labels(declared, key)} {distribution.total}")
    return "\n".join(lines) + "\n"


def _labels(declared: Declared, key: tuple[str, ...], more: str = "") -> str:
    """The labels with a comma after the last, as upstream's clients match them."""
    pairs = "".join(f'{name}="{_escaped(value)}",' for name, value in zip(declared.dimensions, key, strict=True))
    return f"{{{pairs}{more}}}" if pairs or more else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

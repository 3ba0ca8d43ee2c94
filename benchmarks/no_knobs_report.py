"""What benchmarks.no_knobs found: ratios to the best fixed setting of each load, as text, figures and a picture."""

import json
import math
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import Any

from benchmarks.report import OUT, machine, ours, table, write

ADAPTIVE = "adaptive"
WORST = 1e4  # times worse than the best: a setting that cannot follow the load
PALE = 3.0  # times worse, above which the picture's ground is dark
LEAST, MOST = 0.97, 1.05  # the throughput and the p99 that are wanted, as ratios to the best setting


@dataclass(frozen=True)
class Look:
    """What one look at one setting gave; seconds."""

    throughput: float
    p99: float
    errors: int
    rows: float  # mean of a batch
    stolen: float = 0.0  # of the processors' time, what the host gave to others
    again: int = 0  # how often it was taken again for that


@dataclass(frozen=True)
class Found:
    """One load: a short look at every setting, and the rounds of the final."""

    load: str
    searched: Mapping[str, Look]
    rounds: Mapping[str, Sequence[Look]]  # by setting, the default among them; the copies in turn
    copies: int

    @property
    def kept(self) -> list[str]:
        """The fixed settings of the final."""
        return [label for label in self.rounds if label != ADAPTIVE]

    def throughput(self, label: str) -> float:
        """The middle one of the rounds."""
        return statistics.median(look.throughput for look in self.rounds[label])

    def p99(self, label: str) -> float:
        """The middle one of the rounds, seconds."""
        return statistics.median(look.p99 for look in self.rounds[label])

    @property
    def fastest(self) -> str:
        """The fixed setting of most answers a second."""
        return max(self.kept, key=self.throughput)

    @property
    def shortest(self) -> str:
        """The fixed setting of least p99."""
        return min(self.kept, key=self.p99)

    @property
    def throughput_ratio(self) -> float:
        """Of the default to the best; above 1 is better."""
        return self.throughput(ADAPTIVE) / max(1e-9, self.throughput(self.fastest))

    @property
    def p99_ratio(self) -> float:
        """Of the default to the best; below 1 is better."""
        return self.p99(ADAPTIVE) / self.p99(self.shortest)

    @property
    def throughput_noise(self) -> float:
        """Of the slowest copy of the fastest setting to its fastest one: 1 or less."""
        return 1.0 / self._apart([look.throughput for look in self.rounds[self.fastest]])

    @property
    def p99_noise(self) -> float:
        """Of the latest copy of the setting of least p99 to its best one: 1 or more."""
        return self._apart([look.p99 for look in self.rounds[self.shortest]])

    def _apart(self, figures: Sequence[float]) -> float:
        """How many times the figure of the best copy is that of the worst."""
        middles = [statistics.median(figures[copy :: self.copies]) for copy in range(self.copies)]
        return max(middles) / max(1e-9, min(middles))

    @property
    def errors(self) -> int:
        """Requests that failed in the default's rounds."""
        return sum(look.errors for look in self.rounds[ADAPTIVE])

    @property
    def is_met(self) -> bool:
        """Whether both ratios are as wanted."""
        return self.throughput_ratio >= LEAST and self.p99_ratio <= MOST

    @property
    def line(self) -> str:
        """Say it in one line."""
        return (
            f"{self.load:22} throughput {self.throughput_ratio:.3f} of {self.fastest} "
            f"(noise {self.throughput_noise:.3f}), "
            f"p99 {self.p99_ratio:.3f} of {self.shortest} (noise {self.p99_noise:.2f})"
        )


def keep(name: str, title: str, found: Sequence[Found], capacity: float, rounds: int, said: str) -> None:
    """Write what is there so far."""
    command = f"python -m benchmarks.no_knobs {said}".strip()
    data: dict[str, Any] = {
        "case": name,
        "title": title,
        "machine": machine(),
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "shoal": ours(),
        "command": command,
        "capacity": capacity,
        "loads": [
            asdict(each)
            | {
                "throughput_ratio": each.throughput_ratio,
                "throughput_noise": each.throughput_noise,
                "p99_ratio": each.p99_ratio,
                "p99_noise": each.p99_noise,
            }
            for each in found
        ],
    }
    write(f"no-knobs-{name}", as_markdown(title, found, capacity, rounds, command), json.dumps(data, indent=1))
    plot_heat(f"no-knobs-{name}", title, found)


def as_markdown(title: str, found: Sequence[Found], capacity: float, rounds: int, command: str) -> str:
    """Write it for people."""
    slow = min(found, key=lambda each: each.throughput_ratio)
    late = max(found, key=lambda each: each.p99_ratio)
    noises = [each.p99_noise for each in found]
    slows = [each.throughput_noise for each in found]
    lines = [
        f"{title}; {len(found[0].searched)} fixed settings, capacity {capacity:,.0f} answers/s. "
        f"Medians of {rounds} rounds in turn; in brackets the least and the most of them. "
        "A setting is batch size/delay in ms.",
        f"{machine()}; {ours()}; {time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}; `{command}`",
        "",
        f"Worst throughput: {slow.throughput_ratio:.3f} of the best fixed setting ({slow.load}). "
        f"Worst p99: {late.p99_ratio:.3f} ({late.load}). Copies of the best setting differ by "
        f"{min(slows):.3f} in throughput and {max(noises):.2f} in p99 at most, "
        f"{statistics.median(slows):.3f} and {statistics.median(noises):.2f} in the middle. "
        f"Loads with throughput >= {LEAST} and p99 <= {MOST}: {sum(each.is_met for each in found)} of {len(found)}; "
        f"errors: {sum(each.errors for each in found)}.",
        _disturbed([look for each in found for looks in each.rounds.values() for look in looks]),
        "",
    ]
    best = ["best answers/s", "ratio", "noise", "best p99 ms", "ratio", "noise"]
    head = ["load", "default: answers/s", "p99 ms", *best]
    return "\n".join([*lines, table(head, [_row(each) for each in found])])


def _disturbed(looks: Sequence[Look]) -> str:
    stolen = [look.stolen for look in looks]
    return (
        f"Of the {len(looks)} looks of the finals {sum(look.again > 0 for look in looks)} were taken again because the "
        f"host had taken processor time; in those that count it took {100 * statistics.median(stolen):.1f} % in the "
        f"middle and {100 * max(stolen):.1f} % at most."
    )


def _row(each: Found) -> list[str]:
    return [
        each.load,
        f"{each.throughput(ADAPTIVE):,.0f}",
        _spread(each, ADAPTIVE),
        f"{each.fastest}: {each.throughput(each.fastest):,.0f}",
        f"{each.throughput_ratio:.3f}",
        f"{each.throughput_noise:.3f}",
        f"{each.shortest}: {_spread(each, each.shortest)}",
        f"{each.p99_ratio:.3f}",
        f"{each.p99_noise:.2f}",
    ]


def _spread(each: Found, label: str) -> str:
    p99s = [1e3 * look.p99 for look in each.rounds[label]]
    return f"{statistics.median(p99s):.1f} [{min(p99s):.1f}-{max(p99s):.1f}]"


def plot_heat(name: str, title: str, found: Sequence[Found]) -> None:
    """Draw how far every setting and the default are from the best at each load, if matplotlib is there."""
    if find_spec("matplotlib") is None:
        return
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    labels = [ADAPTIVE, *found[0].searched]
    figure, axes = pyplot.subplots(1, 2, figsize=(17, 1.5 + 0.36 * len(found)), sharey=True)
    for panel, what in zip(axes, ("throughput, best / own", "p99, own / best"), strict=True):
        heat = [_losses(each, labels, is_p99=what.startswith("p99")) for each in found]
        drawn = panel.imshow(
            [[math.log2(x) for x in row] for row in heat], aspect="auto", cmap="RdYlGn_r", vmin=-2, vmax=2
        )
        for line, row in enumerate(heat):
            for place, loss in enumerate(row):
                words = "late" if loss >= WORST else f"{loss:.2f}" if loss < 10 else f"{loss:.0f}"
                colour = "white" if loss > PALE else "black"
                panel.text(place, line, words, ha="center", va="center", size=6, color=colour)
        panel.set_xticks(range(len(labels)), labels, rotation=60, ha="right")
        panel.set_yticks(range(len(found)), [each.load for each in found])
        panel.set_title(f"{title}\n{what} (1 is the best fixed setting; green is better)", size=9)
    figure.colorbar(drawn, ax=axes, label="log2", shrink=0.8)
    figure.savefig(OUT / f"{name}.png", dpi=120, bbox_inches="tight")
    pyplot.close(figure)


def _searched(each: Found, label: str) -> Look:
    """The one look at a setting; one that was given up before is as bad as can be."""
    return each.searched.get(label, Look(0.0, math.inf, 0, 0.0))


def _losses(each: Found, labels: Sequence[str], *, is_p99: bool) -> list[float]:
    """How many times worse than the best setting: from the final where a setting was in it, else from its one look."""
    losses = []
    for label in labels:
        is_final = label in each.rounds
        if is_p99:
            loss = (each.p99(label) if is_final else _searched(each, label).p99) / each.p99(each.shortest)
        else:
            own = each.throughput(label) if is_final else _searched(each, label).throughput
            loss = each.throughput(each.fastest) / max(1e-9, own)
        losses.append(min(WORST, max(1 / WORST, loss)))
    return losses

"""Curves of a benchmark, drawn from its numbers; nothing where matplotlib is missing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from benchmarks.report import OUT

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Panel:
    """One set of axes: its titles, and points by label."""

    title: str
    across: str
    up: str
    series: Mapping[str, Points]


def draw(name: str, panels: Sequence[Panel]) -> bool:
    """Draw the panels side by side to a file under benchmarks/out; False where that is not possible."""
    if find_spec("matplotlib") is None:
        return False
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, places = pyplot.subplots(1, len(panels), figsize=(6.5 * len(panels), 4.5), squeeze=False)
    for axes, panel in zip(places[0], panels, strict=True):
        for label, points in panel.series.items():
            axes.plot([x for x, _ in points], [y for _, y in points], marker="o", label=label)
        ticks = sorted({x for points in panel.series.values() for x, _ in points})
        if ticks and ticks[0] > 0 and ticks[-1] > 8 * ticks[0]:
            axes.set_xscale("log", base=2)
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.set_ylim(bottom=0)
        axes.set_title(panel.title, fontsize=10)
        axes.set_xlabel(panel.across)
        axes.set_ylabel(panel.up)
        axes.legend(frameon=False, fontsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    OUT.mkdir(exist_ok=True)
    figure.savefig(OUT / f"{name}.png", dpi=120)
    return True

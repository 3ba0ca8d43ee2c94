"""The process that draws: KIND REPORT.json PICTURE.png. The only file here that imports matplotlib."""

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from shoal.tools.files import write_whole

matplotlib.use("Agg")
BLUE, ORANGE, GREEN, GREY = "#2b6cb0", "#dd6b20", "#2f855a", "#718096"
STAGES = {"preprocess": GREY, "inference": BLUE, "postprocess": ORANGE}


def main() -> None:
    """Entry point."""
    kind, report, picture = sys.argv[1:4]
    figure = DRAWN[kind](json.loads(Path(report).read_bytes()))
    figure.tight_layout()
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=130)
    write_whole(Path(picture), data.getvalue())


def profile(report: dict[str, Any]) -> Figure:
    """Throughput by batch size with the knee; time by stage beside it."""
    rows = report["rows"]
    sizes = [row["size"] for row in rows]
    figure = Figure(figsize=(10, 4))
    left, right = figure.subplots(1, 2)
    left.plot(sizes, [row["per_second"] for row in rows], marker="o", color=BLUE)
    left.axvline(report["knee"], color=GREEN, linestyle="--", linewidth=1, label=f"knee: {report['knee']}")
    _axes(left, sizes, "batch size", "items per second")
    left.legend(frameon=False)
    places = range(len(sizes))
    base = [0.0] * len(sizes)
    for name, colour in STAGES.items():
        times = [1000 * row["stages"][name] / row["size"] for row in rows]
        if any(times):
            right.bar(places, times, bottom=base, color=colour, label=name)
            base = [low + more for low, more in zip(base, times, strict=True)]
    right.set_xticks(list(places), [str(size) for size in sizes])
    right.set_xlabel("batch size")
    right.set_ylabel("ms per item")
    right.legend(frameon=False)
    _plain(right)
    figure.suptitle(f"{report['model']} on {report['device']}", fontsize=11)
    return figure


def bench(report: dict[str, Any]) -> Figure:
    """Throughput and latency percentiles by load."""
    levels = report["levels"]
    names = [level["label"] for level in levels]
    places = list(range(len(levels)))
    figure = Figure(figsize=(10, 4))
    left, right = figure.subplots(1, 2)
    left.bar(places, [level["throughput"] for level in levels], color=BLUE)
    left.set_ylabel("answers per second")
    for name, colour in (("p50", BLUE), ("p90", GREEN), ("p99", ORANGE), ("p99.9", GREY)):
        values = [1000 * level["latency"].get(name, 0.0) for level in levels]
        right.plot(places, values, marker="o", color=colour, label=name)
    if any(value for level in levels for value in level["latency"].values()):
        right.set_yscale("log")
    right.set_ylabel("latency, ms")
    right.legend(frameon=False)
    for axes in (left, right):
        axes.set_xticks(places, names, rotation=20 if len(names) > 5 else 0)
        _plain(axes)
    figure.suptitle(report["target"], fontsize=11)
    return figure


def tune(report: dict[str, Any]) -> Figure:
    """Throughput against p99 of every setting, with the front that none beats and what is recommended."""
    rows = [row for row in report["rows"] if row["figures"]]
    figure = Figure(figsize=(8, 5))
    axes = figure.subplots()
    for is_known, colour, label in ((False, "#cbd5e0", "one look"), (True, BLUE, "several looks")):
        chosen = [row["figures"] for row in rows if (row["looks"] > 1) is is_known]
        axes.scatter(
            [1000 * each["p99"] for each in chosen],
            [each["throughput"] for each in chosen],
            s=22,
            c=colour,
            label=label,
        )
    front = sorted((report["rows"][number]["figures"] for number in report["front"]), key=lambda each: each["p99"])
    points = [1000 * each["p99"] for each in front], [each["throughput"] for each in front]
    axes.plot(*points, color=BLUE, linewidth=1, label="none is better in both")
    for setting, colour, label in (
        (report["default"], GREEN, "default"),
        (report["verdict"]["setting"], ORANGE, "recommended"),
    ):
        same = [row["figures"] for row in rows if row["setting"] == setting]
        axes.scatter(
            [1000 * each["p99"] for each in same],
            [each["throughput"] for each in same],
            s=70,
            facecolors="none",
            edgecolors=colour,
            linewidths=2,
            label=label,
        )
    if limit := report["limits"].get("p99"):
        axes.axvline(1000 * limit, color=GREY, linestyle="--", linewidth=1, label="goal")
    axes.set_xlabel("p99, ms (logarithmic)")
    axes.set_ylabel("answers per second")
    axes.set_xscale("log")
    for ticks in (axes.xaxis.set_major_formatter, axes.xaxis.set_minor_formatter):
        ticks(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=8)
    _plain(axes)
    figure.suptitle(f"{report['model']}: {report['load']}", fontsize=11)
    return figure


def _axes(axes: Any, sizes: list[int], below: str, beside: str) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.set_xlabel(below)
    axes.set_ylabel(beside)
    axes.set_ylim(bottom=0)
    _plain(axes)


def _plain(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.3)


DRAWN: dict[str, Callable[[dict[str, Any]], Figure]] = {"profile": profile, "bench": bench, "tune": tune}

if __name__ == "__main__":
    main()

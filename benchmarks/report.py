"""What every benchmark writes: Markdown, JSON and a picture under benchmarks/out, with the machine it ran on."""

import os
import platform
import statistics
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from shoal.version import __version__, is_compiled

OUT = Path(__file__).parent / "out"


def machine() -> str:
    """Name the machine."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [
            line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if line.startswith("model name")
        ]
        model = names[0] if names else model
    return (
        f"{model}, {os.cpu_count()} cores, {platform.system()} {platform.release()}, Python {platform.python_version()}"
    )


def ours() -> str:
    """Say which version of Shoal is imported here, and which build of it."""
    return f"shoal {__version__}{' (compiled)' if is_compiled() else ''}"


def about(title: str, *packages: str) -> str:
    """Say what was measured, where, when, and with which versions."""
    versions = ", ".join([ours(), *(f"{name} {version(name)}" for name in packages)])
    return f"{title}: {machine()}; {time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}; {versions}.\n"


def spread(values: Sequence[float], digits: int = 0) -> str:
    """Write a median, and the lowest and highest in brackets."""
    low, middle, high = (f"{value:,.{digits}f}" for value in (min(values), statistics.median(values), max(values)))
    return f"{middle} ({low} to {high})"


def lines_of(blocks: Sequence[str]) -> str:
    """Join paragraphs and tables."""
    return "\n".join(blocks)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a Markdown table."""
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)) + "\n"


def write(name: str, markdown: str, data: str) -> None:
    """Keep a result."""
    OUT.mkdir(exist_ok=True)
    (OUT / f"{name}.md").write_text(markdown)
    (OUT / f"{name}.json").write_text(data)


def plot_bars(
    name: str, series: Mapping[str, Sequence[float]], groups: Sequence[object], *, is_log: bool = False
) -> None:
    """Draw requests per second by concurrency, if matplotlib is there."""
    if find_spec("matplotlib") is None:
        return
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(max(8.0, 0.8 * len(groups)), 4.5))
    width = 0.8 / len(series)
    for number, (label, values) in enumerate(series.items()):
        places = [group + (number - (len(series) - 1) / 2) * width for group in range(len(groups))]
        axes.bar(places, values, width, label=label)
    names = [f"{group} clients" for group in groups]
    axes.set_xticks(range(len(groups)), names, rotation=30 if len(groups) > 6 else 0)
    if is_log:
        axes.set_yscale("log")
    axes.set_ylabel("requests per second")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(OUT / f"{name}.png", dpi=120)


def plot_lines(name: str, series: Mapping[str, Sequence[tuple[float, float]]], across: str, up: str) -> None:
    """Draw values over a quantity that grows by factors, if matplotlib is there."""
    if find_spec("matplotlib") is None:
        return
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.5))
    for label, points in series.items():
        axes.plot([x for x, _ in points], [y for _, y in points], marker="o", label=label)
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(OUT / f"{name}.png", dpi=120)
    pyplot.close(figure)

"""What every benchmark writes: Markdown, JSON and a picture under benchmarks/out, with the machine it ran on."""

import os
import platform
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

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


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a Markdown table."""
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)) + "\n"


def write(name: str, markdown: str, data: str) -> None:
    """Keep a result."""
    OUT.mkdir(exist_ok=True)
    (OUT / f"{name}.md").write_text(markdown)
    (OUT / f"{name}.json").write_text(data)


def plot_bars(name: str, series: Mapping[str, Sequence[float]], groups: Sequence[object]) -> None:
    """Draw requests per second by concurrency, if matplotlib is there."""
    if find_spec("matplotlib") is None:
        return
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.5))
    width = 0.8 / len(series)
    for number, (label, values) in enumerate(series.items()):
        places = [group + (number - (len(series) - 1) / 2) * width for group in range(len(groups))]
        axes.bar(places, values, width, label=label)
    axes.set_xticks(range(len(groups)), [f"{group} clients" for group in groups])
    axes.set_ylabel("requests per second")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(OUT / f"{name}.png", dpi=120)

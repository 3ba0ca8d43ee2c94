"""The live view: levels that are done, and the one that runs, second by second."""

import time
from collections import deque

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from shoal.tools.bench.messages import Slice
from shoal.tools.bench.plan import Settings, Step
from shoal.tools.bench.results import Level
from shoal.tools.bench.text import level_table
from shoal.tools.histogram import merged
from shoal.tools.units import show, show_ms

BARS = " ▁▂▃▄▅▆▇█"


class View:
    """Draws on standard error while a bench runs; on no terminal it says one line per level."""

    def __init__(self, console: Console, settings: Settings, levels: list[Level]) -> None:
        self._console = console
        self._settings = settings
        self._levels = levels  # grows as levels end
        self._recent: deque[Slice] = deque(maxlen=max(1, round(1 / settings.slice)))
        self._rates: deque[float] = deque(maxlen=40)
        self._step: Step | None = None
        self._windows = 0
        self._drawn = 0.0
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> "View":
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def on_slice(self, step: Step, slice: Slice, windows: int) -> None:
        """Hear of a slice; draw four times a second."""
        if step is not self._step:
            self._step = step
            self._recent.clear()
            self._rates.clear()
            if not self._console.is_terminal:
                self._console.print(f"{step.label} ...", markup=False)
        self._recent.append(slice)
        self._rates.append(slice.answered)
        self._windows = windows
        if self._console.is_terminal and time.monotonic() - self._drawn >= 0.25:
            self._drawn = time.monotonic()
            self._live.update(self._picture(), refresh=True)

    def _picture(self) -> Group:
        latencies = merged(each.latencies for each in self._recent)
        seconds = len(self._recent) * self._settings.slice
        errors = sum(sum(each.errors.values()) for each in self._recent)
        now = Table.grid(padding=(0, 2))
        now.add_row(
            Text(self._step.label if self._step else "", style="bold"),
            f"{show(sum(each.answered for each in self._recent) / seconds)}/s",
            f"p50 {show_ms(latencies.quantile(0.5))} ms",
            f"p99 {show_ms(latencies.quantile(0.99))} ms",
            f"window {self._windows + 1} of {self._settings.most_windows} at most",
            Text(f"{errors} errors in the last second", style="red") if errors else "",
        )
        line = Text(sparkline(list(self._rates)), style="cyan")
        return Group(*([level_table(self._levels)] if self._levels else []), now, line)


def sparkline(values: list[float]) -> str:
    """Draw values as bars of text, the highest full."""
    most = max(values, default=0.0)
    if not most:
        return ""
    return "".join(BARS[round(value / most * (len(BARS) - 1))] for value in values)

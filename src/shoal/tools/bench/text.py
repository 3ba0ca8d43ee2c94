"""A bench as text: the terminal's table, Markdown and CSV."""

import csv
import io
from collections.abc import Sequence

from rich.table import Table

from shoal.tools import machine
from shoal.tools.bench.results import Level, Report
from shoal.tools.histogram import PERCENTILES
from shoal.tools.units import show, show_ms

COLUMNS = ("load", "answers/s", "mean ms", *(f"{name}" for name in PERCENTILES), "max", "errors")


def level_table(levels: Sequence[Level]) -> Table:
    """Draw levels for a terminal."""
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for name in COLUMNS:
        drawn.add_column(name, justify="left" if name == "load" else "right", no_wrap=True)
    for level in levels:
        drawn.add_row(*cells(level), style="" if not level.errors else "yellow")
    return drawn


def server_lines(level: Level) -> list[str]:
    """Say what the server said of a level; nothing if it said nothing."""
    server = level.server
    lines = []
    if used := [name for name, taken in server.p99.items() if taken >= 1e-6]:
        times = ", ".join(f"{name} {show_ms(server.p50[name])} / {show_ms(server.p99[name])}" for name in used)
        lines.append(f"{level.label}: server's p50 / p99 ms: {times}")
    if server.rows:
        lines.append(
            f"{level.label}: {show(server.mean_rows)} rows a batch; answers by rows: {_shares(server.rows)}; "
            f"by why the batch left: {_shares(server.reasons)}"
        )
    return lines


def error_lines(level: Level) -> list[str]:
    """Say what failed at a level, by kind."""
    if not level.errors:
        return []
    return [f"{level.label}: errors: {', '.join(f'{count} {kind}' for kind, count in level.errors.items())}"]


def note_lines(level: Level) -> list[str]:
    """Say what a reader should know before believing a level."""
    return [f"{level.label}: {note}" for note in level.notes]


def to_markdown(report: Report) -> str:
    """Write it for people."""
    remarks = [
        line for level in report.levels for line in (*server_lines(level), *error_lines(level), *note_lines(level))
    ]
    lines = [
        f"# Bench of {report.target}",
        "",
        f"Body: {report.body}. {_settings(report)}",
        "",
        f"Machine: {machine.line(report.machine)}.",
        "",
        *([f"**Ended early: {report.problem}.**", ""] if report.problem else []),
        f"| {' | '.join(COLUMNS)} |",
        f"|---|{'|'.join('---:' for _ in COLUMNS[1:])}|",
        *(f"| {' | '.join(cells(level))} |" for level in report.levels),
        "",
        *(f"- {line}" for line in remarks),
        "",
        "Times in milliseconds. Percentiles are exact to half a per cent. An open loop's latency counts from the "
        "moment a request was due, not from when it was sent.",
        "",
    ]
    return "\n".join(lines)


def to_csv(report: Report) -> str:
    """Write one row per level, for spreadsheets. Times in milliseconds."""
    text = io.StringIO()
    names = ["mean", *PERCENTILES, "max"]
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(
        [
            *("load", "kind", "seconds", "answered", "answers_per_second", "offered_per_second"),
            *(f"{name}_ms" for name in names),
            *("errors", "mean_rows", "is_stable"),
        ]
    )
    for level in report.levels:
        rows.writerow(
            [
                *(level.label, level.kind, f"{level.seconds:.3f}", level.answered, f"{level.throughput:.2f}"),
                f"{level.offered:.2f}",
                *(f"{1000 * level.latency.get(name, 0.0):.4f}" for name in names),
                *(level.error_count, f"{level.server.mean_rows:.2f}", level.is_stable),
            ]
        )
    return text.getvalue()


def cells(level: Level) -> list[str]:
    """Write a level as a row under `COLUMNS`."""
    latency = level.latency
    values = [show_ms(latency[name]) if name in latency else "-" for name in ("mean", *PERCENTILES, "max")]
    return [level.label, show(level.throughput), *values, str(level.error_count)]


def _shares(counts: dict[int, int] | dict[str, int]) -> str:
    total = sum(counts.values()) or 1
    ordered = list(counts.items())
    if len(ordered) > 8:
        kept = sorted(sorted(ordered, key=lambda pair: -pair[1])[:7], key=lambda pair: str(pair[0]).rjust(9))
        rest = total - sum(count for _, count in kept)
        return (
            ", ".join(f"{name} {_percent(count / total)}" for name, count in kept)
            + f", others {_percent(rest / total)}"
        )
    return ", ".join(f"{name} {_percent(count / total)}" for name, count in ordered)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.01 else "<1 %"


def _settings(report: Report) -> str:
    return ", ".join(f"{name} {value}" for name, value in report.settings.items()) + "."

"""A bench as one HTML file: nothing is fetched, light and dark, fine on a phone and on paper."""

from collections.abc import Sequence
from html import escape
from math import log10

from shoal.tools import machine
from shoal.tools.bench.results import Level, Report
from shoal.tools.bench.text import COLUMNS, cells, error_lines, note_lines, server_lines
from shoal.tools.histogram import middle
from shoal.tools.units import show, show_ms

STYLE = """
:root{color-scheme:light dark;--ink:#1a202c;--soft:#4a5568;--line:#cbd5e0;--back:#fff;--a:#2b6cb0;--b:#c05621}
@media(prefers-color-scheme:dark){
:root{--ink:#e2e8f0;--soft:#a0aec0;--line:#4a5568;--back:#171923;--a:#63b3ed;--b:#f6ad55}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--back);
max-width:60rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.4rem;overflow-wrap:anywhere}h2{font-size:1.1rem;margin-top:2rem}
.wide{overflow-x:auto}table{border-collapse:collapse;white-space:nowrap}
th,td{padding:.25rem .7rem;border-bottom:1px solid var(--line);text-align:right}
th:first-child,td:first-child{text-align:left}
p.soft{color:var(--soft)}p.problem{color:var(--b);font-weight:600}svg{width:100%;height:auto;max-width:44rem}
svg text{fill:var(--soft);font-size:11px}.grid{stroke:var(--line);stroke-width:.5}
"""
COLOURS = ("#2b6cb0", "#dd6b20", "#2f855a", "#805ad5", "#d53f8c", "#718096", "#b7791f", "#319795")
WIDTH, HEIGHT, LEFT, BELOW = 640, 260, 56, 34


def to_html(report: Report) -> str:
    """Write the page."""
    remarks = [
        line for level in report.levels for line in (*server_lines(level), *error_lines(level), *note_lines(level))
    ]
    problem = f'<p class="problem">Ended early: {escape(report.problem)}</p>' if report.problem else ""
    settings = ", ".join(f"{name} {value}" for name, value in report.settings.items())
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<title>Bench of {escape(report.target)}</title><style>{STYLE}</style></head><body>
<h1>Bench of {escape(report.target)}</h1>
<p class="soft">Body: {escape(report.body)}. {escape(settings)}.<br>{escape(machine.line(report.machine))}</p>
{problem}
<div class="wide"><table><thead><tr>{"".join(f"<th>{escape(name)}</th>" for name in COLUMNS)}</tr></thead>
<tbody>{"".join(_row(level) for level in report.levels)}</tbody></table></div>
<p class="soft">Times in milliseconds. An open loop's latency counts from the moment a request was due.</p>
<h2>Answers per second</h2>{_bars(report.levels)}
<h2>Latency: how many answers took longer</h2>{_tails(report.levels)}
{"<h2>Remarks</h2><ul>" + "".join(f"<li>{escape(line)}</li>" for line in remarks) + "</ul>" if remarks else ""}
</body></html>
"""


def _row(level: Level) -> str:
    return f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells(level))}</tr>"


def _bars(levels: Sequence[Level]) -> str:
    most = max((level.throughput for level in levels), default=0.0) or 1.0
    parts = []
    for place, level in enumerate(levels):
        top = 24 * place + 4
        width = level.throughput / most * (WIDTH - 260)
        parts.append(
            f'<text x="0" y="{top + 13}">{escape(level.label)}</text>'
            f'<rect x="150" y="{top}" width="{width:.1f}" height="17" fill="{COLOURS[place % len(COLOURS)]}"/>'
            f'<text x="{156 + width:.1f}" y="{top + 13}">{show(level.throughput)}</text>'
        )
    return _svg("Answers per second by load", WIDTH, 24 * len(levels) + 8, parts)


def _tails(levels: Sequence[Level]) -> str:
    """Share of answers that took longer, over latency; both axes logarithmic, so that the tail is seen."""
    curves = [(level, _tail(level)) for level in levels if level.latency]
    if not curves:
        return "<p>No answers.</p>"
    low = log10(min(curve[0][0] for _, curve in curves))
    high = log10(max(curve[-1][0] for _, curve in curves))
    width, height = WIDTH - LEFT - 130, HEIGHT - BELOW

    def across(seconds: float) -> float:
        return LEFT + (log10(seconds) - low) / ((high - low) or 1.0) * width

    def down(share: float) -> float:
        return 8 - log10(max(share, 1e-4)) / 4 * (height - 8)

    parts = []
    for share, name in ((1, "100 %"), (0.1, "10 %"), (0.01, "1 %"), (0.001, "0.1 %"), (0.0001, "0.01 %")):
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{LEFT + width}" y1="{down(share):.1f}" y2="{down(share):.1f}"/>'
            f'<text x="0" y="{down(share) + 4:.1f}">{name}</text>'
        )
    for place in range(5):
        at = 10 ** (low + (high - low) * place / 4)
        parts.append(f'<text x="{across(at) - 12:.1f}" y="{HEIGHT - 12}">{show_ms(at)} ms</text>')
    for place, (level, curve) in enumerate(curves):
        colour = COLOURS[place % len(COLOURS)]
        points = " ".join(f"{across(seconds):.1f},{down(share):.1f}" for seconds, share in curve)
        parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.6" points="{points}"/>')
        parts.append(
            f'<rect x="{WIDTH - 120}" y="{10 + 16 * place}" width="10" height="10" fill="{colour}"/>'
            f'<text x="{WIDTH - 105}" y="{19 + 16 * place}">{escape(level.label)}</text>'
        )
    return _svg("Share of answers that took longer than a latency", WIDTH, max(HEIGHT, 30 + 16 * len(curves)), parts)


def _tail(level: Level) -> list[tuple[float, float]]:
    counts: dict[int, int] = {}
    for piece in level.pieces:
        for bucket, count in piece.counts.items():
            counts[bucket] = counts.get(bucket, 0) + count
    total, seen, points = sum(counts.values()), 0, []
    for bucket in sorted(counts):
        points.append((middle(bucket), 1 - seen / total))
        seen += counts[bucket]
    return points[:: max(1, len(points) // 200)] + points[-1:]


def _svg(title: str, width: int, height: int, parts: Sequence[str]) -> str:
    return f'<svg role="img" aria-label="{escape(title)}" viewBox="0 0 {width} {height}">{"".join(parts)}</svg>'

"""A tuning as one HTML file: nothing is fetched, light and dark, fine on a phone and on paper."""

from html import escape

from shoal.tools import machine
from shoal.tools.bench.page import STYLE
from shoal.tools.tune.report import COLUMNS, Report, bought_lines, cells
from shoal.tools.units import show, show_ms

WIDTH, HEIGHT, LEFT, BELOW = 640, 300, 64, 40


def to_html(report: Report) -> str:
    """Write the page."""
    rows = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells(row))}</tr>" for row in report.rows)
    problem = f'<p class="problem">Ended early: {escape(report.problem)}</p>' if report.problem else ""
    lines = "".join(f"<li>{escape(line)}</li>" for line in bought_lines(report))
    written = {} if report.verdict.is_default else report.files
    files = "".join(f"<p>{escape(name)}</p><pre>{escape(text)}</pre>" for name, text in written.items())
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<title>Tuning of {escape(report.model)}</title><style>{STYLE}</style></head><body>
<h1>Tuning of {escape(report.model)}</h1>
<p class="soft">Goal: {escape(report.goal)}. Load: {escape(report.load)}; body: {escape(report.body)}.
{len(report.runs)} looks at {len(report.rows)} settings in {report.seconds:.0f} s.<br>
{escape(machine.line(report.machine))}</p>
{problem}<p><strong>{escape(report.verdict.words)}.</strong></p>{files}
{f"<h2>What each knob bought</h2><ul>{lines}</ul>" if lines else ""}
<h2>Throughput against p99</h2>{_picture(report)}
<h2>All settings, means of their looks</h2>
<div class="wide"><table><thead><tr>{"".join(f"<th>{escape(name)}</th>" for name in COLUMNS)}</tr></thead>
<tbody>{rows}</tbody></table></div>
</body></html>
"""


def _picture(report: Report) -> str:
    points = [(row, row.figures["p99"], row.figures["throughput"]) for row in report.rows if row.figures]
    if not points:
        return "<p>No answers.</p>"
    far, most = max(p99 for _, p99, _ in points) * 1.05, max(rate for *_, rate in points) * 1.05
    width, height = WIDTH - LEFT - 10, HEIGHT - BELOW

    def across(p99: float) -> float:
        return LEFT + p99 / far * width

    def down(rate: float) -> float:
        return 8 + (1 - rate / most) * (height - 8)

    parts = [f'<line class="grid" x1="{LEFT}" x2="{LEFT + width}" y1="{height}" y2="{height}"/>']
    for place in range(5):
        p99, rate = far * place / 4, most * place / 4
        parts.append(f'<text x="{across(p99) - 14:.1f}" y="{HEIGHT - 22}">{_tick(1000 * p99)}</text>')
        parts.append(f'<text x="0" y="{down(rate) + 4:.1f}">{_tick(rate)}</text>')
    parts.append(f'<text x="{LEFT}" y="{HEIGHT - 4}">p99, ms; upwards: answers per second</text>')
    best = sorted((report.rows[number] for number in report.front), key=lambda row: row.figures["p99"])
    line = " ".join(f"{across(row.figures['p99']):.1f},{down(row.figures['throughput']):.1f}" for row in best)
    parts.append(f'<polyline fill="none" stroke="var(--a)" stroke-width="1.2" points="{line}"/>')
    for row, p99, rate in points:
        is_chosen = row.setting == report.verdict.setting
        colour, size = ("var(--b)", 5) if is_chosen else ("var(--a)", 4) if row.looks > 1 else ("var(--line)", 3)
        parts.append(
            f'<circle cx="{across(p99):.1f}" cy="{down(rate):.1f}" r="{size}" fill="{colour}">'
            f"<title>{escape(row.setting.label)}: {show(rate)}/s, p99 {show_ms(p99)} ms</title></circle>"
        )
    shape = f'viewBox="0 0 {WIDTH} {HEIGHT}"'
    return f'<svg role="img" aria-label="Throughput against p99 of every setting" {shape}>{"".join(parts)}</svg>'


def _tick(value: float) -> str:
    return show(value) if value else "0"

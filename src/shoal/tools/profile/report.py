"""What a profile says, as a table in the terminal, Markdown and JSON."""

from collections.abc import Sequence

import msgspec
from rich.table import Table

from shoal.tools import machine
from shoal.tools.profile.measure import STAGES, Measured
from shoal.tools.profile.rules import Best, Row, best_under, knee
from shoal.tools.units import show, show_bytes, show_ms

SHORT = {"preprocess": "pre", "inference": "infer", "postprocess": "post"}


class Profile(msgspec.Struct, frozen=True):
    """A profile whole: what was measured, where, and what follows from it. Times in seconds, memory in bytes."""

    model: str
    handler: str
    inputs: list[str]
    machine: dict[str, str]
    device: str
    loading: float
    memory: int
    rows: list[Row]
    knee: int
    best: Best | None
    goal: float  # 0: none was set
    stopped: str
    format: int = 1


def profile_of(model: str, inputs: Sequence[str], found: Measured, goal: float) -> Profile:
    """Put a profile together."""
    return Profile(
        model=model,
        handler=found.handler,
        inputs=list(inputs),
        machine=machine.facts(),
        device=found.device or "cpu",
        loading=found.loading,
        memory=found.memory,
        rows=found.rows,
        knee=knee(found.rows),
        best=best_under(found.rows, goal) if goal else None,
        goal=goal,
        stopped=found.stopped,
    )


def to_json(profile: Profile) -> bytes:
    """Write it for programs."""
    return msgspec.json.format(msgspec.json.encode(profile), indent=1) + b"\n"


def table(profile: Profile) -> Table:
    """Draw the rows for a terminal."""
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for name in _columns(profile):
        drawn.add_column(name, justify="right", no_wrap=True)
    for row in profile.rows:
        style = "bold green" if row.size == profile.knee else ""
        drawn.add_row(*_cells(profile, row), style=style)
    return drawn


def findings(profile: Profile) -> list[str]:
    """Say what follows from the rows, a sentence each."""
    said = []
    found = {row.size: row for row in profile.rows}
    if profile.knee:
        at = found[profile.knee]
        said.append(
            f"knee: batch size {at.size}, {show(at.per_second)} items/s in {show_ms(at.total)} ms: the smallest with "
            "nine tenths of the best throughput"
        )
    if profile.goal:
        said.append(_goal(profile))
    if profile.stopped:
        said.append(f"stopped: {profile.stopped}")
    return said


def _goal(profile: Profile) -> str:
    best = profile.best
    if best is None:
        first = profile.rows[0].total if profile.rows else 0.0
        return f"goal {show_ms(profile.goal)} ms: no batch is that fast; a single item takes {show_ms(first)} ms"
    is_measured = any(row.size == best.size for row in profile.rows)
    how = "" if is_measured else ", between two sizes that were measured"
    return (
        f"goal {show_ms(profile.goal)} ms: batch size {best.size}, {show(best.per_second)} items/s in "
        f"{show_ms(best.total)} ms{how}"
    )


def to_markdown(profile: Profile) -> str:
    """Write it for people."""
    columns = _columns(profile)
    lines = [
        f"# Profile of {profile.model}",
        "",
        f"{profile.handler}, loaded in {show(profile.loading)} s, {show_bytes(profile.memory)} resident, "
        f"on {profile.device}. Input: {', '.join(profile.inputs)}.",
        "",
        f"Machine: {machine.line(profile.machine)}.",
        "",
        f"| {' | '.join(columns)} |",
        f"|{'|'.join('---:' for _ in columns)}|",
        *(f"| {' | '.join(_cells(profile, row))} |" for row in profile.rows),
        "",
        *(f"- {text}" for text in findings(profile)),
        "",
        "Times are medians; the range leaves out the fastest and the slowest tenth. Memory is the most that was "
        "resident while the batch ran, above what the loaded model takes.",
        "",
    ]
    return "\n".join(lines)


def _columns(profile: Profile) -> list[str]:
    gpu = ["GPU memory"] if any(row.device_memory for row in profile.rows) else []
    stages = [f"{SHORT[name]} ms" for name in _stages(profile)]
    return ["batch", "total ms", "10-90 %", "ms/item", "items/s", *stages, "memory", *gpu]


def _cells(profile: Profile, row: Row) -> list[str]:
    gpu = [show_bytes(row.device_memory)] if any(other.device_memory for other in profile.rows) else []
    return [
        str(row.size),
        show_ms(row.total),
        f"{show_ms(row.low)}-{show_ms(row.high)}",
        show_ms(row.per_item),
        show(row.per_second),
        *(show_ms(row.stages[name]) for name in _stages(profile)),
        f"+{show_bytes(max(0, row.memory))}",
        *gpu,
    ]


def _stages(profile: Profile) -> list[str]:
    """The stages worth a column: a handler of one stage has all its time in it."""
    used = [name for name in STAGES if any(row.stages[name] for row in profile.rows)]
    return used if len(used) > 1 else []

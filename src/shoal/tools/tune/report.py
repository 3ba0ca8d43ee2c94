"""What a tuning found: the recommended setting, what it is worth, what each knob bought, and every trial."""

from collections.abc import Sequence
from statistics import fmean

import msgspec

from shoal.tools import machine
from shoal.tools.tune.goal import Goals, Merit, show_figures
from shoal.tools.tune.hosts import Host
from shoal.tools.tune.looks import LIKELY, SURE
from shoal.tools.tune.search import Search
from shoal.tools.tune.setting import Setting, knob_label
from shoal.tools.tune.trials import Run
from shoal.tools.tune.tuner import Found
from shoal.tools.units import show, show_bytes, show_ms

RELEVANT = 0.03  # a gain below this is not worth a setting that somebody has to look after
COLUMNS = ("setting", "looks", "answers/s", "p50 ms", "p99 ms", "rows/batch", "memory", "")


class Row(msgspec.Struct, frozen=True):
    """A setting and what its looks found together."""

    setting: Setting
    looks: int
    merit: Merit
    figures: dict[str, float]  # means of the looks
    mean_rows: float
    memory: int
    errors: int
    problem: str


class Bought(msgspec.Struct, frozen=True):
    """What one knob is worth: the best setting against the same with the knob put back, or it alone on the default."""

    knob: str
    default: str
    best: str
    gain: float | None  # as a share; None: without it the goal is missed, or it was not measured
    is_known: bool


class Verdict(msgspec.Struct, frozen=True):
    """What is recommended, in words too."""

    setting: Setting
    is_default: bool  # nothing should be changed
    is_met: bool  # the goal is kept
    gain: float | None  # over the default; None: the default does not do what it must
    noise: float  # of that gain: what chance alone may have made, nineteen times of twenty
    words: str


class Report(msgspec.Struct, frozen=True):
    """A tuning whole."""

    model: str
    goal: str
    load: str
    body: str
    machine: dict[str, str]
    verdict: Verdict
    best: Setting  # measured, whether it is recommended or not
    default: Setting
    bought: list[Bought]
    runs: list[Run]
    rows: list[Row]  # the best first
    front: list[int]  # numbers of the rows that no other beats in both throughput and p99
    seconds: float
    files: dict[str, str]  # the recommended setting as it stands in each kind of file
    limits: dict[str, float] = {}
    problem: str = ""  # why it ended early
    format: int = 2


def report_of(host: Host, goals: Goals, load: str, body: str, found: Found) -> Report:
    """Put it together."""
    search, runs = found.search, found.trials.runs
    rows = rows_of(search, runs)
    decided = verdict(search, goals, rows)
    return Report(
        model=host.name,
        goal=str(goals),
        load=load,
        body=body,
        machine=machine.facts(),
        verdict=decided,
        best=search.best,
        default=search.default,
        bought=bought(search),
        runs=runs,
        rows=rows,
        front=front(rows),
        seconds=found.seconds,
        files=host.files(decided.setting),
        limits=goals.limits,
        problem=found.stopped,
    )


def rows_of(search: Search, runs: Sequence[Run]) -> list[Row]:
    """Take the looks at each setting together."""
    found: dict[Setting, list[Run]] = {}
    for run in runs:
        found.setdefault(run.setting, []).append(run)
    rows = [_row(search.looks.merit(setting), same) for setting, same in found.items()]
    return sorted(rows, key=lambda row: search.looks.estimate(row.setting), reverse=True)


def _row(merit: Merit, runs: Sequence[Run]) -> Row:
    answered = [run for run in runs if run.figures]
    names = answered[0].figures if answered else {}
    return Row(
        setting=runs[0].setting,
        looks=len(runs),
        merit=merit,
        figures={name: fmean(run.figures[name] for run in answered) for name in names},
        mean_rows=fmean(run.mean_rows for run in answered) if answered else 0.0,
        memory=max(run.memory for run in runs),
        errors=sum(sum(run.errors.values()) for run in runs),
        problem=next((run.problem for run in runs if run.problem), ""),
    )


def verdict(search: Search, goals: Goals, rows: Sequence[Row]) -> Verdict:
    """Decide what to recommend: the best, unless the default is probably as good.

    To keep the default where something else is better costs as much as the other mistake, so nine times of ten are
    enough; the words say where it is not nineteen of twenty. All looks decide, unless the finals find nothing, and the
    finals alone say by how much.
    """
    best, default = search.best, search.default
    won, noise = search.worth(best), search.doubt(best)
    gained, chance = search.looks.gain(best, default), search.looks.doubt(best, default) * LIKELY / SURE
    is_default = best == default or won <= RELEVANT or gained <= max(RELEVANT, chance)
    chosen = default if is_default else best
    merit = search.looks.merit(chosen)
    measured = show_figures(next((row.figures for row in rows if row.setting == chosen), {}))
    known = won if abs(won) != float("inf") and merit.rank == 1 else None
    words = _words(search, chosen, won, noise, measured)
    if merit.rank != 1:
        words = f"nothing that was tried keeps the goal ({goals}); the nearest is {chosen.label}: {measured}"
    return Verdict(chosen, is_default, merit.rank == 1, known, noise, words)


def bought(search: Search) -> list[Bought]:
    """Tell what each changed knob is worth: put back alone, how much is lost; or what the default alone gains by it."""
    found, looks = [], search.looks
    for knob, back in search.put_back().items():
        best, other = search.best, back
        if not looks.count(back):  # there was no time for it
            best, other = search.default.with_knob(knob, search.best), search.default
        is_known = bool(looks.count(best) and looks.count(other))
        share = looks.measured_gain(best, other) if looks.merit(other).rank == 1 else float("inf")
        labels = knob_label(search.default, knob), knob_label(search.best, knob)
        found.append(Bought(knob, *labels, share if abs(share) != float("inf") else None, is_known))
    return found


def front(rows: Sequence[Row]) -> list[int]:
    """Number the rows that are beaten by no other in both throughput and p99."""
    answered = [(number, row.figures) for number, row in enumerate(rows) if row.figures]
    return [
        number
        for number, mine in answered
        if not any(
            other["throughput"] >= mine["throughput"] and other["p99"] <= mine["p99"] and other != mine
            for _, other in answered
        )
    ]


def cells(row: Row) -> list[str]:
    """Write a row under `COLUMNS`."""
    if not row.figures:
        return [row.setting.label, str(row.looks), *("-" for _ in range(5)), row.problem]
    failed = f"{row.errors} errors" if row.errors else row.problem
    told = failed or ("" if row.merit.rank == 1 else "misses the goal")
    figures = row.figures
    return [
        *(row.setting.label, str(row.looks)),
        *(show(figures["throughput"]), show_ms(figures["p50"]), show_ms(figures["p99"])),
        *(show(row.mean_rows) if row.mean_rows else "-", show_bytes(row.memory) if row.memory else "-", told),
    ]


def gain_label(share: float | None) -> str:
    """Write a gain."""
    return "the goal is missed without it" if share is None else f"{100 * share:+.1f} %"


def bought_lines(report: Report) -> list[str]:
    """Say what each knob bought, a line each; nothing where nothing is recommended or the goal is missed anyway."""
    return [
        f"{each.knob}: {each.best} instead of {each.default}: "
        + (gain_label(each.gain) if each.is_known else "not measured")
        for each in (report.bought if report.verdict.is_met and not report.verdict.is_default else [])
    ]


def to_markdown(report: Report) -> str:
    """Write it for people."""
    gains = bought_lines(report)
    lines = [
        f"# Tuning of {report.model}",
        "",
        f"Goal: {report.goal}. Load: {report.load}; body: {report.body}.",
        f"{len(report.runs)} looks at {len(report.rows)} settings in {report.seconds:.0f} s.",
        "",
        f"Machine: {machine.line(report.machine)}.",
        "",
        *([f"**Ended early: {report.problem}.**", ""] if report.problem else []),
        f"**{report.verdict.words}.**",
        "",
        *(_files(report) if not report.verdict.is_default else []),
        *(["What each knob bought:", "", *(f"- {line}" for line in gains), ""] if gains else []),
        "All settings, the best first; figures are means of the looks:",
        "",
        f"| {' | '.join(COLUMNS)} |",
        f"|---|{'|'.join('---:' for _ in range(6))}|---|",
        *(f"| {' | '.join(cells(row))} |" for row in report.rows),
        "",
    ]
    return "\n".join(lines)


def _files(report: Report) -> list[str]:
    lines = []
    for name, text in report.files.items():
        kind = {"toml": "toml", "yaml": "yaml"}.get(name.rpartition(".")[2], "protobuf")
        lines += [f"As `{name}`:", "", f"```{kind}", text.rstrip(), "```", ""]
    return lines


def _words(search: Search, chosen: Setting, won: float, noise: float, measured: str) -> str:
    if search.best == search.default:
        return (
            f"the default is already best: {chosen.label}, {measured}; nothing that was tried beat it. Change nothing"
        )
    if chosen == search.default:
        return (
            f"the default is already best within noise: {chosen.label}, {measured}. The best other setting "
            f"({search.best.label}) differs by {100 * won:+.1f} %; chance alone makes up to {100 * noise:.1f} %. "
            "Change nothing"
        )
    if won == float("inf"):
        return f"{chosen.label}: {measured}; it keeps the goal, which the default does not"
    told = f"{chosen.label}: {measured}; {100 * won:+.1f} % over the default (give or take {100 * noise:.1f} %)"
    return told if won > noise else f"{told}: probably better, a longer search can make sure"

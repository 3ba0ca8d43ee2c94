"""What a tuning found: the recommended setting, what it is worth, what each knob bought, and every trial."""

from collections.abc import Sequence

import msgspec

from shoal.tools import machine
from shoal.tools.tune.goal import Goals, Merit, chance, gain, show_figures
from shoal.tools.tune.hosts import Host
from shoal.tools.tune.search import LAST, TOP, Search
from shoal.tools.tune.setting import Setting, knob_label
from shoal.tools.tune.trials import Run
from shoal.tools.tune.tuner import Found
from shoal.tools.units import show, show_bytes, show_ms

RELEVANT = 0.03  # a gain below this is not worth a setting that somebody has to look after
SURE = 0.95  # chance to be better
COLUMNS = ("setting", "look", "answers/s", "p50 ms", "p99 ms", "rows/batch", "memory", "")


class Bought(msgspec.Struct, frozen=True):
    """What one knob is worth: the best setting against the same with the knob put back."""

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
    noise: float  # by which two measurements of the default differ
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
    front: list[int]  # numbers of the runs that no other beats in both throughput and p99
    seconds: float
    files: dict[str, str]  # the recommended setting as it stands in each kind of file
    limits: dict[str, float] = {}
    problem: str = ""  # why it ended early
    format: int = 1


def report_of(host: Host, goals: Goals, load: str, body: str, found: Found) -> Report:
    """Put it together."""
    decided = verdict(found.search, goals, found.trials.runs)
    return Report(
        model=host.name,
        goal=str(goals),
        load=load,
        body=body,
        machine=machine.facts(),
        verdict=decided,
        best=found.search.best,
        default=found.search.default,
        bought=bought(found.search),
        runs=found.trials.runs,
        front=front(found.trials.runs),
        seconds=found.seconds,
        files=host.files(decided.setting),
        limits=goals.limits,
        problem=found.stopped,
    )


def verdict(search: Search, goals: Goals, runs: Sequence[Run]) -> Verdict:
    """Decide what to recommend: the best, unless the default is as good within noise."""
    default, best = _merits(search, search.default), _merits(search, search.best)
    noise = abs(gain(default[-1], default[0])) if len(default) > 1 and default[0].rank == default[-1].rank else 0.0
    won = gain(best[-1], _middle(default))
    sure = chance(_draws(search, search.best), _draws(search, search.default))
    is_default = search.best == search.default or won <= max(RELEVANT, noise) or sure < SURE
    chosen = search.default if is_default else search.best
    is_met = (default if is_default else best)[-1].rank == 1
    measured = show_figures(next((run.figures for run in reversed(runs) if run.setting == chosen), {}))
    known = won if abs(won) != float("inf") and best[-1].rank == 1 else None
    words = _words(search, chosen, won, noise, measured)
    if not is_met:
        words = f"nothing that was tried keeps the goal ({goals}); the nearest is {chosen.label}: {measured}"
    return Verdict(chosen, is_default, is_met, known, noise, words)


def bought(search: Search) -> list[Bought]:
    """Tell what each changed knob is worth: put back alone, how much is lost."""
    found = []
    best = search.outcome(search.best)
    for knob in search.changed:
        back = search.outcome(search.best.with_knob(knob, search.default))
        share = gain(best.merit, back.merit) if best is not None and back is not None else 0.0
        is_share = best is not None and back is not None and abs(share) != float("inf") and back.merit.rank == 1
        found.append(
            Bought(
                knob,
                knob_label(search.default, knob),
                knob_label(search.best, knob),
                share if is_share else None,
                back is not None,
            )
        )
    return found


def front(runs: Sequence[Run]) -> list[int]:
    """Number the runs that had a long look and are beaten by no other in both throughput and p99."""
    long = [(number, run.figures) for number, run in enumerate(runs) if run.rung >= TOP and run.figures]
    return [
        number
        for number, mine in long
        if not any(
            other["throughput"] >= mine["throughput"] and other["p99"] <= mine["p99"] and other != mine
            for _, other in long
        )
    ]


def cells(run: Run) -> list[str]:
    """Write a run as a row under `COLUMNS`."""
    look = {LAST: "again", TOP: "long"}.get(run.rung, "short")
    if not run.figures:
        return [run.setting.label, look, *("-" for _ in range(5)), run.problem]
    failed = f"{sum(run.errors.values())} errors" if run.errors else ""
    told = failed or ("" if run.merit.rank == 1 else "misses the goal")
    figures = run.figures
    return [
        *(run.setting.label, look, show(figures["throughput"]), show_ms(figures["p50"]), show_ms(figures["p99"])),
        *(show(run.mean_rows) if run.mean_rows else "-", show_bytes(run.memory) if run.memory else "-", told),
    ]


def gain_label(share: float | None) -> str:
    """Write a gain."""
    return "the goal is missed without it" if share is None else f"{100 * share:+.1f} %"


def bought_lines(report: Report) -> list[str]:
    """Say what each knob bought, a line each; nothing where nothing is recommended."""
    return [
        f"{each.knob}: {each.best} instead of {each.default}: "
        + (gain_label(each.gain) if each.is_known else "not measured")
        for each in ([] if report.verdict.is_default else report.bought)
    ]


def to_markdown(report: Report) -> str:
    """Write it for people."""
    long = [run for run in report.runs if run.rung >= TOP]
    long.sort(key=lambda run: run.merit, reverse=True)
    gains = bought_lines(report)
    lines = [
        f"# Tuning of {report.model}",
        "",
        f"Goal: {report.goal}. Load: {report.load}; body: {report.body}.",
        f"{len(report.runs)} trials in {report.seconds:.0f} s.",
        "",
        f"Machine: {machine.line(report.machine)}.",
        "",
        *([f"**Ended early: {report.problem}.**", ""] if report.problem else []),
        f"**{report.verdict.words}.**",
        "",
        *(_files(report) if not report.verdict.is_default else []),
        *(["What each knob bought:", "", *(f"- {line}" for line in gains), ""] if gains else []),
        "Settings that had a long look, the best first:",
        "",
        f"| {' | '.join(COLUMNS)} |",
        f"|---|---|{'|'.join('---:' for _ in range(5))}|---|",
        *(f"| {' | '.join(cells(run))} |" for run in long),
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
            f"({search.best.label}) differs by {100 * won:+.1f} %, two measurements of the default by "
            f"{100 * noise:.1f} %. Change nothing"
        )
    if won == float("inf"):
        return f"{chosen.label}: {measured}; it keeps the goal, which the default does not"
    return f"{chosen.label}: {measured}; {100 * won:+.1f} % over the default"


def _merits(search: Search, setting: Setting) -> list[Merit]:
    found = [search.outcome(setting, rung) for rung in (TOP, LAST)]
    return [outcome.merit for outcome in found if outcome is not None]


def _draws(search: Search, setting: Setting) -> list[Merit]:
    found = [search.outcome(setting, rung) for rung in (TOP, LAST)]
    return [merit for outcome in found if outcome is not None for merit in outcome.draws]


def _middle(merits: Sequence[Merit]) -> Merit:
    """Two measurements taken together; of two that differ in rank the better."""
    best = max(merit.rank for merit in merits)
    values = [merit.value for merit in merits if merit.rank == best]
    return Merit(best, sum(values) / len(values))

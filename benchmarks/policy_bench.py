"""How good is the default batching rule? Every workload, against the best of 92 hand-made settings.

    python benchmarks/policy_bench.py --quick          about two minutes on two idle cores
    python benchmarks/policy_bench.py                  all settings and workloads, longer runs: about 20 minutes
    python benchmarks/policy_bench.py --curve h200     one cost curve only
    python benchmarks/policy_bench.py --quick --curve dented --load "poisson 0.05" --load "closed 3"

Per workload all settings are tried in a short run, the best few for throughput, for p99, and for p99 among the fast
ones again, longer and on fresh seeds, beside the rules under test. Regret is best/own throughput and own/best p99: 1.00
is as good as the best hand tuning for that workload and that metric, below 1 is better. Open-loop arrivals are the
same for all, so regrets are taken seed by seed; the table of the default has their range. Its last columns are the p99
against the settings that reach 97 % of the best throughput: a short p99 bought with throughput is another bargain.
The final's seeds are not those that the rule's constants were chosen on.
Results go to benchmarks/out/: policy.md, policy.json and, where matplotlib is installed, policy.png.
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from multiprocessing import Pool, cpu_count
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.progress import track

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.policy_sim import WORKLOADS, Simulation, Triton, Workload, World, curve
from benchmarks.report import machine
from shoal.core.adaptive import Adaptive
from shoal.core.policy import Fixed, Policy, Single

OUT = Path(__file__).resolve().parent / "out"
SIZES = (4, 8, 16, 32, 64, 128, 256)
SETTINGS = (
    ["fixed/1/0"]
    + [f"fixed/{size}/{delay:g}" for size in SIZES for delay in (1, 2, 5, 10, 20, 50, 100)]
    + [f"triton/{size}/{delay:g}" for size in SIZES for delay in (0, 0.5, 1, 2, 5, 10)]
)  # sizes in rows, delays in ms
QUICK_SETTINGS = (
    ["fixed/1/0"]
    + [f"fixed/{size}/{delay:g}" for size in (4, 8, 32, 256) for delay in (1, 5, 20)]
    + [f"triton/{size}/{delay:g}" for size in (8, 32, 256) for delay in (0, 1)]
)
QUICK_WORKLOADS = {"closed 1", "closed 2", "closed 5", "closed 10", "closed 100", "closed 500", "think 100"}
QUICK_WORKLOADS |= {"late 5", "late 50", "turns 100", "poisson 0.3", "poisson 0.8", "volleys 0.3", "volleys 0.8"}
FAST = 0.97  # of the best throughput
RULES = ("adaptive", "adaptive-cold", "greedy", "fixed/8/50", "single")


class Job(NamedTuple):
    """One run."""

    curve: str
    instances: int
    workload: Workload
    rule: str
    seed: int
    requests: int


class Score(NamedTuple):
    """What a run is judged by."""

    throughput: float
    p99: float


@dataclass(frozen=True)
class Effort:
    """How much is searched and for how long."""

    settings: list[str]
    workloads: list[Workload]
    search: float  # length of the search runs, in short runs
    final: float  # of the final runs
    seeds: tuple[int, ...]
    keep: int  # settings per metric that reach the final


@dataclass(frozen=True)
class Cell:
    """The result of one workload."""

    curve: str
    instances: int
    workload: str
    settings: list[str]  # that reached the final
    scores: dict[str, list[Score]]  # by rule, one for each seed

    def mean(self, rule: str) -> Score:
        """Geometric means, for regrets are ratios."""
        return mean_of(self.scores[rule])

    @property
    def best_throughput(self) -> str:
        """The fixed setting of most answers a second."""
        return max(self.settings, key=lambda rule: self.mean(rule).throughput)

    @property
    def best_p99(self) -> str:
        """The fixed setting of least p99."""
        return min(self.settings, key=lambda rule: self.mean(rule).p99)

    @property
    def best_fast_p99(self) -> str:
        """The fixed setting of least p99 among those that are nearly the fastest."""
        least = FAST * self.mean(self.best_throughput).throughput
        return min(
            (rule for rule in self.settings if self.mean(rule).throughput >= least), key=lambda r: self.mean(r).p99
        )

    def regret(self, rule: str) -> Score:
        """How far a rule is from the best setting."""
        own = self.mean(rule)
        return Score(
            self.mean(self.best_throughput).throughput / own.throughput, own.p99 / self.mean(self.best_p99).p99
        )

    def p99_regrets(self, rule: str, other: str) -> list[float]:
        """A rule's p99 to a setting's, seed by seed."""
        return [one.p99 / two.p99 for one, two in zip(self.scores[rule], self.scores[other], strict=True)]


FULL = Effort(SETTINGS, WORKLOADS, 0.2, 0.6, (41, 42, 43), 3)
QUICK = Effort(QUICK_SETTINGS, [w for w in WORKLOADS if str(w) in QUICK_WORKLOADS], 0.1, 0.3, (41, 42, 43), 2)

RunAll = Callable[[list[Job], str], dict[Job, Score]]


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer settings, shorter runs")
    parser.add_argument(
        "--curve",
        action="append",
        help="cost curve; may be repeated (rtx3090, h200, flat, weak, dented, straight, echo)",
    )
    parser.add_argument("--load", action="append", type=workload, help="such as 'closed 3', in place of the usual ones")
    parser.add_argument("--only", default="", help="workloads whose name begins so, such as volleys")
    parser.add_argument("--instances", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=min(2, cpu_count()))
    options = parser.parse_args()
    effort = QUICK if options.quick else FULL
    effort = replace(effort, workloads=options.load or effort.workloads)
    effort = replace(effort, workloads=[each for each in effort.workloads if str(each).startswith(options.only)])
    kept_as = "-".join(["policy", *options.only.split(), *" ".join(map(str, options.load or ())).split()])
    console = Console(width=None if sys.stdout.isatty() else 140)
    command = " ".join(["python benchmarks/policy_bench.py", *sys.argv[1:]])
    began = time.perf_counter()
    with Pool(options.jobs) as pool:

        def run_all(jobs: list[Job], what: str) -> dict[Job, Score]:
            if not console.is_terminal:
                print(f"{time.perf_counter() - began:5.0f} s  {what}: {len(jobs)} runs", flush=True)
            results: Iterable[tuple[Job, Score]] = pool.imap_unordered(run_job, jobs, chunksize=2)
            return dict(track(results, what, len(jobs), console=console, disable=not console.is_terminal))

        cells: list[Cell] = []
        for name in options.curve or ["rtx3090", "h200", "flat", "weak", "dented", "straight"]:
            cells += bench(name, options.instances, effort, run_all)
            text = as_markdown(cells) + f"\n{len(effort.settings)} settings, {time.perf_counter() - began:.0f} s.\n"
            text += f"{machine()}; {time.strftime('%Y-%m-%d')}; `{command}`\n"
            write(kept_as, cells, text)  # after every curve, so that an interrupted run keeps what it has
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def workload(name: str) -> Workload:
    """Read a workload's name."""
    kind, number = name.split()
    if kind not in {each.kind for each in WORKLOADS}:
        raise ValueError(kind)
    return Workload(kind, float(number))


def bench(name: str, instances: int, effort: Effort, run_all: RunAll) -> Iterator[Cell]:
    """Search the best settings of every workload of a curve, then measure them beside the rules."""

    def jobs(rules: dict[Workload, list[str]], seeds: tuple[int, ...], longer: float) -> list[Job]:
        return [
            Job(name, instances, workload, rule, seed, int(longer * workload.length))
            for workload, names in rules.items()
            for rule in names
            for seed in seeds
        ]

    searched = run_all(jobs(dict.fromkeys(effort.workloads, effort.settings), (1,), effort.search), f"{name}: search")
    kept = {
        w: best_of({job.rule: s for job, s in searched.items() if job.workload == w}, effort.keep)
        for w in effort.workloads
    }
    finals = run_all(jobs({w: [*kept[w], *RULES] for w in kept}, effort.seeds, effort.final), f"{name}: final")
    for workload, settings in kept.items():
        scores = {
            rule: [finals[job] for job in jobs({workload: [rule]}, effort.seeds, effort.final)]
            for rule in [*settings, *RULES]
        }
        yield Cell(name, instances, str(workload), settings, scores)


def run_job(job: Job) -> tuple[Job, Score]:
    """Run one simulation."""
    seconds = curve(job.curve)
    world = World(seconds, job.workload, job.instances, job.seed)
    report = Simulation(world, make_policy(job.rule, seconds)).run(job.requests)
    return job, Score(report.throughput, report.p99)


def make_policy(rule: str, seconds: list[float]) -> Policy:
    """Make a policy from its name."""
    match rule.split("/"):
        case ["adaptive"]:
            return Adaptive(len(seconds) - 1, {2**n: seconds[2**n] for n in range((len(seconds) - 1).bit_length())})
        case ["adaptive-cold"]:
            return Adaptive(len(seconds) - 1)
        case ["greedy"]:
            return Triton(256, 0.0)
        case ["single"]:
            return Single()
        case ["triton", size, delay]:
            return Triton(int(size), float(delay) / 1e3)
        case ["fixed", size, delay]:
            return Fixed(int(size), float(delay) / 1e3)
        case _:
            raise ValueError(f"no rule is called {rule!r}")


def best_of(scores: dict[str, Score], keep: int) -> list[str]:
    """The settings best in either metric, and in p99 among the fast ones."""
    fast = sorted(scores, key=lambda rule: -scores[rule].throughput)
    short = sorted(scores, key=lambda rule: scores[rule].p99)
    both = [rule for rule in short if scores[rule].throughput >= FAST * scores[fast[0]].throughput]
    return sorted({*fast[:keep], *short[:keep], *both[:keep]})


def mean_of(scores: list[Score]) -> Score:
    """Geometric means, for regrets are ratios."""
    return Score(*(math.exp(sum(map(math.log, column)) / len(column)) for column in zip(*scores, strict=True)))


# -- reports -----------------------------------------------------------------------------------------------------------


def as_markdown(cells: list[Cell]) -> str:
    """A table of the worst regrets per curve, then one row per workload."""
    lines = ["# Batching policy: regret against the best fixed setting", ""]
    lines += ["Throughput best/own, p99 own/best; 1.00 is as good as the best hand tuning, below 1 better.", ""]
    lines += table(["curve", *(f"{rule}: worst throughput, p99" for rule in RULES)], worst_rows(cells))
    lines += [""]
    head = ["curve", "workload", *RULES, "best throughput", "best p99"]
    lines += table(head, ([c.curve, c.workload, *(show(c.regret(r)) for r in RULES), *best(c)] for c in cells))
    lines += [
        "",
        "The default's p99 by seed, against the best setting and the best of those that are fast as well:",
        "",
    ]
    lines += table(
        [
            "curve",
            "workload",
            "p99 regret",
            "least and most of a seed",
            "throughput of that setting",
            "p99 among the fast",
        ],
        (seed_row(cell) for cell in cells),
    )
    return "\n".join(lines) + "\n"


def seed_row(cell: Cell) -> list[str]:
    """How the default's p99 regret varies, and what it is where throughput is kept."""
    rival, fast = cell.best_p99, cell.best_fast_p99
    seeds = cell.p99_regrets("adaptive", rival)
    share = cell.mean(rival).throughput / cell.mean(cell.best_throughput).throughput
    among = cell.mean("adaptive").p99 / cell.mean(fast).p99
    return [
        cell.curve,
        cell.workload,
        f"{cell.regret('adaptive').p99:.3f}",
        f"{min(seeds):.2f}-{max(seeds):.2f}",
        f"{share:.3f}",
        f"{among:.3f} ({fast})",
    ]


def worst_rows(cells: list[Cell]) -> Iterator[list[str]]:
    """Per curve and rule the worst throughput and the worst p99 of any workload."""
    for name in dict.fromkeys(cell.curve for cell in cells):
        regrets = {rule: [cell.regret(rule) for cell in cells if cell.curve == name] for rule in RULES}
        yield [name, *(show(Score(max(r.throughput for r in rs), max(r.p99 for r in rs))) for rs in regrets.values())]


def best(cell: Cell) -> tuple[str, str]:
    """The settings to beat, with their figures."""
    throughput, p99 = cell.mean(cell.best_throughput).throughput, cell.mean(cell.best_p99).p99
    return f"{cell.best_throughput} ({throughput:.0f}/s)", f"{cell.best_p99} ({1e3 * p99:.1f} ms)"


def show(score: Score) -> str:
    """Two ratios in a table's cell."""
    return f"{score.throughput:.3f}, {score.p99:.2f}"


def table(head: list[str], rows: Iterable[list[str]]) -> list[str]:
    """Lines of a Markdown table."""
    return ["| " + " | ".join(line) + " |" for line in [head, ["---"] * len(head), *rows]]


def write(kept_as: str, cells: list[Cell], text: str) -> None:
    """Keep the figures, and draw them where that is possible."""
    OUT.mkdir(exist_ok=True)
    (OUT / f"{kept_as}.md").write_text(text)
    figures = [asdict(cell) | {"regret": {rule: cell.regret(rule) for rule in RULES}} for cell in cells]
    (OUT / f"{kept_as}.json").write_text(json.dumps(figures, indent=1))
    try:
        from matplotlib import pyplot
    except ImportError:
        return
    names = list(dict.fromkeys(cell.curve for cell in cells))
    figure, axes = pyplot.subplots(2, len(names), figsize=(5 * len(names), 9), squeeze=False)
    for column, name in enumerate(names):
        mine = [cell for cell in cells if cell.curve == name]
        for row, metric in enumerate(Score._fields):
            for rule in ("adaptive", "greedy"):
                axes[row][column].plot([c.regret(rule)[row] for c in mine], [c.workload for c in mine], "o", label=rule)
            axes[row][column].axvline(1.0, color="grey")
            axes[row][column].set_title(f"{name}: {metric} regret")
            axes[row][column].legend()
    figure.tight_layout()
    figure.savefig(OUT / f"{kept_as}.png", dpi=110)


if __name__ == "__main__":
    main()

"""`shoal tune` against the full grid it searches, in one run: what each found, and how long each took.

Every setting of the grid gets the longest look that the tuner gives. The tuner then has a tenth of the grid's time, and
what both found is measured again in turn, for the best of many noisy figures is always too good.

    python -m benchmarks.tune_grid
    python -m benchmarks.tune_grid --cases sleep --small --window 0.5
"""

import argparse
import asyncio
import json
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.report import machine, table, write
from shoal.tools.bench.plan import Settings, steps
from shoal.tools.samples import Sample
from shoal.tools.tune.goal import Goals
from shoal.tools.tune.hosts import Native
from shoal.tools.tune.report import verdict
from shoal.tools.tune.search import LAST, TOP, Trial
from shoal.tools.tune.setting import Setting
from shoal.tools.tune.space import Space
from shoal.tools.tune.trials import Plan, Run, Trials
from shoal.tools.tune.tuner import Tuner

HERE = Path(__file__).parent
SHARE = 0.1  # of the grid's time that the tuner has
NEAR = 0.03  # by which it may miss the grid's best
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
PLAIN = Space(limits=(1, 2, 4, 8, 16, 32, 64, 128), workers=(1, 2, 4), micro=(0,), threads=((1, 1, 1),))
STAGED = Space(
    limits=(1, 4, 16, 64),
    delays=(1.0, 5.0, 20.0),
    workers=(1, 2),
    instances=(1, 2),
    micro=(0, 8),
    threads=((1, 1, 1), (2, 1, 2)),
)
SMALL = Space(
    limits=(1, 8, 64), delays=(1.0, 10.0), workers=(1, 2, 4), instances=(1, 2), micro=(0,), threads=((1, 1, 1),)
)


@dataclass(frozen=True)
class Case:
    """A model and the space it is searched in."""

    title: str
    model: Path
    space: Space


CASES = {
    "echo": Case("echo", HERE.parent / "tests" / "models" / "echo.py", PLAIN),
    "mlp": Case("MLP 3 x 2048 on the CPU", HERE / "models_mlp.py", PLAIN),
    "sleep": Case("artificial GPU, 5 ms + 0.2 ms a row, stages", HERE / "models_sleep.py", STAGED),
}


def plan(case: Case, args: argparse.Namespace) -> Plan:
    """Say what all trials of a case share."""
    model = {"path": str(case.model), "environment": ONE_THREAD}
    return Plan(
        Native("model", {}, model, Setting()),
        [Sample(bytes(range(64)), "application/octet-stream", "64 bytes")],
        steps(str(args.concurrency), "", "", "poisson", 1)[0],
        Goals(),
        Settings(window=args.window, warmup=args.warmup, processes=1),
    )


def say(run: Run) -> None:
    """Show that something happens."""
    told = f"{run.figures['throughput']:.0f}/s" if run.figures else run.problem
    print(f"  {run.began:6.0f} s  {run.setting.label}: {told}", flush=True)


async def grid(made: Plan, space: Space) -> tuple[Setting, float, int]:
    """Measure every setting; gives the best, the seconds it took and how many there are."""
    began = time.monotonic()
    async with Trials(made, say) as trials:
        for setting in space.grid():
            await trials.run(Trial(setting, TOP))
    best = max(trials.runs, key=lambda run: run.merit)
    return best.setting, time.monotonic() - began, len(trials.runs)


async def tuned(made: Plan, space: Space, limit: float) -> tuple[Setting, float, int]:
    """Let the tuner look for it."""
    tuner = Tuner(made, space, limit, say)
    await tuner.run()
    found = tuner.found
    return verdict(found.search, made.goals, found.trials.runs).setting, found.seconds, len(found.trials.runs)


async def again(made: Plan, settings: list[Setting], rounds: int) -> dict[Setting, float]:
    """Measure settings in turn; gives the median throughput of each."""
    found: dict[Setting, list[float]] = {setting: [] for setting in settings}
    async with Trials(made, say) as trials:
        for _ in range(rounds):
            for setting in settings:
                await trials.run(Trial(setting, LAST))
                found[setting].append(trials.runs[-1].figures.get("throughput", 0.0))
    return {setting: statistics.median(values) for setting, values in found.items()}


async def compare(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """Run both for one case."""
    case = CASES[name]
    space = SMALL if args.small else case.space
    made = plan(case, args)
    print(f"{case.title}: the grid", flush=True)
    by_grid, grid_seconds, grid_count = await grid(made, space)
    print(f"{case.title}: the tuner", flush=True)
    by_tuner, seconds, count = await tuned(made, space, SHARE * grid_seconds)
    print(f"{case.title}: both again", flush=True)
    found = await again(made, list(dict.fromkeys([Setting(), by_grid, by_tuner])), args.rounds)
    rates = {"default": found[Setting()], "grid": found[by_grid], "tuner": found[by_tuner]}
    share = rates["tuner"] / rates["grid"] - 1
    return {
        "case": name,
        "title": case.title,
        "grid": {"setting": by_grid.label, "seconds": grid_seconds, "trials": grid_count, "rate": rates["grid"]},
        "tuner": {"setting": by_tuner.label, "seconds": seconds, "trials": count, "rate": rates["tuner"]},
        "default": {"rate": rates["default"]},
        "difference": share,
        "time_share": seconds / grid_seconds,
        "is_near": share >= -NEAR,
    }


def markdown(found: list[dict[str, Any]], args: argparse.Namespace) -> str:
    """Write it for people."""
    rows = []
    for each in found:
        for who in ("grid", "tuner"):
            kept = each[who]
            rate, seconds = f"{kept['rate']:,.0f}", f"{kept['seconds']:.0f}"
            rows.append([each["title"], who, kept["setting"], rate, str(kept["trials"]), seconds])
        rows.append([each["title"], "default", "adaptive, 1 worker", f"{each['default']['rate']:,.0f}", "", ""])
    lines = [
        f"{each['title']}: the tuner's setting differs by {100 * each['difference']:+.1f} % from the grid's best, "
        f"found in {100 * each['time_share']:.0f} % of its time."
        for each in found
    ]
    head = (
        f"Closed loop of {args.concurrency}, looks of {args.window:g} s; medians of {args.rounds} more looks in turn."
    )
    told = f"{machine()}; {time.strftime('%Y-%m-%d')}; `python -m benchmarks.tune_grid`"
    columns = ["model", "by", "setting", "answers/s", "trials", "seconds"]
    return "\n".join([head, told, "", table(columns, rows), *lines, ""])


def main() -> None:
    """Run the cases and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--window", type=float, default=2.0, help="s of the longest look")
    parser.add_argument("--warmup", type=float, default=0.3)
    parser.add_argument("--rounds", type=int, default=5, help="further looks at what both found")
    parser.add_argument("--small", action="store_true", help="a small grid, to try the script")
    args = parser.parse_args()
    found = [asyncio.run(compare(name, args)) for name in args.cases]
    text = markdown(found, args)
    name = "-".join(["tune", *(["small"] if args.small else []), *(args.cases if args.cases != list(CASES) else [])])
    write(name, text, json.dumps(found, indent=1))
    print("\n" + text)


if __name__ == "__main__":
    main()

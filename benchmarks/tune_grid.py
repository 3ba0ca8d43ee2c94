"""`shoal tune` against the full grid it searches, in one run: what each found, and how long each took.

Every setting of the grid gets one look of --grid-look (--window if it is not given). The tuner then has a tenth of the
time that took, and in the end what both found is measured again, with the default, in turn: of many noisy figures the
highest is always too high.
What is found is written after every model, so that a run that is cut short loses only the model at hand.

    python -m benchmarks.tune_grid
    python -m benchmarks.tune_grid --models echo,sleep
    python -m benchmarks.tune_grid --models sleep --small --window 0.5 --rounds 2
    python -m benchmarks.tune_grid --again benchmarks/out/tune-image.json --rounds 40    # what both found, more often
"""

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from benchmarks.report import OUT, about, spread, table, write
from shoal.tools.bench.plan import Settings, steps
from shoal.tools.samples import Sample
from shoal.tools.tune.goal import Goals, show_figures
from shoal.tools.tune.hosts import Native
from shoal.tools.tune.report import rows_of, verdict
from shoal.tools.tune.setting import Setting
from shoal.tools.tune.space import Space
from shoal.tools.tune.trials import Plan, Run, Trials
from shoal.tools.tune.tuner import Tuner

HERE = Path(__file__).parent
SHARE = 0.095  # of the grid's time that the tuner has; it also has to start and to end within a tenth
NEAR = 0.03  # by which it may miss the grid's best
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
ONE: tuple[tuple[int, int, int], ...] = ((1, 1, 1),)
PLAIN = Space(limits=(1, 8, 64), delays=(1.0, 10.0), workers=(1, 2, 4), instances=(1, 2), micro=(0,), threads=ONE)
PHOTOS = Space(limits=(1, 2, 4, 8, 16), micro=(0,), threads=ONE)  # as the tuner has it for so few requests
STAGED = Space(limits=(1, 8, 64), delays=(1.0, 10.0), workers=(1, 2, 4), instances=(1,), micro=(0, 8), threads=ONE)
SMALL = Space(limits=(1, 64), delays=(10.0,), workers=(1, 2), instances=(1,), micro=(0,), threads=ONE)


@dataclass(frozen=True)
class Case:
    """A model, what it is sent, and the space it is searched in."""

    title: str
    model: Path
    space: Space
    concurrency: int
    sample: Callable[[], Sample]


def _bytes() -> Sample:
    return Sample(bytes(range(64)), "application/octet-stream", "64 bytes")


def _photo() -> Sample:
    photo = HERE.parent / "src" / "shoal" / "frontend" / "pages" / "samples" / "bee.jpg"
    return Sample(photo.read_bytes(), "image/jpeg", photo.name)


CASES = {
    "echo": Case("echo, 64 bytes", HERE.parent / "tests" / "models" / "echo.py", PLAIN, 64, _bytes),
    "image": Case(
        "EfficientNet-Lite0 on JPEGs, on the CPU",
        HERE.parent / "src" / "shoal" / "demo" / "bees.py",
        PHOTOS,
        16,
        _photo,
    ),
    "sleep": Case("artificial GPU, 5 ms + 0.2 ms a row, with stages", HERE / "models_sleep.py", STAGED, 64, _bytes),
}


def plan(case: Case, args: argparse.Namespace) -> Plan:
    """Say what all looks at a model share."""
    model = {"path": str(case.model), "environment": ONE_THREAD}
    return Plan(
        Native("model", {}, model, Setting()),
        [case.sample()],
        steps(str(case.concurrency), "", "", "poisson", 1)[0],
        Goals(),
        Settings(window=args.window, warmup=args.warmup, processes=1),
    )


def say(run: Run) -> None:
    """Show that something happens."""
    told = show_figures(run.figures) if run.figures else run.problem
    print(f"  {run.began:6.1f} s  {run.setting.label}{f' (look {run.look})' * (run.look > 1)}: {told}", flush=True)


async def grid(made: Plan, space: Space) -> tuple[list[Run], float]:
    """Look at every setting once; gives what was seen and the seconds it took."""
    began = time.monotonic()
    async with Trials(made, say) as trials:
        for setting in space.grid():
            await trials.run(setting)
    return trials.runs, time.monotonic() - began


async def tuned(made: Plan, space: Space, limit: float) -> tuple[Setting, list[Run], float]:
    """Let the tuner look for it."""
    tuner = Tuner(made, space, limit, say)
    await tuner.run()
    search, runs = tuner.found.search, tuner.found.trials.runs
    return verdict(search, made.goals, rows_of(search, runs)).setting, runs, tuner.found.seconds


async def again(made: Plan, settings: list[Setting], rounds: int) -> dict[Setting, list[float]]:
    """Look at settings in turn, the order turned about every round; gives the answers per second of each look."""
    found: dict[Setting, list[float]] = {setting: [] for setting in settings}
    async with Trials(made, say) as trials:
        for number in range(rounds):
            for setting in settings if number % 2 else settings[::-1]:
                await trials.run(setting)
                found[setting].append(trials.runs[-1].figures.get("throughput", 0.0))
    return found


async def compare(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """Run both for one model."""
    case = CASES[name]
    space = SMALL if args.small else case.space
    made = plan(case, args)
    print(f"{case.title}: the grid of {len(list(space.grid()))} settings", flush=True)
    looks = msgspec.structs.replace(made.look, window=args.grid_look or args.window)
    seen, grid_seconds = await grid(msgspec.structs.replace(made, look=looks), space)
    by_grid = max(seen, key=lambda run: run.merit).setting
    print(f"{case.title}: the tuner, with {SHARE * grid_seconds:.0f} s", flush=True)
    by_tuner, tried, seconds = await tuned(made, space, SHARE * grid_seconds)
    kept = {
        "model": name,
        "title": case.title,
        "grid": {"setting": by_grid.label, "seconds": grid_seconds, "looks": len(seen)},
        "tuner": {"setting": by_tuner.label, "seconds": seconds, "looks": len(tried)},
        "default": {"setting": Setting().label, "seconds": 0.0, "looks": 0},
        "time_share": seconds / grid_seconds,
        "grid_rates": {run.setting.label: run.figures.get("throughput", 0.0) for run in seen},
        "tuner_looks": [[run.setting.label, run.figures.get("throughput", 0.0)] for run in tried],
    }
    return await settled(kept, args)


async def settled(kept: dict[str, Any], args: argparse.Namespace) -> dict[str, Any]:
    """Measure what the grid and the tuner found, and the default, in turn; by how much the first two differ."""
    case = CASES[kept["model"]]
    print(f"{case.title}: both again", flush=True)
    named = {setting.label: setting for setting in (SMALL if args.small else case.space).grid()}
    sides = {who: named[kept[who]["setting"]] for who in ("grid", "tuner", "default")}
    made = plan(case, args)
    finals = msgspec.structs.replace(made, look=msgspec.structs.replace(made.look, window=args.final))
    found = await again(finals, list(dict.fromkeys(sides.values())), args.rounds)
    ours, theirs = found[sides["tuner"]], found[sides["grid"]]
    ratios = [one / other - 1 for one, other in zip(ours, theirs, strict=True) if other]
    share = statistics.median(ours) / statistics.median(theirs) - 1
    doubt = 1.96 * statistics.stdev(ratios) / len(ratios) ** 0.5 if len(ratios) > 1 else 1.0
    more = {"difference": share, "differences": ratios, "doubt": doubt, "is_near": share >= -NEAR}
    return {**kept, **{who: {**kept[who], "rates": found[setting]} for who, setting in sides.items()}, **more}


def markdown(found: list[dict[str, Any]], args: argparse.Namespace) -> str:
    """Write it for people."""
    rows = []
    for each in found:
        for who in ("grid", "tuner", "default"):
            kept = each[who]
            spent = [str(kept["looks"]), f"{kept['seconds']:.0f}"] if kept["looks"] else ["", ""]
            rows.append([each["title"], who, kept["setting"], spread(kept["rates"]), *spent])
    lines = [
        f"- {each['title']}: what the tuner recommends differs by {100 * each['difference']:+.1f} % from the grid's "
        f"best (round by round {100 * statistics.fmean(each['differences']):+.1f} % on average, give or take "
        f"{100 * each['doubt']:.1f} %), found in {100 * each['time_share']:.0f} % of its time."
        for each in found
    ]
    head = (
        f"Closed loop of 64 requests, of 16 images; looks of {args.grid_look or args.window:g} s in the grid; "
        f"answers per second are medians (and the range) of {args.rounds} further looks of {args.final:g} s "
        "at each, in turn."
    )
    columns = ["model", "found by", "setting", "answers/s", "looks", "seconds"]
    return "\n".join([about("`python -m benchmarks.tune_grid`"), head, "", table(columns, rows), *lines, ""])


def keep(found: list[dict[str, Any]], args: argparse.Namespace) -> str:
    """Write what there is."""
    text = markdown(found, args)
    name = "-".join(["tune", *(["small"] if args.small else []), *(args.models if args.models != list(CASES) else [])])
    write(name, text, json.dumps(found, indent=1))
    draw(name, found)
    return text


def draw(name: str, found: list[dict[str, Any]]) -> None:
    """Draw every setting of each grid, the best first, and what the tuner looked at, if matplotlib is there."""
    if find_spec("matplotlib") is None:
        return
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, every = pyplot.subplots(1, len(found), figsize=(4.5 * len(found), 4), squeeze=False)
    for axes, each in zip(every[0], found, strict=True):
        ranked = sorted(each["grid_rates"], key=each["grid_rates"].get, reverse=True)
        axes.bar(range(len(ranked)), [each["grid_rates"][label] for label in ranked], color="#cbd5e0", label="grid")
        seen = [(ranked.index(label), rate) for label, rate in each["tuner_looks"] if label in ranked]
        axes.scatter(*zip(*seen, strict=True), s=14, color="#2b6cb0", label="the tuner's looks")
        place = ranked.index(each["tuner"]["setting"])
        axes.scatter([place], [statistics.median(each["tuner"]["rates"])], s=70, color="#dd6b20", label="its choice")
        axes.set_title(each["title"], fontsize=9)
        axes.set_xlabel("settings, the best of the grid first")
        axes.spines[["top", "right"]].set_visible(False)
    every[0][0].set_ylabel("answers per second")
    every[0][0].legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(OUT / f"{name}.png", dpi=120)


def main() -> None:
    """Run the models and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--models", default=",".join(CASES), help="%(default)s")
    parser.add_argument("--window", type=float, default=4.0, help="s of a look of the tuner, and of the grid")
    parser.add_argument("--grid-look", type=float, metavar="S", help="s of a look of the grid, where it is another")
    parser.add_argument("--warmup", type=float, default=0.3)
    parser.add_argument("--rounds", type=int, default=5, help="further looks at what both found")
    parser.add_argument("--final", type=float, default=2.0, help="s of each of these")
    parser.add_argument("--small", action="store_true", help="a small grid, to try the script")
    parser.add_argument("--again", type=Path, metavar="JSON", help="measure what an earlier run found once more")
    args = parser.parse_args()
    args.models = args.models.split(",")
    if unknown := set(args.models) - set(CASES):
        parser.error(f"--models are {', '.join(CASES)}; got {', '.join(sorted(unknown))}")
    found: list[dict[str, Any]] = []
    earlier = {each["model"]: each for each in json.loads(args.again.read_text())} if args.again else {}
    args.models = list(earlier) or args.models
    for name in args.models:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            found.append(runner.run(settled(earlier[name], args) if earlier else compare(name, args)))
        text = keep(found, args)
    print("\n" + text)


if __name__ == "__main__":
    main()

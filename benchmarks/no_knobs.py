"""No knobs: the default batching rule on the real server against every fixed (batch size, delay) of a grid.

    python -m benchmarks.no_knobs                        an artificial GPU and an MLP, about 12 minutes each
    python -m benchmarks.no_knobs --cases sleep --quick  fewer settings and loads, below 4 minutes
    python -m benchmarks.no_knobs --cases photos         ResNet-50 from JPEGs, on a machine with a GPU
    python -m benchmarks.no_knobs --model model.py --body photo.jpg

One server holds several copies of the model for each setting; only the one that is looked at has any work. For each
load every setting gets a short look; the best for throughput and for p99 are then measured in turn with the default,
each round with the next copy: equal workers may differ by more than the settings do. By how much is said as noise.
A look of the final in which the host gave much of the processors' time to others is taken again once it does so no
more; all such waits together take as long as `--patience` says.
A closed loop counts once each of its clients was answered twice, and is looked at for five such rounds at the least.
The loads are closed loops, and open loops at shares of the capacity, as independent requests (Poisson) and in bursts.
Results go to benchmarks/out/ after every load, so that an interrupted run keeps what it has.
"""

import argparse
import asyncio
import json
import math
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.gpu import photo
from benchmarks.no_knobs_report import ADAPTIVE, Found, Look, keep
from benchmarks.report import OUT
from benchmarks.steal import Calm, Steal
from shoal.tools.bench.crew import Crew
from shoal.tools.bench.plan import Settings, Step
from shoal.tools.bench.runner import Runner
from shoal.tools.bench.target import Target, request_of
from shoal.tools.calls import Site, site_of
from shoal.tools.samples import Sample
from shoal.tools.tune.hosts import Native, served
from shoal.tools.tune.server import serving
from shoal.tools.tune.setting import Setting

HERE = Path(__file__).parent
BURST = 20  # requests at once
FULL_RATES = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95)  # of the capacity
PROBES = (100, 400)  # connections at which the capacity is sought
LEAST_ROUNDS = 3
MOST_RATE = 10.0  # of the capacity: far more than can be answered
COPIES = 2  # of each setting
FOLLOWS = 0.7  # of the offered rate; a setting that answered less in its short look is not tried at higher ones
LOOK_WITHIN = 20.0  # s for a look that should take one or two
SETTLED = 2  # rounds of a closed loop, in which each client is answered once, that pass before a look counts,
ROUNDS_SEEN = 5  # and that it sees at the least
STOLEN = 0.02  # of the processors' time; a look in which the host took more is taken again,
LOOKS = 8  # so often at most; the one in which it took least counts
START_WITHIN = 240.0  # s for all copies to be up
SMALL = bytes(range(64))
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Case:
    """A model and what is sent to it."""

    title: str
    model: Path
    body: Callable[[], bytes] = lambda: SMALL
    type: str = "application/octet-stream"
    parameters: Mapping[str, object] = field(default_factory=dict)


CASES = {
    "sleep": Case("artificial GPU: 5 ms and 0.2 ms a row, stages", HERE / "models_sleep.py"),
    "mlp": Case("MLP 3 x 2048 on the CPU, one thread", HERE / "models_mlp.py"),
    "photos": Case(
        "ResNet-50 from JPEGs, decoded by the GPU",
        HERE / "models_photos.py",
        photo,
        "image/jpeg",
        {"reading": "device"},
    ),
}
DEFAULT_CASES = ("sleep", "mlp")


@dataclass(frozen=True)
class Effort:
    """How much is tried, and how long each look takes, in seconds."""

    sizes: Sequence[int]
    delays: Sequence[float]  # ms
    clients: Sequence[int]
    rates: Sequence[float]
    search: float
    window: float
    warmup: float
    rounds: int
    keep: int  # settings for each of the two figures that reach the final
    copies: int = COPIES

    def long_enough(self, step: Step, most: float) -> "Effort":
        """The same with looks as long as this load asks for, at so many answers a second: its start is not its p99."""
        each = step.concurrency / most if step.kind == "closed" else 0.0
        return replace(self, warmup=max(self.warmup, SETTLED * each), window=max(self.window, ROUNDS_SEEN * each))

    def settings(self) -> dict[str, Setting]:
        """The settings by name: a batch of one has no delay."""
        grid = [(size, delay) for size in self.sizes for delay in (self.delays if size > 1 else (0.0,))]
        fixed = {
            f"{size}/{delay:g}" if size > 1 else "1": Setting(limit=size, delay=delay, workers=1)
            for size, delay in grid
        }
        return {ADAPTIVE: Setting(workers=1), **fixed}


FULL = Effort(
    (1, 4, 8, 16, 32, 64), (1, 5, 20, 50), (1, 2, 5, 10, 50, 100, 500, 1000), FULL_RATES, 0.25, 0.9, 0.15, 4, 2
)
QUICK = Effort((1, 8, 32, 64), (1, 5, 20), (1, 2, 10, 100, 500), (0.3, 0.8, 0.95), 0.2, 0.6, 0.15, 4, 1)


class Copies(Native):
    """One server with copies of the model for each setting."""

    def __init__(self, case: Case, settings: Mapping[str, Setting], count: int) -> None:
        model = {"path": str(case.model.resolve()), "environment": ONE_THREAD, "parameters": dict(case.parameters)}
        super().__init__(ADAPTIVE, {}, model, Setting())
        self._settings = settings
        self._count = count

    def arguments(self, setting: Setting, folder: Path) -> list[str]:
        """Serve all by one settings file, on free ports."""
        ports = {"port": 0, "management_port": 0, "metrics_port": 0}
        models = {
            name_of(label, copy): served(self._model, each)
            for copy in range(self._count)
            for label, each in self._settings.items()
        }
        file = folder / "settings.json"
        file.write_text(json.dumps({**ports, "models": models}))
        return ["serve", "--config", str(file)]


def name_of(label: str, copy: int) -> str:
    """The model's name for a setting."""
    return f"{label.replace('/', '-').replace('.', '_')}-copy{copy}"


class Bench:
    """A server, the load processes, and looks at one setting under one load."""

    def __init__(self, site: Site, crew: Crew, case: Case, processes: int, copies: int, calm: Calm) -> None:
        self._site = site
        self._crew = crew
        self._sample = Sample(case.body(), case.type, "body")
        self._processes = processes
        self.copies = copies
        self._calm = calm

    async def close(self) -> None:
        """End the load processes."""
        await self._crew.__aexit__()

    async def look(self, label: str, step: Step, window: float, warmup: float, number: int) -> Look:
        """Load one setting for so long, the copy whose turn it is; again where the host was busy with others."""
        looks: list[Look] = []
        while not looks or (looks[-1].stolen > STOLEN and len(looks) < LOOKS and await self._calm(STOLEN)):
            steal = Steal()
            look = await self.glance(label, step, window, warmup, number)
            looks.append(replace(look, stolen=steal.share))
        return replace(min(looks, key=lambda look: look.stolen), again=len(looks) - 1)

    async def glance(self, label: str, step: Step, window: float, warmup: float, number: int) -> Look:
        """Look once, whatever the host does."""
        name = name_of(label, number % self.copies)
        request = request_of(Target(self._site, f"/predictions/{name}", name), self._sample)
        settings = Settings(
            window=window, warmup=warmup, most_windows=1, stability=9.0, processes=self._processes, seed=number
        )
        runner = Runner(self._site, [request], settings, lambda *_: None)
        problem = ""
        try:
            async with asyncio.timeout(LOOK_WITHIN):
                await runner.run_with(self._crew, [step])
        except TimeoutError:
            problem = f"no end within {LOOK_WITHIN:g} s"
        problem = problem or runner.findings.problem or ("" if runner.findings.levels else "no answer")
        if problem:  # it counts as the worst there is; what the load processes are at, nobody knows
            print(f"{label} at {step.label}: {problem}", flush=True)
            await self._crew.__aexit__()
            self._crew = await Crew(self._processes).__aenter__()
            return Look(0.0, LOOK_WITHIN, 1, 0.0)
        level = runner.findings.levels[0]
        answered = level.throughput
        if step.rate:  # chance decides how many come in a short look, not the server
            answered = step.rate * min(1.0, level.throughput / max(1.0, level.offered))
        return Look(answered, level.latency.get("p99", LOOK_WITHIN), level.error_count, level.server.mean_rows)


@asynccontextmanager
async def started(case: Case, effort: Effort, processes: int, patience: float = 0.0) -> AsyncIterator[Bench]:
    """Serve all copies."""
    async with serving(Copies(case, effort.settings(), effort.copies), Setting(), START_WITHIN) as at:
        crew = await Crew(processes).__aenter__()
        bench = Bench(site_of(at.inference), crew, case, processes, effort.copies, Calm(patience))
        try:
            yield bench
        finally:
            await bench.close()


async def capacity(bench: Bench, labels: Sequence[str], effort: Effort) -> float:
    """The most answers a second of any fixed setting of the largest batches; the default learns meanwhile."""
    largest = [label for label in labels if label.startswith(f"{max(effort.sizes)}/")][:2]
    found = []
    for count in PROBES:
        step = Step("closed", "capacity", concurrency=count)
        for copy in range(effort.copies):
            await bench.look(ADAPTIVE, step, 1.0, 0.3, copy)
        found += [(await bench.look(label, step, 1.0, 0.3, 0)).throughput for label in largest]
    return max(found)


def loads(effort: Effort, most: float) -> Iterator[Step]:
    """All loads, the closed ones first."""
    for count in effort.clients:
        yield Step("closed", f"{count} client{'s' * (count > 1)}", concurrency=count)
    for share in effort.rates:
        yield Step("poisson", f"{100 * share:.0f} % Poisson", rate=share * most)
    for share in effort.rates:
        yield Step("poisson", f"{100 * share:.0f} % bursts of {BURST}", rate=share * most, burst=BURST)


def finalists(looks: Mapping[str, Look], count: int) -> list[str]:
    """The settings best in either figure."""
    fast = sorted(looks, key=lambda label: -looks[label].throughput)[:count]
    short = sorted(looks, key=lambda label: looks[label].p99)[:count]
    return list(dict.fromkeys([*short, *fast]))


async def measure(bench: Bench, step: Step, labels: Sequence[str], effort: Effort) -> Found:
    """Search the best of these settings for one load, then measure them in turn with the default."""
    searched = {label: await bench.glance(label, step, effort.search, 0.1, 0) for label in labels}
    kept = finalists(searched, effort.keep)
    rounds: dict[str, list[Look]] = {label: [] for label in [ADAPTIVE, *kept]}
    for number in range(effort.rounds):
        order = list(rounds)
        shift = number % len(order)
        for label in [*order[shift:], *order[:shift]]:
            rounds[label].append(await bench.look(label, step, effort.window, effort.warmup, effort.copies + number))
    return Found(step.label, searched, rounds, effort.copies)


async def compare(name: str, case: Case, effort: Effort, args: argparse.Namespace) -> None:
    """Run one case; what is found is kept after every load."""
    settings = effort.settings()
    found: list[Found] = []
    began = time.monotonic()
    async with started(case, effort, args.processes, args.patience) as bench:
        most = await capacity(bench, list(settings), effort)
        steps = list(loads(effort, most))
        print(f"{case.title}: {most:.0f} answers/s, {len(settings) - 1} settings, {len(steps)} loads", flush=True)
        fixed = [label for label in settings if label != ADAPTIVE]
        labels: dict[int, list[str]] = {}  # by burst: those that could follow so far, for rates rise
        for step in steps:
            known = fixed if step.kind == "closed" else labels.get(step.burst, fixed)
            found.append(await measure(bench, step, known, effort.long_enough(step, most)))
            if step.kind != "closed":
                looks = found[-1].searched
                could = [label for label in known if looks[label].throughput >= FOLLOWS * step.rate]
                labels[step.burst] = could or known
            print(f"{time.monotonic() - began:5.0f} s  {found[-1].line}", flush=True)
            keep(name, case.title, found, most, effort.rounds, " ".join(sys.argv[1:]))


def cases_of(args: argparse.Namespace) -> dict[str, Case]:
    """The cases that are wanted."""
    if not args.model:
        return {name: CASES[name] for name in args.cases}
    case = Case(args.model.name, args.model, type=args.type)
    return {args.model.stem: replace(case, body=args.body.read_bytes) if args.body else case}


def effort_of(args: argparse.Namespace) -> Effort:
    """How much is tried: the default, or what was said instead."""
    base = QUICK if args.quick else FULL
    copies = args.copies or base.copies
    rounds = max(LEAST_ROUNDS, args.rounds or base.rounds)
    return Effort(
        args.sizes or base.sizes,
        args.delays or base.delays,
        base.clients if args.clients is None else args.clients,
        base.rates if args.rates is None else args.rates,
        base.search,
        args.window or base.window,
        base.warmup,
        copies * math.ceil(rounds / copies),
        base.keep,
        copies,
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer settings and loads")
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=DEFAULT_CASES)
    parser.add_argument("--model", type=Path, help="a model of your own instead")
    parser.add_argument("--body", type=Path, help="the file that is sent to it")
    parser.add_argument("--type", default="application/octet-stream", help="its content type")
    parser.add_argument("--sizes", type=int, nargs="+", help="batch sizes")
    parser.add_argument("--delays", type=float, nargs="+", help="delays, ms")
    parser.add_argument("--clients", type=int, nargs="*", help="closed loops")
    parser.add_argument("--rates", type=float, nargs="*", help="open loops, shares of the capacity: 0.5 for half")
    parser.add_argument("--rounds", type=int, help="looks at each finalist, at least 3, as many at each copy")
    parser.add_argument("--copies", type=int, help="of each setting, looked at in turn")
    parser.add_argument("--window", type=float, help="s of a look in the final, at the least")
    parser.add_argument("--processes", type=int, default=max(1, min(4, (os.cpu_count() or 2) // 4)), help="of the load")
    parser.add_argument("--patience", type=float, default=600.0, help="s to wait in all for a host busy with others")
    args = parser.parse_args()
    if any(not 0 < rate <= MOST_RATE for rate in args.rates or ()):
        parser.error(f"--rates are shares of the capacity, above 0 and up to {MOST_RATE}: 0.5 for half of it")
    effort = effort_of(args)
    for name, case in cases_of(args).items():
        try:
            asyncio.run(compare(name, case, effort, args))
        except KeyboardInterrupt:
            raise SystemExit("interrupted; what was measured is in benchmarks/out") from None
        print("\n" + (OUT / f"no-knobs-{name}.md").read_text(), flush=True)


if __name__ == "__main__":
    main()

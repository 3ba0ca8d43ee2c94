"""The loss that a fixed batch size and delay bring at few clients, and the default that does not have it, in one run.

The story: at 10 concurrent clients a batch size of 8 with a delay of 50 ms is slower than no batching at all, because
what does not fill a batch waits for the delay. Each setting is a server of its own, measured in turn, every round.

    python -m benchmarks.knobs
"""

import argparse
import json
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.load import Figures, closed_loop
from benchmarks.report import machine, plot_bars, table, write
from benchmarks.serving import shoal

SETTINGS = {
    "batch_size 1": "{batch_size = 1}",
    "batch_size 8, max_batch_delay 50 ms": "{batch_size = 8, max_batch_delay = 50}",
    "batch_size 16, max_batch_delay 50 ms": "{batch_size = 16, max_batch_delay = 50}",
    "default (adaptive)": '{policy = "adaptive"}',
}
HERE = Path(__file__).parent


@dataclass(frozen=True)
class Case:
    """A model and the load for it."""

    title: str
    model: Path
    workers: int
    body: bytes


def cases() -> dict[str, Case]:
    """One model that gains nothing from batches on a CPU, two workers; one that gains much, one worker."""
    demo = HERE.parent / "src" / "shoal"
    photo = (demo / "frontend" / "pages" / "samples" / "bee.jpg").read_bytes()
    return {
        "bees": Case("EfficientNet-Lite0 on JPEGs, 2 workers", demo / "demo" / "bees.py", 2, photo),
        "mlp": Case("MLP 3 x 2048, 1 worker", HERE / "models_mlp.py", 1, bytes(range(64))),
    }


def settings(case: Case, batching: str) -> str:
    """The model's, in TOML."""
    return (
        f'path = "{case.model}"\nworkers = {case.workers}\nbatching = {batching}\n'
        'environment = {OMP_NUM_THREADS = "1", OPENBLAS_NUM_THREADS = "1"}\n'
    )


def measure(case: Case, clients: list[int], rounds: int, seconds: float) -> dict[tuple[str, int], tuple[float, float]]:
    """Give requests per second and p99 (ms) by setting and number of clients: medians of the rounds."""
    runs: dict[tuple[str, int], list[Figures]] = {}
    for number in range(rounds):
        for name, batching in SETTINGS.items():
            with shoal(settings(case, batching)) as address:
                address.wait_for(["model"])
                for count in clients:
                    got = closed_loop(address.port, "/predictions/model", case.body, count, seconds=seconds)
                    runs.setdefault((name, count), []).append(got)
                    print(
                        f"round {number + 1}: {name} at {count}: {got.rps:.0f}/s, p99 {got.p99_ms:.1f} ms", flush=True
                    )
    return {
        key: (statistics.median(run.rps for run in found), statistics.median(run.p99_ms for run in found))
        for key, found in runs.items()
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 10, 50, 100])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--cases", nargs="+", default=list(cases()))
    args = parser.parse_args()
    clients = args.concurrency
    text = f"{args.rounds} rounds of {args.seconds:g} s interleaved, medians; requests per second (p99 ms).\n"
    text += f"{machine()}; {time.strftime('%Y-%m-%d')}; `python -m benchmarks.knobs`\n"
    data = []
    for key in args.cases:
        case = cases()[key]
        got = measure(case, clients, args.rounds, args.seconds)
        rows = [[name, *(f"{got[name, c][0]:,.0f} ({got[name, c][1]:.1f})" for c in clients)] for name in SETTINGS]
        text += f"\n{case.title}\n\n" + table(["setting", *(f"{count} clients" for count in clients)], rows)
        data += [{"case": key, "setting": n, "clients": c, "rps": r, "p99_ms": p} for (n, c), (r, p) in got.items()]
        plot_bars(f"knobs-{key}", {name: [got[name, c][0] for c in clients] for name in SETTINGS}, clients)
    write("knobs", text, json.dumps(data, indent=1))
    print("\n" + text)


if __name__ == "__main__":
    main()

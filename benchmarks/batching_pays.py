"""Models whose cost per item falls with the batch on a CPU: no setting at all beside fixed batch sizes and delays.

    python -m benchmarks.batching_pays                    # both models, 5 minutes
    python -m benchmarks.batching_pays --models mlp --rounds 1
    python -m benchmarks.batching_pays --plot benchmarks/out/batching-pays.json

A wide MLP saves the reading of its weights; scikit-learn's forest of 100 trees saves calls (6 to 8 ms for one row or
for 32). The forest needs scikit-learn, which Shoal does not: it is left out where it cannot be imported. One worker,
one thread; all settings are models of one server, loaded in turn, every round.
"""

import argparse
import json
import statistics
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.curves import Panel, draw
from benchmarks.load import closed_loop
from benchmarks.report import machine, table, write
from benchmarks.serving import ROOT, serving

DEFAULT = "default"
SETTINGS = {
    "batch 1": "{batch_size = 1}",
    "batch 8, 50 ms": "{batch_size = 8, max_batch_delay = 50}",
    "batch 16, 50 ms": "{batch_size = 16, max_batch_delay = 50}",
    "batch 32, 5 ms": "{batch_size = 32, max_batch_delay = 5}",
    "batch 64, 5 ms": "{batch_size = 64, max_batch_delay = 5}",
    DEFAULT: '{policy = "adaptive"}',
}
MODELS = {"mlp": "MLP 3 x 2048, NumPy", "forest": "RandomForest of 100 trees on digits, scikit-learn"}
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
Rows = list[dict[str, Any]]


def measure(model: str, asked: argparse.Namespace, rows: Rows) -> None:
    """Load every setting at every level, round after round."""
    path = f'path = "{ROOT}/benchmarks/models_{model}.py"\n'
    names = {f"m{place}": name for place, name in enumerate(SETTINGS)}
    body = bytes(range(64))
    models = {key: f"{path}batching = {SETTINGS[name]}" for key, name in names.items()}
    with serving(models, environment=ONE_THREAD) as address:
        address.wait_for(models)
        for number in range(asked.rounds):
            for connections in asked.connections:
                for key, name in names.items():
                    got = closed_loop(
                        address.port, f"/predictions/{key}", body, connections, seconds=asked.seconds, warm=asked.warm
                    )
                    rows.append({"model": model, "setting": name, "connections": connections, "rate": got.rps,
                                 "p50": got.p50_ms, "p99": got.p99_ms, "errors": got.errors})  # fmt: skip
                    print(
                        f"{model}, round {number + 1}, {connections} connections, {name}: {got.rps:,.0f}/s, "
                        f"p99 {got.p99_ms:.1f} ms, errors {got.errors}",
                        flush=True,
                    )


def rates(rows: Rows, model: str) -> dict[tuple[str, int], tuple[float, float, float, float]]:
    """Median requests a second, the least and the most, and p99, by setting and connections."""
    groups: dict[tuple[str, int], Rows] = {}
    for row in rows:
        if row["model"] == model:
            groups.setdefault((row["setting"], row["connections"]), []).append(row)
    return {
        key: (
            statistics.median(row["rate"] for row in own),
            min(row["rate"] for row in own),
            max(row["rate"] for row in own),
            statistics.median(row["p99"] for row in own),
        )
        for key, own in groups.items()
    }


def cell(found: tuple[float, float, float, float] | None) -> str:
    """One figure with its spread."""
    if found is None:
        return "-"
    rate, low, high, tail = found
    return f"{rate:,.0f}, {low:,.0f} to {high:,.0f} ({tail:.1f})"


def report(data: dict[str, Any]) -> str:
    """What was measured, in Markdown."""
    text = f"{data['machine']}; {data['date']}; `{data['command']}`; medians of interleaved rounds\n"
    for model, title in MODELS.items():
        if not (found := rates(data["rows"], model)):
            continue
        levels = sorted({connections for _, connections in found})
        cells = [[name, *(cell(found.get((name, level))) for level in levels)] for name in SETTINGS]
        ratios = []
        for level in levels:
            fixed = [pair[0] for (name, c), pair in found.items() if c == level and name != DEFAULT]
            own = found.get((DEFAULT, level))
            ratios.append(f"{own[0] / max(fixed):.2f}" if own and fixed and max(fixed) else "-")
        cells.append(["default, of the best fixed", *ratios])
        errors = sum(row["errors"] for row in data["rows"] if row["model"] == model)
        text += f"\n{title}, one worker; requests/s with their range (p99 ms), {errors} errors\n\n"
        text += table(["setting", *(f"{level} connections" for level in levels)], cells)
    return text


def curves(data: dict[str, Any]) -> None:
    """Requests a second by connections."""
    panels = []
    for model, title in MODELS.items():
        series: dict[str, list[tuple[float, float]]] = {}
        for (name, connections), (rate, *_) in rates(data["rows"], model).items():
            series.setdefault(name, []).append((connections, rate))
        if series:
            panels.append(Panel(title, "connections", "requests/s", series))
    if panels:
        draw("batching-pays", panels)


def main() -> None:
    """Measure and write it down, after every model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="mlp,forest")
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 10, 50, 100, 256])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--warm", type=float, default=0.4)
    parser.add_argument("--plot", type=Path, metavar="JSON", help="draw what was measured before, and nothing else")
    asked = parser.parse_args()
    if asked.plot:
        curves(json.loads(asked.plot.read_text()))
        return
    command = " ".join(["python -m benchmarks.batching_pays", *sys.argv[1:]])
    data: dict[str, Any] = {"machine": machine(), "date": time.strftime("%Y-%m-%d"), "command": command, "rows": []}
    code = 0
    try:
        for model in asked.models.split(","):
            if model == "forest" and find_spec("sklearn") is None:
                print("the forest is left out: scikit-learn is not installed; pip install scikit-learn", flush=True)
                continue
            try:
                measure(model, asked, data["rows"])
            except RuntimeError as error:
                code = 1
                print(f"{model} is left out: {error}", flush=True)
    except KeyboardInterrupt:
        code = 130
        print("interrupted; what was measured is kept", flush=True)
    text = report(data)
    write("batching-pays", text, json.dumps(data, indent=1))
    curves(data)
    print("\n" + text)
    sys.exit(code)


if __name__ == "__main__":
    main()

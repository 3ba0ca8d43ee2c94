"""Text recognition in a Triton model repository: no batching, dynamic batching, and two instances of that.

What `python -m benchmarks.seeds 003` runs: the network of benchmarks/models_text.py as TorchScript, one model for each
configuration, all of one `shoal tritonserver` that is up from beginning to end. `shoal bench` sends requests of two
rows over v2, tensors as bytes; the server says of each answer how long it waited and in how large a batch it ran.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.curves import Panel
from benchmarks.gpu import hardware
from benchmarks.report import ours, spread, table, write
from benchmarks.serving import ROOT, bench, free_port, say, started

ROWS, MOST = 2, 8  # of a request, and of a batch
CONFIGURATIONS = {  # by the model's name: what the tables call it, instances, and its scheduler
    "none": ("no batching, one instance", 1, ""),
    "dynamic": ("dynamic batching", 1, "dynamic_batching { }"),
    "instances": ("dynamic batching, two instances", 2, "dynamic_batching { }"),
}
STAGES = ("preprocess", "inference", "postprocess")
TIMES = ("p50", "p95", "p99", "queue", "compute")
Row = dict[str, Any]


def run(asked: argparse.Namespace, name: str, command: str) -> bool:
    """Measure and write down what was found after every figure; whether nobody stopped it."""
    is_gpu = asked.device == "cuda"
    data: dict[str, Any] = {
        "machine": hardware(),
        "versions": ours(),
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "command": command,
        "seed": "003",
        "device": asked.device,
        "channels": 512 if is_gpu else 128,
        "rows": [],
    }

    def keep(row: Row) -> None:
        data["rows"].append(row)
        write(name, report(data), json.dumps(data, indent=1))

    with tempfile.TemporaryDirectory(prefix="shoal-benchmark-") as folder:
        try:
            make_repository(Path(folder) / "models", asked.device, data["channels"])
            measure(asked, Path(folder), keep)
        except KeyboardInterrupt:
            print("interrupted; what was measured is kept", flush=True)
            return False
    return True


def make_repository(folder: Path, device: str, channels: int) -> None:
    """Write a model for each configuration, all with the same file."""
    print(f"writing the network, {channels} channels", flush=True)
    folder.mkdir()
    file = folder.with_name("model.pt")
    command = [sys.executable, "-m", "benchmarks.models_text", str(file), "--channels", str(channels)]
    subprocess.run(command, cwd=ROOT, check=True, stdin=subprocess.DEVNULL)
    for name, (_, instances, scheduler) in CONFIGURATIONS.items():
        home = folder / name / "1"
        home.mkdir(parents=True)
        os.link(file, home / "model.pt")
        (home.parent / "config.pbtxt").write_text(config_of(name, device, instances, scheduler))


def config_of(name: str, device: str, instances: int, scheduler: str) -> str:
    """The model's configuration; every number of rows that a batch can have is run before the model is ready."""
    picture = "data_type: TYPE_FP32 dims: [ 1, 32, 100 ]"
    warmup = [
        f'model_warmup {{ name: "{rows} rows" batch_size: {rows} count: 5 '
        f'inputs {{ key: "INPUT__0" value {{ {picture} random_data: true }} }} }}'
        for rows in range(ROWS, MOST + 1, ROWS)
    ]
    lines = [
        f'name: "{name}"',
        'backend: "pytorch"',
        f"max_batch_size: {MOST}",
        f'input {{ name: "INPUT__0" {picture} }}',
        'output { name: "OUTPUT__0" data_type: TYPE_FP32 dims: [ 26, 37 ] }',
        f"instance_group {{ count: {instances} kind: KIND_{'GPU' if device == 'cuda' else 'CPU'} }}",
        *warmup,
        scheduler,
    ]
    return "\n".join(lines) + "\n"


def measure(asked: argparse.Namespace, folder: Path, keep: Callable[[Row], None]) -> None:
    """Load the configurations in turn, round after round; `keep` hears of each figure."""
    is_gpu = asked.device == "cuda"
    port = free_port()
    command = [sys.executable, "-m", "shoal", "tritonserver", f"--model-repository={folder / 'models'}"]
    command += [f"--http-port={port}", "--allow-grpc=false", "--allow-metrics=false"]
    shape: dict[str, Any] = {"windows": 3, "processes": asked.processes or (2 if is_gpu else 1)}
    shape |= {"window": asked.window or "500ms", "warmup": asked.warmup or ("300ms" if is_gpu else "500ms")}
    sent = ["--tensors", "binary", "--shape", f"INPUT__0={ROWS},1,32,100"]
    levels = asked.connections or ("2:16:2" if is_gpu else "2,8")
    print("starting the server", flush=True)
    with started(command, port, "/v2/health/ready", folder / "log"):
        for number in range(asked.rounds):
            for model, (title, *_) in CONFIGURATIONS.items():
                try:
                    found = bench(f"http://127.0.0.1:{port}/v2/models/{model}/infer", sent, levels, **shape)
                except RuntimeError as error:
                    print(f"round {number + 1}, {title} is left out: {error}", flush=True)
                    continue
                for level in found:
                    if not level["answered"]:
                        print(
                            f"round {number + 1}, {title}, {level['label']}: no answer, {level['errors']}", flush=True
                        )
                        continue
                    print(f"round {number + 1}, {title}, {say(level)}", flush=True)
                    keep({"title": title, "round": number + 1, **row_of(level)})


def row_of(level: dict[str, Any]) -> Row:
    """What is kept of a level: rows a second, times in milliseconds."""
    latency, server = level["latency"], level["server"]
    return {
        "clients": level["concurrency"],
        "rate": ROWS * level["throughput"],
        **{name: 1e3 * latency.get(name, 0.0) for name in ("p50", "p95", "p99")},
        "batch": server["mean_rows"],
        "queue": 1e3 * server["p50"].get("queue", 0.0),
        "compute": 1e3 * sum(server["p50"].get(stage, 0.0) for stage in STAGES),
        "errors": sum(level["errors"].values()),
    }


def groups_of(rows: list[Row]) -> dict[str, dict[int, list[Row]]]:
    """The rounds of each number of clients, by configuration."""
    groups: dict[str, dict[int, list[Row]]] = {}
    for row in rows:
        groups.setdefault(row["title"], {}).setdefault(row["clients"], []).append(row)
    return groups


def median(rows: list[Row], name: str) -> float:
    """The middle of the rounds."""
    return float(statistics.median(row[name] for row in rows))


def report(data: dict[str, Any]) -> str:
    """A table for each configuration, and what batching is worth."""
    groups = groups_of(data["rows"])
    rounds = max(row["round"] for row in data["rows"])
    text = (
        f"{data['machine']}; {data['versions']}; {data['date']}; `{data['command']}`; medians of {rounds} interleaved "
        f"rounds, with the range of rows/s\n\nText recognition, {data['channels']} channels, TorchScript, single "
        f"precision; {ROWS} rows a request, at most {MOST} a batch; queue and compute are the server's medians\n"
    )
    head = ("clients", "rows/s", "p50 ms", "p95 ms", "p99 ms", "rows a batch", "queue ms", "compute ms", "errors")
    for title, levels in groups.items():
        lines = []
        for clients, own in levels.items():
            p50, p95, p99, queue, compute = (f"{median(own, name):.2f}" for name in TIMES)
            errors = str(sum(row["errors"] for row in own))
            rate, batch = spread([row["rate"] for row in own]), f"{median(own, 'batch'):.1f}"
            lines.append([str(clients), rate, p50, p95, p99, batch, queue, compute, errors])
        text += f"\n### {title}\n\n{table(head, lines)}"
    return text + worth(groups)


def worth(groups: dict[str, dict[int, list[Row]]]) -> str:
    """The sentences below the tables: each configuration beside the first, at the most clients."""
    first, *others = groups
    said = ""
    for title in others:
        if both := groups[first].keys() & groups[title].keys():
            most = max(both)
            before, after = groups[first][most], groups[title][most]
            rate, tail = (median(after, name) / median(before, name) for name in ("rate", "p95"))
            said += f"\n{most} clients, {title}: {rate:.2f} times the rows/s of {first}, {tail:.2f} times its p95.\n"
    return said


def panels(data: dict[str, Any]) -> list[Panel]:
    """Rows a second and p95 by clients."""
    groups = groups_of(data["rows"])

    def series(name: str) -> dict[str, list[tuple[float, float]]]:
        return {
            title: [(clients, median(own, name)) for clients, own in levels.items()] for title, levels in groups.items()
        }

    return [
        Panel("throughput, two rows a request", "clients", "rows/s", series("rate")),
        Panel("p95", "clients", "ms", series("p95")),
    ]

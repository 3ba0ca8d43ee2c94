"""JPEG in, label out on a CPU: Shoal beside the same code without a server, then beside the other servers.

    python -m benchmarks.image                      # everything, about 12 minutes; once with --install
    python -m benchmarks.image --peers ''           # Shoal and the bare pipeline alone, about 5 minutes
    python -m benchmarks.image --plot benchmarks/out/image.json

Two models, each with one worker and one thread for the network: a ResNet-18 as TorchScript with random weights (the
`resnet18` of benchmarks/peers, served as a plain function) and the demo's EfficientNet-Lite0 (a handler with stages).
Every round measures the bare pipeline (decode, batch and model in one process that does nothing else, at its best
batch size; also with a second thread that decodes ahead), then Shoal at saturation, then single requests and bare
calls in turn. All of it has the whole machine: server, network stack and load share the cores that the bare process
has to itself. Load by `shoal bench` there, and by `wrk` where other servers take part.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.models_image import PEERS, body_file
from benchmarks.report import OUT, machine, plot_bars, table, write
from benchmarks.serving import ROOT, Address, load, say, shoal

HARNESS = ROOT / "benchmarks" / "peers"
OTHERS = "mosec,litserve,torchserve,mms,bentoml,ray,mlserver,triton,pytriton"
TITLES = {"resnet18": "ResNet-18, TorchScript, random weights", "bees": "EfficientNet-Lite0 of the demo, ONNX"}
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


@contextmanager
def serving(name: str) -> Iterator[Address]:
    """Shoal with one of the models and no setting but the largest batch that the other servers have too."""
    model = f'path = "{ROOT}/src/shoal/demo/bees.py"'
    if name == "resnet18":
        model = (
            f'path = "{HARNESS}/peers/shoal/model.py"\nbatching = {{batch_size = 8, policy = "adaptive"}}\n'
            f'environment = {{PEERS_COMMON = "{HARNESS}/common", PEERS_ASSETS = "{PEERS}/assets", WORKLOAD = "{name}"}}'
        )
    with shoal(model, environment=ONE_THREAD) as address:
        yield address


def alone(name: str, *arguments: str) -> dict[str, Any]:
    """What the bare process measures."""
    command = [sys.executable, "-m", "benchmarks.models_image", name, *arguments]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **ONE_THREAD}, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def one_round(name: str, asked: argparse.Namespace) -> dict[str, Any]:
    """The bare pipeline, Shoal under load, and a lone request, once."""
    bare = alone(name, "rate", "--seconds", str(asked.seconds / 4), "--sizes", asked.sizes)
    best = {threads: max(by_size.values()) for threads, by_size in bare.items()}
    print(f"{name}: bare {best['one']:.1f}/s, decoding ahead {best['two']:.1f}/s", flush=True)
    with serving(name) as address:
        url = f"http://127.0.0.1:{address.port}/predictions/model"
        window = f"{asked.seconds / 2:g}s"
        levels = load(
            url, body_file(name), asked.connections, processes=1, window=window, windows=4, content_type="image/jpeg"
        )
        for level in levels:
            print(f"{name}: Shoal, {say(level)}", flush=True)
        lone = alone(name, "lone", "--port", str(address.port), "--calls", str(asked.calls))
        more, in_rows = (1e3 * lone[key] for key in ("difference_p50", "row_difference_p50"))
        print(f"{name}: a lone request takes {more:.2f} ms more than the bare call, {in_rows:.2f} in rows", flush=True)
    keys = ("concurrency", "throughput", "latency", "errors")
    return {"model": name, "bare": bare, "shoal": [{key: level[key] for key in keys} for level in levels], "lone": lone}


def add_round(data: dict[str, Any], name: str, asked: argparse.Namespace) -> None:
    """Measure a model and keep it."""
    data["rounds"].append(one_round(name, asked))


def peers_round(number: int, asked: argparse.Namespace, results: Path) -> None:
    """Every other server and Shoal, once, by the harness; each with the first of its settings."""
    command = [sys.executable, str(HARNESS / "run_peers.py"), "--workloads", "resnet18", "--out", str(results)]
    command += ["--peers", f"shoal,{asked.peers}", "--concurrency", asked.peer_connections, "--from-round", str(number)]
    command += ["--seconds", str(asked.peer_seconds), "--warm", "1", "--quiet-wait", "0", "--retries", "0"]
    environment = {**os.environ, "PEERS_SHOAL_VENV": sys.prefix, "PEERS_HOME": str(PEERS)}
    subprocess.run(command, check=True, env=environment)


def middle(values: list[float], digits: int = 1) -> str:
    """The median and the range."""
    ordered = sorted(values)
    return f"{statistics.median(ordered):.{digits}f} ({ordered[0]:.{digits}f} to {ordered[-1]:.{digits}f})"


def bare_best(rounds: list[dict[str, Any]], threads: str) -> tuple[str, list[float]]:
    """The batch size with the best median, and its rates."""
    sizes = rounds[0]["bare"][threads]
    best = max(sizes, key=lambda size: statistics.median(one["bare"][threads][size] for one in rounds))
    return best, [one["bare"][threads][best] for one in rounds]


def bare_section(name: str, rounds: list[dict[str, Any]]) -> str:
    """One model's tables."""
    found = {threads: bare_best(rounds, threads) for threads in ("one", "two")}
    rows = [
        [f"bare, one thread, batch of {found['one'][0]}", middle(found["one"][1]), "", "", "", ""],
        [f"bare, a thread decodes ahead, batch of {found['two'][0]}", middle(found["two"][1]), "", "", "", ""],
    ]
    for place, first in enumerate(rounds[0]["shoal"]):
        levels = [one["shoal"][place] for one in rounds]
        rates = [level["throughput"] for level in levels]
        ratios = [f"{statistics.median(rates) / statistics.median(found[t][1]):.3f}" for t in ("one", "two")]
        p50, p99 = ([1e3 * level["latency"][key] for level in levels] for key in ("p50", "p99"))
        rows.append(
            [
                f"Shoal, {first['concurrency']} connections",
                middle(rates),
                *ratios,
                f"{statistics.median(p50):.0f} / {statistics.median(p99):.0f}",
                str(sum(sum(level["errors"].values()) for level in levels)),
            ]
        )
    head = ["", "images/s", "of bare, one thread", "of bare, decoding ahead", "p50 / p99 ms", "errors"]
    lone = [one["lone"] for one in rounds]
    values = {key: [1e3 * one[key] for one in lone] for key in lone[0]}
    return (
        f"\n{TITLES[name]}; one worker, one thread for the network\n\n{table(head, rows)}\n"
        f"A lone request takes {middle(values['server_p50'], 2)} ms, the bare call {middle(values['bare_p50'], 2)} ms, "
        f"measured in turn; the median difference is {middle(values['difference_p50'], 2)} ms. Two processes that only "
        f"hand the body on to the same call take {middle(values['relay_difference_p50'], 2)} ms more than it. "
        f"In rows of ten of each, {middle(values['row_difference_p50'], 2)} and "
        f"{middle(values['row_relay_difference_p50'], 2)} ms, the bare call {middle(values['row_bare_p50'], 2)} ms.\n"
    )


def peers_section(rows: list[dict[str, Any]]) -> str:
    """The other servers' table: the best first."""
    measured = [row for row in rows if "rps" in row]
    levels = sorted({row["concurrency"] for row in measured})
    lines = []
    for title in dict.fromkeys(row["title"] for row in measured):
        cells, best = [], 0.0
        for level in levels:
            own = [row for row in measured if (row["title"], row["concurrency"]) == (title, level)]
            rates = [row["rps"] for row in own]
            best = max(best, statistics.median(rates)) if rates else best
            cells.append(
                f"{middle(rates)}, p99 {statistics.median(row['p99_ms'] for row in own):.0f} ms" if rates else "-"
            )
        errors = sum(row["errors"] for row in measured if row["title"] == title)
        lines.append((best, [title, *cells, str(errors)]))
    failed = dict.fromkeys(row["peer"] for row in rows if "failed" in row)
    text = f"\n{TITLES['resnet18']}: all servers, images/s\n\n"
    text += table(
        ["server", *(f"{level} connections" for level in levels), "errors"],
        [line for _, line in sorted(lines, reverse=True)],
    )
    return text + (f"\nDid not run: {', '.join(failed)}.\n" if failed else "")


def report(data: dict[str, Any], command: str) -> str:
    """All that was measured, in Markdown."""
    text = f"{data['machine']}; {data['date']}; `{command}`; medians, the range in brackets, of interleaved rounds.\n"
    text += "Server, worker and load share the cores; the bare process has all of them and one thread, or two.\n"
    for name in TITLES:
        if rounds := [one for one in data["rounds"] if one["model"] == name]:
            text += bare_section(name, rounds)
    if any("rps" in row for row in data["peers"]):
        text += peers_section(data["peers"])
    return text


def draw(data: dict[str, Any]) -> None:
    """Images a second by server."""
    for name in TITLES:
        if not (rounds := [one for one in data["rounds"] if one["model"] == name]):
            continue
        levels = [level["concurrency"] for level in rounds[0]["shoal"]]
        series = {
            f"bare, {label}": [statistics.median(bare_best(rounds, threads)[1])] * len(levels)
            for threads, label in (("one", "one thread"), ("two", "decoding ahead"))
        }
        series["Shoal"] = [
            statistics.median(one["shoal"][place]["throughput"] for one in rounds) for place in range(len(levels))
        ]
        plot_bars(f"image-{name}", series, levels)
    measured = [row for row in data["peers"] if "rps" in row]
    levels = sorted({row["concurrency"] for row in measured})
    series = {
        title: [
            statistics.median([r["rps"] for r in measured if (r["title"], r["concurrency"]) == (title, level)] or [0])
            for level in levels
        ]
        for title in dict.fromkeys(row["title"] for row in measured)
    }
    if series:
        plot_bars("image-peers", series, levels)


def keep(data: dict[str, Any], results: Path, command: str) -> str:
    """Write what there is so far."""
    if results.exists():
        data["peers"] = [json.loads(line) for line in results.read_text().splitlines() if line.strip()]
    text = report(data, command)
    write("image", text, json.dumps(data, indent=1))
    return text


def main() -> None:
    """Measure and write it down, after every round."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--install", action="store_true", help="install the other servers and make the model first")
    parser.add_argument("--models", default="resnet18,bees")
    parser.add_argument("--peers", default=OTHERS, help="comma-separated; empty: none")
    parser.add_argument("--connections", default="8,32,64")
    parser.add_argument("--peer-connections", default="32")
    parser.add_argument("--peer-seconds", type=int, default=8, help="few batches of 8 are cut off at the end")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer-rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=4.0, help="of a load")
    parser.add_argument("--sizes", default="1,2,4,8", help="batches of the bare pipeline")
    parser.add_argument("--calls", type=int, default=100, help="lone requests of a round")
    parser.add_argument("--plot", type=Path, metavar="JSON", help="draw what was measured before, and nothing else")
    asked = parser.parse_args()
    if asked.plot:
        draw(json.loads(asked.plot.read_text()))
        return
    if asked.install:
        subprocess.run(["bash", str(HARNESS / "install.sh")], check=True)
    if not (PEERS / "assets" / "resnet18.pt").exists():
        sys.exit(f"{PEERS}/assets has no resnet18.pt: run with --install first")
    OUT.mkdir(exist_ok=True)
    command = " ".join(["python -m benchmarks.image", *sys.argv[1:]])
    results = OUT / f"image-{time.strftime('%Y%m%d-%H%M%S')}.jsonl"
    data: dict[str, Any] = {"machine": machine(), "date": time.strftime("%Y-%m-%d"), "rounds": [], "peers": []}
    text = ""
    steps: list[Callable[[], None]] = []
    for number in range(max(asked.rounds, asked.peer_rounds)):
        if number < asked.rounds:
            steps += [partial(add_round, data, name, asked) for name in asked.models.split(",")]
        if asked.peers and number < asked.peer_rounds:
            steps.append(partial(peers_round, number, asked, results))
    is_whole = True
    for step in steps:
        try:
            step()
        except KeyboardInterrupt:
            is_whole = False
            print("interrupted; what was measured is kept", flush=True)
            break
        except (RuntimeError, subprocess.SubprocessError) as error:
            is_whole = False
            print(f"left out: {error}", flush=True)
        text = keep(data, results, command)
    draw(data)
    print("\n" + text)
    sys.exit(not is_whole)


if __name__ == "__main__":
    main()

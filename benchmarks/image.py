"""JPEG in, label out on a CPU: Shoal beside the same code without a server, then beside the other servers.

    python -m benchmarks.image                      # everything, about 14 minutes; once with --install
    python -m benchmarks.image --peers ''           # Shoal and the bare pipeline alone, about 7 minutes
    python -m benchmarks.image --plot benchmarks/out/image.json

Two models, each with one worker and one thread for the network, both handlers that decode in a stage of their own: a
ResNet-18 as TorchScript with random weights (the `resnet18` of benchmarks/peers) and the demo's EfficientNet-Lite0.
Every round measures the bare pipeline (decode, batch and model in one process that does nothing else, at its best
batch size; also with a second thread that decodes ahead), then Shoal at saturation, then single requests and bare
calls in turn; servers and bare processes stay from the first round to the last, and a ratio is one of a round. All of
it has the whole machine: server, network stack and load share the cores that the bare process has to itself. The other
servers come after that, with load by `wrk`.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.load import closed_loop
from benchmarks.models_image import PEERS, STAMPED, body_file
from benchmarks.report import OUT, machine, plot_bars, table, write
from benchmarks.serving import ROOT, Address
from benchmarks.serving import serving as serving_models

HARNESS = ROOT / "benchmarks" / "peers"
OTHERS = "mosec,litserve,torchserve,mms,bentoml,ray,mlserver,triton,pytriton"
TITLES = {"resnet18": "ResNet-18, TorchScript, random weights", "bees": "EfficientNet-Lite0 of the demo, ONNX"}
THREADS = ("one", "two")
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


@contextmanager
def serving(name: str) -> Iterator[Address]:
    """Shoal with one of the models and no setting but the largest batch that the other servers have too.

    The demo's is there a second time, with stamps, for the lone requests.
    """
    models = {"model": f'path = "{ROOT}/src/shoal/demo/bees.py"', "stamped": f'path = "{STAMPED}"'}
    if name == "resnet18":
        text = (
            f'path = "{HARNESS}/peers/shoal/model.py"\nbatching = {{batch_size = 8, policy = "adaptive"}}\n'
            f'environment = {{PEERS_COMMON = "{HARNESS}/common", PEERS_ASSETS = "{PEERS}/assets", WORKLOAD = "{name}"}}'
        )
        models = {"model": text}
    with serving_models(models, environment=ONE_THREAD) as address:
        yield address


@contextmanager
def bare(name: str, seconds: float) -> Iterator[Callable[[str, str], float]]:
    """The bare process, which stays; gives how to ask for its images a second by threads and batch size."""
    command = [sys.executable, "-m", "benchmarks.models_image", name, "rate", "--seconds", str(seconds)]
    environment = {**os.environ, **ONE_THREAD}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdin=pipe, stdout=pipe, text=True, bufsize=1) as process:
        asking, answering = process.stdin, process.stdout
        assert asking and answering

        def rate(threads: str, size: str) -> float:
            print(threads, size, file=asking)
            if not (line := answering.readline()):
                raise RuntimeError(f"the bare process of {name} is gone")
            return float(line)

        yield rate


def loaded(name: str, port: int, connections: int, *, seconds: float, expected: float) -> dict[str, Any]:
    """Shoal at saturation, where so many images a second are expected.

    A window holds few batches of eight, so that the number of answers in it says little; the connections over the mean
    time of a request are the rate, whatever the window cuts off. It begins when the first queue has been answered.
    """
    once = connections / expected
    found = closed_loop(
        port,
        "/predictions/model",
        body_file(name).read_bytes(),
        connections,
        seconds=max(seconds, 2 * once),
        warm=0.5 + once,
        content_type="image/jpeg",
    )
    result = {**asdict(found), "concurrency": connections, "throughput": 1e3 * connections / found.mean_ms}
    print(f"{name}: Shoal, {connections} connections, {result['throughput']:.1f}/s, errors {found.errors}", flush=True)
    return result


def lone(name: str, port: int, calls: int) -> dict[str, float]:
    """What a lone request takes, and the bare call."""
    command = [sys.executable, "-m", "benchmarks.models_image", name, "lone"]
    command += ["--port", str(port), "--calls", str(calls)]
    command += ["--path", "/predictions/stamped"] if name == "bees" else []
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **ONE_THREAD}, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    more, in_rows = (1e3 * found[key] for key in ("difference_p50", "row_difference_p50"))
    print(f"{name}: a lone request takes {more:.2f} ms more than the bare call, {in_rows:.2f} in rows", flush=True)
    if name == "bees":
        more, in_rows = (1e3 * found[key] for key in ("outside_p50", "row_outside_p50"))
        print(f"{name}: outside of the model's methods, {more:.2f} ms and {in_rows:.2f} in rows", flush=True)
    return found


@dataclass(frozen=True)
class Place:
    """A model on a server, and in a process without one."""

    name: str
    port: int
    rate: Callable[[str, str], float]

    def round(self, asked: argparse.Namespace) -> dict[str, Any]:
        """The bare pipeline, Shoal under load, and a lone request, once."""
        rates = {threads: {size: self.rate(threads, size) for size in asked.sizes.split(",")} for threads in THREADS}
        best = {threads: max(by_size.values()) for threads, by_size in rates.items()}
        print(f"{self.name}: bare {best['one']:.1f}/s, decoding ahead {best['two']:.1f}/s", flush=True)
        levels = [
            loaded(self.name, self.port, int(one), seconds=asked.seconds, expected=best["one"])
            for one in asked.connections.split(",")
        ]
        return {"model": self.name, "bare": rates, "shoal": levels, "lone": lone(self.name, self.port, asked.calls)}


@contextmanager
def places(names: Iterable[str], asked: argparse.Namespace) -> Iterator[list[Place]]:
    """Every model, loaded in both, until the end: no two rounds differ by what they started."""
    with ExitStack() as opened:
        yield [
            Place(
                name,
                opened.enter_context(serving(name)).port,
                opened.enter_context(bare(name, asked.seconds / 4)),
            )
            for name in names
        ]


def add_round(data: dict[str, Any], place: Place, asked: argparse.Namespace) -> None:
    """Measure a model and keep it."""
    data["rounds"].append(place.round(asked))


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
    found = {threads: bare_best(rounds, threads) for threads in THREADS}
    rows = [
        [f"bare, one thread, batch of {found['one'][0]}", middle(found["one"][1]), "", "", "", ""],
        [f"bare, a thread decodes ahead, batch of {found['two'][0]}", middle(found["two"][1]), "", "", "", ""],
    ]
    for place, first in enumerate(rounds[0]["shoal"]):
        levels = [one["shoal"][place] for one in rounds]
        rates = [level["throughput"] for level in levels]
        ratios = [middle([a / b for a, b in zip(rates, found[t][1], strict=True)], 2) for t in THREADS]
        p50, p99 = ([level[key] for level in levels] for key in ("p50_ms", "p99_ms"))
        rows.append(
            [
                f"Shoal, {first['concurrency']} connections",
                middle(rates),
                *ratios,
                f"{statistics.median(p50):.0f} / {statistics.median(p99):.0f}",
                str(sum(level["errors"] for level in levels)),
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
        + (outside_line(values) if name == "bees" else "")
    )


def outside_line(values: dict[str, list[float]]) -> str:
    """What servers add, without what two processes need for the same call."""
    own, row, relay, row_relay = (
        middle(values[key], 2)
        for key in ("outside_p50", "row_outside_p50", "relay_outside_p50", "row_relay_outside_p50")
    )
    return (
        f"Outside of the model's own methods, stamped inside them, a request takes {own} ms more than a bare call, and "
        f"{row} ms in rows; the two processes {relay} and {row_relay} ms.\n"
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


def carry_out(steps: Iterable[Callable[[], None]], keeping: Callable[[], str]) -> bool:
    """Take step by step and keep what there is; gives whether nothing is missing."""
    is_whole = True
    for step in steps:
        try:
            step()
        except (RuntimeError, OSError, subprocess.SubprocessError) as error:
            is_whole = False
            print(f"left out: {error}", flush=True)
        keeping()
    return is_whole


def main() -> None:
    """Measure and write it down, after every round."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--install", action="store_true", help="install the other servers and make the model first")
    parser.add_argument("--models", default="resnet18,bees")
    parser.add_argument("--peers", default=OTHERS, help="comma-separated; empty: none")
    parser.add_argument("--connections", default="8,32,64")
    parser.add_argument("--peer-connections", default="32")
    parser.add_argument("--peer-seconds", type=int, default=8, help="few batches of 8 are cut off at the end")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peer-rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=4.0, help="of a load")
    parser.add_argument("--sizes", default="1,2,4,8", help="batches of the bare pipeline")
    parser.add_argument("--calls", type=int, default=60, help="lone requests of a round")
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
    keeping = partial(keep, data, results, command)
    others = [partial(peers_round, number, asked, results) for number in range(asked.peer_rounds if asked.peers else 0)]
    try:
        with places(asked.models.split(","), asked) as opened:
            own = [partial(add_round, data, place, asked) for _ in range(asked.rounds) for place in opened]
            is_whole = carry_out(own, keeping)
        is_whole = carry_out(others, keeping) and is_whole
    except KeyboardInterrupt:
        is_whole = False
        print("interrupted; what was measured is kept", flush=True)
    text = keeping()
    draw(data)
    print("\n" + text)
    sys.exit(not is_whole)


if __name__ == "__main__":
    main()

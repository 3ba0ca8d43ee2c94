"""`shoal bench` beside wrk, ab and perf_analyzer on the same servers, in turn, and how much load it can make itself.

The model that takes 10 ms decides whether they agree, for there nobody is short of a core: eight requests at a time are
served, each for 10 ms. On the echo the load and the server share the cores, so that a cheaper load gets more answers.
What is found is written after every target, so that a run that is cut short loses only the target at hand.

    python -m benchmarks.agreement
    python -m benchmarks.agreement --targets sleep --concurrency 8 --rounds 1
"""

import argparse
import json
import re
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.loaders import LOADERS, Figures, Target, missing, shoal_bench, versions
from benchmarks.report import OUT, about, spread, table, write
from benchmarks.serving import ROOT, logged
from shoal.tools.bench.target import command
from shoal.tools.tune.hosts import Native
from shoal.tools.tune.setting import Setting

NEAR = 0.05  # by which load generators may differ
OURS = "shoal bench"
HTTP, TENSORS = (OURS, "wrk", "ab"), (OURS, "perf_analyzer")
SLOW = "import time\n\n\ndef predict(items):\n    time.sleep(0.01 * len(items))\n    return items\n"
SLOW_TENSORS = """import time

import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        time.sleep(0.01)
        read = [pb.get_input_tensor_by_name(request, "x").as_numpy() for request in requests]
        return [pb.InferenceResponse([pb.Tensor("y", rows)]) for rows in read]
"""
CONFIG = """max_batch_size: 0
input [ {{ name: "x" data_type: TYPE_FP32 dims: [ 16 ] }} ]
output [ {{ name: "{output}" data_type: TYPE_FP32 dims: [ 16 ] }} ]
instance_group [ {{ count: {count} kind: KIND_CPU }} ]
"""


@dataclass(frozen=True)
class Case:
    """Something to load, who loads it and at how many connections."""

    title: str
    serving: Callable[[Path], Any]  # a context manager that gives the Target; it may use an empty folder
    loaders: Sequence[str]
    levels: Sequence[int]
    decides: bool = False  # nobody is short of a core: they have to agree


@contextmanager
def native(model: Path | str, setting: Setting, body: bytes, kind: str, folder: Path) -> Iterator[Target]:
    """Serve a model by `shoal serve`."""
    path, sent = folder / "model.py", folder / "body"
    path.write_text(model if isinstance(model, str) else "")
    sent.write_bytes(body)
    environment = {"OMP_NUM_THREADS": "1"}
    source = str(path if isinstance(model, str) else model)
    host = Native("model", {}, {"path": source, "environment": environment}, setting)
    with logged(command(*host.arguments(setting, folder)), folder / "log", host.address) as served:
        yield Target(served.inference + host.path, sent, kind)


@contextmanager
def tritons(name: str, scheme: str, folder: Path) -> Iterator[Target]:
    """Serve a repository by `shoal tritonserver`."""
    home = folder / "repository" / name
    (home / "1").mkdir(parents=True)
    is_slow = name == "slow"
    backend = 'backend: "python"\n' if is_slow else 'backend: "identity"\n'
    more = CONFIG.format(output="y" if is_slow else "x", count=8 if is_slow else 1)
    (home / "config.pbtxt").write_text(backend + more)
    if is_slow:
        (home / "1" / "model.py").write_text(SLOW_TENSORS)
    ports = ["--http-port=0", "--grpc-port=0", "--allow-metrics=false"]
    words = ["tritonserver", f"--model-repository={folder / 'repository'}", *ports]
    service = "HTTPService" if scheme == "http" else "GRPCInferenceService"
    with logged(command(*words), folder / "log", re.compile(rf"Started {service} at (\S+)").search) as found:
        yield Target(f"{scheme}://{found[1]}", model=name)


def cases(levels: Sequence[int]) -> dict[str, Case]:
    """Give everything there is to load."""
    echo, bees = ROOT / "tests" / "models" / "echo.py", ROOT / "src" / "shoal" / "demo" / "bees.py"
    photo = (ROOT / "src" / "shoal" / "frontend" / "pages" / "samples" / "bee.jpg").read_bytes()
    small, plain = bytes(range(64)), "application/octet-stream"
    eight = Setting(limit=1, delay=0.0, instances=8)
    one = [8] if 8 in levels else levels[:1]
    return {
        "sleep": Case("10 ms, eight at a time", partial(native, SLOW, eight, b"1", plain), HTTP, levels, True),
        "sleep-v2": Case("10 ms, v2 over HTTP", partial(tritons, "slow", "http"), TENSORS, levels, True),
        "sleep-grpc": Case("10 ms, v2 over gRPC", partial(tritons, "slow", "grpc"), TENSORS, levels, True),
        "image": Case("image model", partial(native, bees, Setting(), photo, "image/jpeg"), HTTP, one),
        "echo": Case("echo, 64 bytes", partial(native, echo, Setting(), small, plain), HTTP, levels),
        "identity": Case("identity, v2 over HTTP", partial(tritons, "identity", "http"), TENSORS, one),
        "identity-grpc": Case("identity, v2 over gRPC", partial(tritons, "identity", "grpc"), TENSORS, one),
    }


@dataclass(frozen=True)
class Row:
    """One target at one number of connections: what each load generator said, round by round."""

    target: str
    connections: int
    decides: bool
    found: dict[str, list[Figures]]

    def rates(self, name: str) -> list[float]:
        """Give the answers per second of each round."""
        return [each.rate for each in self.found[name]]

    def ratio(self, other: str) -> float:
        """Ours over another's, each the median of its rounds."""
        return statistics.median(self.rates(OURS)) / statistics.median(self.rates(other))


def measure(name: str, case: Case, rounds: int, seconds: int) -> list[Row]:
    """Load a target with one generator after the other, round after round."""
    there = [each for each in case.loaders if not missing(each)]
    if len(there) < 2:
        print(f"{name}: left out, {'; '.join(missing(each) for each in case.loaders if missing(each))}", flush=True)
        return []
    rows = []
    with tempfile.TemporaryDirectory() as folder, case.serving(Path(folder)) as target:
        LOADERS[OURS](target, max(case.levels), 1)  # warms the server up
        for level in case.levels:
            found = in_turn({each: partial(LOADERS[each], target, level, seconds) for each in there}, rounds)
            rows.append(Row(case.title, level, case.decides, found))
            told = ", ".join(f"{each} {spread(rows[-1].rates(each))}" for each in there)
            print(f"{name} at {level}: {told}", flush=True)
    return rows


def in_turn(loads: Mapping[str, Callable[[], Figures]], rounds: int) -> dict[str, list[Figures]]:
    """Run loads in turn, the order turned about every round."""
    found: dict[str, list[Figures]] = {name: [] for name in loads}
    for number in range(rounds):
        for name in list(loads)[:: 1 if number % 2 else -1]:
            found[name].append(loads[name]())
    return found


def ceiling(rounds: int, seconds: int) -> Row:
    """Load a program that answers the same to anything, at 64 connections."""
    with tempfile.TemporaryDirectory() as folder:
        body, log = Path(folder) / "body", Path(folder) / "log"
        body.write_bytes(bytes(64))
        with logged([sys.executable, "-m", "benchmarks.responder"], log, re.compile("port ([0-9]+)").search) as found:
            target = Target(f"http://127.0.0.1:{found[1]}/predictions/any", body)
            loads = {
                OURS: partial(shoal_bench, target, 64, seconds),
                "shoal bench, 2 processes": partial(shoal_bench, target, 64, seconds, processes=2),
            }
            if not missing("wrk"):
                loads["wrk"] = partial(LOADERS["wrk"], target, 64, seconds)
            row = Row("responder", 64, False, in_turn(loads, rounds))
    print(", ".join(f"{name} {spread(row.rates(name))}" for name in row.found), flush=True)
    return row


def markdown(rows: Sequence[Row], top: Row | None, args: argparse.Namespace) -> str:
    """Write it for people."""
    body = []
    for row in rows:
        for name, each in row.found.items():
            times = [statistics.median(getattr(one, part) for one in each) for part in ("p50", "p99")]
            told = [f"{time:.2f}" if time else "-" for time in times]  # ab knows no p99 of a few dozen answers
            ratio = "" if name == OURS else f"{100 * (row.ratio(name) - 1):+.1f} %"
            body.append([row.target, str(row.connections), name, spread(row.rates(name), 1), *told, ratio])
    text = [
        about("`python -m benchmarks.agreement`") + f"{versions()}.\n",
        f"Closed loops, {args.rounds} rounds of {args.seconds} s in turn; medians, and the lowest and highest. The "
        "last column is `shoal bench` over the other.\n",
        table(["target", "connections", "load", "answers/s", "p50 ms", "p99 ms", "shoal bench"], body),
        verdict(rows),
    ]
    if top is not None:
        said = "; ".join(f"{name}: {spread(top.rates(name))}" for name in top.found)
        text.append(
            f"Requests per second at 64 connections against a program that answers the same to anything: {said}.\n"
        )
    return "\n".join(text)


def verdict(rows: Sequence[Row]) -> str:
    """Say whether they agree where nobody is short of a core."""
    deciding = [(row, name) for row in rows if row.decides for name in row.found if name != OURS]
    if not deciding:
        return ""
    row, name = max(deciding, key=lambda pair: abs(pair[0].ratio(pair[1]) - 1))
    off = row.ratio(name) - 1
    words = "agree" if abs(off) <= NEAR else "do not agree"
    return (
        f"Where the model takes time they {words} within {100 * NEAR:.0f} %: the widest difference is "
        f"{100 * off:+.1f} %, from {name} on {row.target} at {row.connections}.\n"
    )


def keep(rows: Sequence[Row], top: Row | None, args: argparse.Namespace) -> str:
    """Write what there is."""
    text = markdown(rows, top, args)
    data = [msgspec.to_builtins(row) for row in (*rows, *([top] if top else []))]
    write("agreement", text, json.dumps(data, indent=1))
    draw(rows)
    return text


def draw(rows: Sequence[Row]) -> None:
    """Draw ours over each other's, if matplotlib is there."""
    if find_spec("matplotlib") is None:
        return
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    pairs = [(row, name) for row in rows for name in row.found if name != OURS]
    figure, axes = pyplot.subplots(figsize=(8, 1 + 0.3 * len(pairs)))
    for place, (row, name) in enumerate(reversed(pairs)):
        each = [ours / other for ours, other in zip(row.rates(OURS), row.rates(name), strict=True)]
        colour = "#2b6cb0" if row.decides else "#a0aec0"
        axes.plot([min(each), max(each)], [place, place], color=colour)
        axes.scatter([row.ratio(name)], [place], color=colour)
    axes.set_yticks(
        range(len(pairs)), [f"{r.target}, {r.connections}: {name}" for r, name in reversed(pairs)], fontsize=8
    )
    axes.axvspan(1 - NEAR, 1 + NEAR, color="#c6f6d5", zorder=0)
    axes.set_xlabel("answers per second: shoal bench over the other (medians, and the range of the rounds)")
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(OUT / "agreement.png", dpi=120)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--targets", default="", help="as sleep,echo; default: all, and the ceiling")
    parser.add_argument("--concurrency", default="1,8,64")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=3, help="of each load")
    args = parser.parse_args()
    every = cases([int(word) for word in args.concurrency.split(",")])
    wanted = args.targets.split(",") if args.targets else [*every, "ceiling"]
    if unknown := set(wanted) - {*every, "ceiling"}:
        parser.error(f"--targets are {', '.join(every)} and ceiling; got {', '.join(sorted(unknown))}")
    rows: list[Row] = []
    for name in wanted:
        if name != "ceiling":
            rows += measure(name, every[name], args.rounds, args.seconds)
            keep(rows, None, args)
    top = ceiling(args.rounds, args.seconds) if "ceiling" in wanted else None
    print("\n" + keep(rows, top, args))


if __name__ == "__main__":
    main()

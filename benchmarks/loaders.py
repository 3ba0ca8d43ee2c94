"""Load generators under one roof: `shoal bench`, wrk, ab and perf_analyzer, each told the same and asked the same."""

import csv
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks import perf_analyzer

LUA = Path(__file__).parent / "peers" / "post.lua"
WARM = "500ms"


@dataclass(frozen=True)
class Target:
    """A server, and what is sent to it."""

    url: str  # http://HOST:PORT/PATH; grpc://HOST:PORT
    body: Path | None = None  # none: tensors of the model
    content_type: str = "application/octet-stream"
    model: str = ""


@dataclass(frozen=True)
class Figures:
    """What a load generator says."""

    rate: float
    p50: float  # ms
    p99: float


Loader = Callable[[Target, int, int], Figures]  # a target, connections, whole seconds


def shoal_bench(target: Target, connections: int, seconds: int, processes: int = 1) -> Figures:
    """Ours."""
    what = ["--tensors", "binary", "-m", target.model]
    if target.body is not None:
        what = ["-i", str(target.body), "--content-type", target.content_type]
    with tempfile.TemporaryDirectory() as folder:
        look = ["--window", f"{seconds}s", "--warmup", WARM, "--max-windows", "1", "--stability", "99%"]
        more = ["-c", str(connections), "--processes", str(processes), "-o", f"{folder}/r"]
        _run([sys.executable, "-m", "shoal", "bench", target.url, *what, *look, *more], seconds)
        level = json.loads(Path(folder, "r.json").read_text())["levels"][0]
    if level["errors"]:
        raise RuntimeError(f"{target.url}: {level['errors']}")
    return Figures(level["throughput"], 1000 * level["latency"]["p50"], 1000 * level["latency"]["p99"])


def wrk(target: Target, connections: int, seconds: int) -> Figures:
    """The usual yardstick, one thread."""
    words = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "20s", "--latency", "-s", str(LUA)]
    said = {"BODY_FILE": str(target.body), "HEADERS": f"Content-Type: {target.content_type}"}
    text = _run([*words, target.url], seconds, said)
    found = json.loads(next(line for line in text.splitlines() if line.startswith("RESULT "))[7:])
    if any(found[name] for name in ("bad_status", "connect", "read", "write", "timeout")):
        raise RuntimeError(f"wrk: {found}")
    return Figures(found["requests"] / found["seconds"], found["p50_ms"], found["p99_ms"])


def ab(target: Target, connections: int, seconds: int) -> Figures:
    """Keep-alive, HTTP/1.0."""
    with tempfile.TemporaryDirectory() as folder:
        shares = Path(folder) / "shares.csv"
        words = ["ab", "-q", "-k", "-l", "-t", str(seconds), "-n", "10000000", "-c", str(connections), "-s", "20"]
        words += ["-p", str(target.body), "-T", target.content_type, "-e", str(shares), target.url]
        text = _run(words, seconds)
        rows = {row[0]: float(row[1]) for row in list(csv.reader(shares.read_text().splitlines()))[1:]}
    rate = re.search(r"Requests per second: +([\d.]+)", text)
    failed = re.search(r"Non-2xx responses: +(\d+)", text) or re.search(r"Failed requests: +([1-9]\d*)", text)
    if rate is None or failed is not None:
        raise RuntimeError(text)
    return Figures(float(rate[1]), rows["50"], rows["99"])


def perf(target: Target, connections: int, seconds: int) -> Figures:
    """Triton's own; it wants three windows, which make up nearly twice the time."""
    scheme, _, rest = target.url.partition("://")
    words = ["-m", target.model, "-u", rest.partition("/")[0], "-i", "grpc" if scheme == "grpc" else "http"]
    look = ["-p", str(600 * seconds), "-s", "999", "-r", "3", "--percentile=99"]
    done = perf_analyzer.run([*words, *look, "--concurrency-range", str(connections)], timeout=60 + 10 * seconds)
    levels = perf_analyzer.levels(done.stdout)
    if done.returncode or not levels:
        raise RuntimeError((done.stdout + done.stderr)[-2000:])
    values = levels[0].values
    return Figures(values["throughput"], values["p50"] / 1000, values["p99"] / 1000)


def missing(name: str) -> str:
    """Why a load generator cannot be used here; empty if it can."""
    if name == "perf_analyzer":
        return perf_analyzer.missing()
    return "" if name == "shoal bench" or shutil.which(name) else f"{name} is not installed"


def versions() -> str:
    """Name the load generators that are here."""
    found = []
    for name, flag in (("wrk", "-v"), ("ab", "-V")):
        if not missing(name):
            done = subprocess.run([name, flag], capture_output=True, text=True, check=False)
            number = re.search(r"\d+\.\d[\w.-]*", done.stdout + done.stderr)
            found.append(f"{name} {number[0] if number else 'of unknown version'}")
    if not missing("perf_analyzer"):
        found.append(f"perf_analyzer {perf_analyzer.RELEASE}")
    return ", ".join(found)


LOADERS: dict[str, Loader] = {"shoal bench": shoal_bench, "wrk": wrk, "ab": ab, "perf_analyzer": perf}


def _run(words: list[str], seconds: float, more: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        words, env={**os.environ, **(more or {})}, capture_output=True, text=True, timeout=60 + 5 * seconds, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{words[0]} ended with {done.returncode}: {(done.stdout + done.stderr)[-2000:]}")
    return done.stdout

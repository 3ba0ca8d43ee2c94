"""perf_analyzer, Triton's own load generator, as the tritonclient 2.51.0 wheel carries it: fetched once, and run."""

import ctypes.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

RELEASE = "2.51.0"
CUDA = "nvidia-cuda-runtime-cu12==12.9.79"  # it links against this library, with or without a GPU
PEERS = Path(os.environ.get("PEERS_HOME") or Path.home() / ".cache/peers")
LOAD = re.compile(r"^(?:Request concurrency|Request Rate): ([\d.]+)", re.MULTILINE)
FIELDS = {
    "throughput": r"Throughput: ([\d.]+) infer/sec",
    "p50": r"p50 latency: (\d+) usec",
    "p90": r"p90 latency: (\d+) usec",
    "p95": r"p95 latency: (\d+) usec",
    "p99": r"p99 latency: (\d+) usec",
    "inferences": r"Inference count: (\d+)",
    "executions": r"Execution count: (\d+)",
    "requests": r"Successful request count: (\d+)",
    "overhead": r"\(overhead (\d+) usec",
    "queue": r"\+ queue (\d+) usec",
    "compute_input": r"compute input (\d+) usec",
    "compute_infer": r"compute infer (\d+) usec",
    "compute_output": r"compute output (\d+) usec",
}


@dataclass(frozen=True)
class Level:
    """What is reported of one load: times in microseconds."""

    load: float
    values: dict[str, float]


def missing() -> str:
    """Why it cannot be run here; empty if it can."""
    if not sys.platform.startswith("linux"):
        return "perf_analyzer is a program for Linux"
    return (
        ""
        if _libb64()
        else "no libb64: install the system's package libb64-0d, or benchmarks/peers/install.sh pytriton"
    )


def run(options: Sequence[str], timeout: float) -> "subprocess.CompletedProcess[str]":
    """Run it with these options; nothing is raised where it ends with an error."""
    folder = _installed()
    environment = {**os.environ, "LD_LIBRARY_PATH": f"{folder / 'lib'}:{os.environ.get('LD_LIBRARY_PATH', '')}"}
    command = [str(folder / "bin/perf_analyzer"), *options]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout, check=False)


def levels(report: str) -> list[Level]:
    """Take a report apart: one entry for each load."""
    places = list(LOAD.finditer(report))
    found = []
    for place, after in zip(places, [*places[1:], None], strict=True):
        text = report[place.end() : after.start() if after else len(report)].split("\nInferences/Second vs.")[0]
        values = {name: re.search(pattern, text) for name, pattern in FIELDS.items()}
        numbers = {name: float(match[1]) for name, match in values.items() if match is not None}
        if "throughput" in numbers:
            found.append(Level(float(place[1]), numbers))
    return found


def _libb64() -> str:
    carried = sorted(PEERS.glob("pytriton/lib/python*/site-packages/nvidia_pytriton.libs/libb64-*.so.0d"))
    return str(carried[0]) if carried else ctypes.util.find_library("b64") or ""


def _installed() -> Path:
    """The folder with the program and the libraries it needs, made once."""
    if why := missing():
        raise RuntimeError(why)
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "shoal"
    folder = base / f"perf_analyzer-{RELEASE}"
    if folder.exists():
        return folder
    base.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".making-", dir=base) as draft:
        made = Path(draft) / "made"
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--no-deps"]
        subprocess.run([*pip, "--target", str(made), f"tritonclient=={RELEASE}", CUDA], check=True)
        (made / "lib").mkdir()
        shutil.copy(next(made.glob("nvidia/cuda_runtime/lib/libcudart.so.12")), made / "lib/libcudart.so.12")
        library = _libb64()
        if os.path.isabs(library):
            shutil.copy(library, made / "lib/libb64.so.0d")
        try:
            made.rename(folder)
        except OSError:
            if not folder.exists():
                raise
    return folder

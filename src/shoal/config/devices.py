"""What the machine has: processors and GPUs, counted without torch, and how busy a GPU is."""

import math
import os
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from shoal.clock import Clock

DRIVER = Path("/proc/driver/nvidia/gpus")
CPU_LIMIT = Path("/sys/fs/cgroup/cpu.max")
PATIENCE = 10.0  # s for nvidia-smi, which can hang on a sick driver
USAGE = "utilization.gpu,utilization.memory,memory.used"


class Machine(NamedTuple):
    """How many GPUs and processors this process may use."""

    gpus: int
    cpus: int


def machine(environment: Mapping[str, str]) -> Machine:
    """Look at the machine. Runs nvidia-smi where the driver does not list its GPUs."""
    return Machine(count_gpus(environment), count_cpus())


def count_gpus(environment: Mapping[str, str], driver: Path = DRIVER) -> int:
    """Count the NVIDIA GPUs that CUDA would show to a process with this environment."""
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and not visible.strip():
        return 0
    present = _present(driver)
    return present if visible is None else count_visible(visible, present)


def count_visible(text: str, present: int) -> int:
    """Count what CUDA_VISIBLE_DEVICES leaves of `present` GPUs: it is read up to the first that is not there."""
    seen: set[str] = set()
    for word in text.split(","):
        name = word.strip()
        is_there = int(name) < present if name.isdecimal() else name.startswith(("GPU-", "MIG-"))
        if not is_there or name in seen:
            break
        seen.add(name)
    return len(seen) if present else 0


def count_cpus(limit: Path = CPU_LIMIT) -> int:
    """Count the processors this process may run on, within the limit of its container."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = limit.read_text().split()
        return max(1, min(cpus, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError):  # no cgroup, or `max`
        return cpus


class GpuUsage:
    """How busy each GPU is, in upstream's words. Blocks while nvidia-smi runs: call it from a thread."""

    def __init__(self, clock: Clock, keep: float = 5.0) -> None:
        self._clock = clock
        self._keep = keep  # s an answer is used again
        self._known: dict[int, tuple[float, str]] = {}
        self._lock = threading.Lock()

    def __call__(self, gpu: int) -> str:
        """Describe one GPU; `N/A` where nvidia-smi does not answer."""
        with self._lock:
            read, text = self._known.get(gpu, (-math.inf, ""))
            if self._clock.now() - read >= self._keep:
                text = usage_text(gpu, _nvidia_smi("-i", str(gpu), f"--query-gpu={USAGE}", "--format=csv"))
                self._known[gpu] = (self._clock.now(), text)
            return text


def usage_text(gpu: int, table: str) -> str:
    """Turn nvidia-smi's table of one GPU (names, then values) into the text of describe calls."""
    rows = [[cell.strip() for cell in line.split(",")] for line in table.splitlines()]
    if len(rows) != 2 or len(rows[0]) != len(rows[1]):
        return "N/A"
    return f"gpuId::{gpu} " + "".join(f"{name}::{value}" for name, value in zip(*rows, strict=True))


def _present(driver: Path) -> int:
    try:
        return sum(1 for _ in driver.iterdir())
    except OSError:
        return sum(line.startswith("GPU ") for line in _nvidia_smi("-L").splitlines())


def _nvidia_smi(*arguments: str) -> str:
    """Run nvidia-smi; empty where it is not there, fails or hangs."""
    try:
        done = subprocess.run(  # noqa: S603
            ["nvidia-smi", *arguments],  # noqa: S607 - wherever the driver put it
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=PATIENCE,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout if done.returncode == 0 else ""

"""The machine a report was made on: a figure without it says nothing."""

import os
import platform
from datetime import UTC, datetime
from pathlib import Path

from shoal.version import __version__


def facts() -> dict[str, str]:
    """Tell of this machine, this moment and this version."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "processor": _processor(),
        "cores": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1),
        "memory": _memory(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "shoal": __version__,
    }


def line(told: dict[str, str]) -> str:
    """Write the facts in one line."""
    return (
        f"{told['cores']} cores, {told['processor']}, {told['memory']}, Python {told['python']}, "
        f"Shoal {told['shoal']}, {told['date']}"
    )


def cores() -> int:
    """Give the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def available_memory() -> int:
    """Give the bytes that could be taken without swapping; 0 where nobody knows."""
    return _kilobytes("MemAvailable") * 1024


def _processor() -> str:
    for row in _rows("/proc/cpuinfo"):
        if row.startswith("model name"):
            return " ".join(row.partition(":")[2].split())
    return platform.processor() or platform.machine()


def _memory() -> str:
    total = _kilobytes("MemTotal")
    return f"{total / 1024 / 1024:.0f} GiB" if total else "unknown memory"


def _kilobytes(name: str) -> int:
    for row in _rows("/proc/meminfo"):
        if row.startswith(f"{name}:"):
            return int(row.split()[1])
    return 0


def _rows(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []

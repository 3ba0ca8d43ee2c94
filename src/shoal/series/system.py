"""Measurements of the machine: processor, memory, disk, GPUs. Read from /proc and the driver's own tool."""

import shutil
import subprocess
from pathlib import Path

Row = tuple[str, float, dict[str, str]]
PROC = Path("/proc")
GPU_QUERY = ("--query-gpu=index,utilization.gpu,memory.used,memory.total", "--format=csv,noheader,nounits")


class Machine:
    """Remembers the last reading, for what is a rate."""

    def __init__(self, proc: Path = PROC, *, gpus: int = 0) -> None:
        self._proc = proc
        self._gpus = gpus
        self._last = self._ticks()

    def read(self) -> list[Row]:
        """Give name, value and labels of everything that can be read; may take a while where there are GPUs."""
        rows: list[Row] = [("CPUUtilization", self._utilisation(), {})]
        rows += self._memory()
        disk = shutil.disk_usage("/")
        rows += [
            ("DiskUsage", round(disk.used / 2**30, 3), {}),
            ("DiskAvailable", round(disk.free / 2**30, 3), {}),
            ("DiskUtilization", round(100 * disk.used / disk.total, 1), {}),
        ]
        return rows + (self._gpu_rows() if self._gpus else [])

    def _utilisation(self) -> float:
        busy, total = self._ticks()
        busy_before, total_before = self._last
        self._last = busy, total
        return round(100 * (busy - busy_before) / (total - total_before), 1) if total > total_before else 0.0

    def _ticks(self) -> tuple[int, int]:
        try:
            numbers = [int(text) for text in (self._proc / "stat").read_text().split("\n", 1)[0].split()[1:9]]
        except (OSError, ValueError):
            return 0, 0
        return sum(numbers) - numbers[3] - numbers[4], sum(numbers)

    def _memory(self) -> list[Row]:
        try:
            lines = (self._proc / "meminfo").read_text().splitlines()
            kilobytes = {line.split(":")[0]: int(line.split()[1]) for line in lines if line.endswith("kB")}
            total, available = kilobytes["MemTotal"], kilobytes["MemAvailable"]
        except (OSError, ValueError, KeyError):
            return []
        return [
            ("MemoryUsed", round((total - available) / 1024, 3), {}),
            ("MemoryAvailable", round(available / 1024, 3), {}),
            ("MemoryUtilization", round(100 * (total - available) / total, 1), {}),
        ]

    def _gpu_rows(self) -> list[Row]:
        tool = shutil.which("nvidia-smi")
        if tool is None:
            return []
        try:
            done = subprocess.run([tool, *GPU_QUERY], capture_output=True, text=True, timeout=5, check=True)  # noqa: S603
        except (OSError, subprocess.SubprocessError):
            return []
        return gpu_rows(done.stdout)


def gpu_rows(text: str) -> list[Row]:
    """Read the table of the driver's tool; a line that is not understood is left out."""
    rows: list[Row] = []
    for line in text.splitlines():
        try:
            index, busy, used, total = (cell.strip() for cell in line.split(","))
            utilisation, memory = float(busy), float(used)
            share = round(100 * memory / float(total), 1)
        except (ValueError, ZeroDivisionError):
            continue
        device = {"DeviceId": index}
        rows += [
            ("GPUUtilization", utilisation, device),
            ("GPUMemoryUsed", memory, device),
            ("GPUMemoryUtilization", share, device),
        ]
    return rows

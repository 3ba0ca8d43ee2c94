"""Asks another process for a picture: matplotlib, where it is installed, stays out of the tools."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Literal

Kind = Literal["profile", "bench", "tune"]
WITHIN = 60.0


def draw(kind: Kind, report: Path, picture: Path) -> str:
    """Draw a report that was written as JSON; gives what went wrong, or nothing."""
    if importlib.util.find_spec("matplotlib") is None:
        return "matplotlib is not installed; pip install 'shoal[pictures]'"
    command = [sys.executable, "-P", "-m", "shoal.tools.plot", kind, str(report), str(picture)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN, check=False)  # noqa: S603
    except subprocess.TimeoutExpired:
        return f"matplotlib took longer than {WITHIN:g} s"
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["matplotlib failed"])[-1]
    return ""

"""The breaker for a minute: nothing lost, nothing doubled, nothing wrong, nothing left behind."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECONDS = 60
SEED = 2026


@pytest.mark.timeout(300)
def test_a_minute_of_faults_under_load_loses_doubles_and_leaks_nothing() -> None:
    command = [sys.executable, "-m", "tests.chaos", "--seconds", str(SECONDS), "--seed", str(SEED)]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, stdin=subprocess.DEVNULL)

    assert done.returncode == 0, done.stdout + done.stderr

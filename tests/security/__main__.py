"""python -m tests.security [WORDS]: takes each defence of the attack table away, in a copy, and sees its test fail.

`--write` writes the table into docs/security.md instead. The exit code is the number of tests that did not notice.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.security.document import write
from tests.security.table import Attack, attacks

ROOT = Path(__file__).parents[2]


def main(words: list[str]) -> int:
    if words == ["--write"]:
        write()
        return 0
    chosen = [attack for attack in attacks() if all(word in " ".join(attack) for word in words)]
    if not chosen:
        print(f"no row of the table has all of these words: {', '.join(words)}")
        return 100
    unnoticed = 0
    with tempfile.TemporaryDirectory(prefix="shoal-attacks-") as name:
        copy = Path(name)
        copy.chmod(0o755)  # workers of another user are among what is tried
        for folder in ("src", "tests"):
            shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", copy)
        tests = sorted({attack.test for attack in chosen})
        if ran(tests, copy) != 0:
            print("some of the tests fail with every defence in place: nothing can be said")
            return 100
        for attack in chosen:
            began = time.monotonic()
            result = without(attack, copy)
            unnoticed += result != "fails"
            print(f"{result:<12} {time.monotonic() - began:5.1f} s  {attack.section}: {attack.attack}", flush=True)
    print(f"{len(chosen)} defences taken away, {unnoticed} not noticed")
    return min(unnoticed, 100)


def without(attack: Attack, copy: Path) -> str:
    """Run a test in a copy that has no defence; it `fails`, or `passes`, or does not get that far."""
    file = copy / "src" / "shoal" / attack.file
    before = file.read_text()
    if attack.old not in before:
        return "NOT FOUND"
    file.write_text(before.replace(attack.old, attack.new, 1))
    try:
        code = ran([attack.test], copy)
    except subprocess.TimeoutExpired:
        return "fails"
    finally:
        file.write_text(before)
    return {0: "PASSES", 1: "fails"}.get(code, f"ERROR {code}")


def ran(tests: list[str], copy: Path) -> int:
    """Run tests on the copy; gives pytest's code."""
    environment = {**os.environ, "PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:randomly"]
    names = [f"tests/{test}" for test in tests]
    return subprocess.run([*command, *names], cwd=copy, env=environment, capture_output=True, timeout=600).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

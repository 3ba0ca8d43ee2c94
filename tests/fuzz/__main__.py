"""python -m tests.fuzz [--inputs 1000000] [--seed N] [--target NAME ...]: bytes from strangers, many of them.

Inputs that show a mistake are written to the folder of `--out`, as TARGET-NUMBER; the exit code is 1 then.
"""

import argparse
import sys
from pathlib import Path

from tests.fuzz.run import TARGETS, fuzz


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=100_000, help="of all targets together, by their shares")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", action="append", default=[], help="this one alone gets all inputs; may come again")
    parser.add_argument("--out", type=Path, default=Path("fuzz-findings"))
    options = parser.parse_args()
    chosen = [make for make in TARGETS if not options.target or _name(make) in options.target]
    total = sum(_share(make) for make in chosen)
    findings = inputs = 0
    seconds = 0.0
    print(f"{'target':<12} {'inputs':>9} {'seconds':>8} {'inputs/s':>9} {'outcomes':>9} {'findings':>9}")
    for make in chosen:
        result = fuzz(make, options.inputs * _share(make) // total, options.seed)
        rate = result.inputs / max(result.seconds, 1e-9)
        figures = (
            f"{result.inputs:>9} {result.seconds:>8.1f} {rate:>9.0f} {result.outcomes:>9} {len(result.findings):>9}"
        )
        print(f"{result.target:<12} {figures}", flush=True)
        for number, (data, words) in enumerate(result.findings):
            options.out.mkdir(exist_ok=True)
            (options.out / f"{result.target}-{number}").write_bytes(data)
            (options.out / f"{result.target}-{number}.txt").write_text(words)
        findings += len(result.findings)
        inputs += result.inputs
        seconds += result.seconds
    print(f"{'all':<12} {inputs:>9} {seconds:>8.1f} {inputs / max(seconds, 1e-9):>9.0f} {'':>9} {findings:>9}")
    return 1 if findings else 0


def _name(make: object) -> str:
    return str(getattr(make, "name", ""))


def _share(make: object) -> int:
    return int(getattr(make, "share", 0))


if __name__ == "__main__":
    sys.exit(main())

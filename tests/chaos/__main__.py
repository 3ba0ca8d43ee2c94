"""`python -m tests.chaos --seconds 600 --seed 1`: break a server under load; the exit code says whether it held."""

import argparse
import random
import sys
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from tests.chaos.run import columns, run


def main() -> int:
    """Run once and tell."""
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long things are broken")
    parser.add_argument(
        "--seed", type=int, default=None, help="makes the same faults in the same order; drawn if not given"
    )
    parser.add_argument("--clients", type=int, default=24, help="how many send at once")
    parser.add_argument("--folder", type=Path, default=None, help="where the server's log is kept; none is otherwise")
    given = parser.parse_args()
    seed = random.SystemRandom().randrange(1_000_000) if given.seed is None else given.seed
    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(f"seed {seed}, {given.seconds:g} s", highlight=False)
    with Progress(*columns(), console=console, transient=True) as progress:
        book = run(seed, given.seconds, given.clients, progress, given.folder)
    book.facts = {"seed": str(seed), "seconds": f"{given.seconds:g}", **book.facts}
    book.print(console)
    return 0 if book.is_clean else 1


if __name__ == "__main__":
    sys.exit(main())

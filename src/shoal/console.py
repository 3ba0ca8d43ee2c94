"""Console: where a command's words go: what is asked for to the output, everything else to the errors."""

import sys
from typing import Final

from rich.console import Console

WIDE: Final = 200  # columns where nobody looks at a terminal

err: Final = Console(stderr=True, highlight=False)


def out() -> Console:
    """Give what results are printed with; into a file, no line of a table is broken."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else WIDE)

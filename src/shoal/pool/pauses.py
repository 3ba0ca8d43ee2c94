"""How long a worker's place waits before its next start. Rules only."""

import math

STARTS = (0.0, 0.1, 0.5, 1.0, 1.0, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0, 34.0, 55.0)  # s, by failed starts in a row
FIRST, LONGEST = 0.1, 10.0  # s, after more deaths than one bad request explains


def after_failed_starts(failures: int) -> float:
    """How long to wait before the start after so many that failed in a row: at once the first time."""
    return STARTS[min(failures, len(STARTS)) - 1] if failures else 0.0


def explained(rows: int, attempts: int) -> int:
    """How many workers in a row one bad request may take down: one for each halving of its batch, then alone.

    `rows` is the largest batch it may have been in, `attempts` how often it is tried before it is given up.
    """
    return math.ceil(math.log2(max(1, rows))) + max(1, attempts)


def after_deaths(deaths: int, free: int) -> float:
    """How long to wait after so many deaths by batches in a row, with no batch ended between them.

    The first `free` cost nothing: one bad request that is being isolated explains them. Each further one doubles the
    pause, up to a bound.
    """
    over = deaths - free
    return min(LONGEST, FIRST * 2.0 ** min(over - 1, 32)) if over > 0 else 0.0

"""All runs, of both servers."""

from tests.upstream.rows import Run
from tests.upstream.tables import mms, torchserve

RUNS: tuple[Run, ...] = (*torchserve.RUNS, *mms.RUNS)


def count() -> int:
    """How many rows there are."""
    return sum(len(run.rows) for run in RUNS)

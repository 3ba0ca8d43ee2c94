"""The real servers beside Shoal on the same archives: `make test-upstream`, where Java and both are installed."""

import functools

import pytest

from tests.upstream import record, servers, table
from tests.upstream.compare import mismatches
from tests.upstream.differences import unexpected
from tests.upstream.rows import Run
from tests.upstream.test_recorded import ROWS, name_of, recorded, shoal_answers

pytestmark = [pytest.mark.upstream, pytest.mark.timeout(900)]
EACH_ROW = pytest.mark.parametrize(("run", "row"), [pytest.param(run, row, id=name_of(run, row)) for run, row in ROWS])


@functools.cache
def _answers(place: int) -> record.Answers:
    return record.ask_all(table.RUNS[place], "upstream")


def upstream_answers(run: Run) -> record.Answers:
    """What the real server says to the rows of a run, asked once."""
    if reason := servers.missing(run.server):
        pytest.skip(f"{run.server} cannot run here: {reason}")
    return _answers(table.RUNS.index(run))


@EACH_ROW
def test_the_recording_is_what_the_server_says(run: Run, row: str) -> None:
    found = mismatches(recorded(run.server)[run.name][row], upstream_answers(run)[row])

    assert [str(one) for one in found] == []


@EACH_ROW
def test_shoal_answers_as_the_server_does(run: Run, row: str) -> None:
    said = upstream_answers(run)[row]
    found = unexpected(name_of(run, row), mismatches(said, shoal_answers(run)[row]))

    assert [str(one) for one in found] == []

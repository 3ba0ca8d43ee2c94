"""Shoal in place of TorchServe and MMS: on the same archives it gives the answers that were recorded of them."""

import functools

import pytest

from tests.upstream import record, table
from tests.upstream.compare import Mismatch, mismatches
from tests.upstream.differences import DIFFERENCES, Difference, unexpected
from tests.upstream.rows import Run

ROWS = [(run, row.name) for run in table.RUNS for row in run.rows]


def name_of(run: Run, row: str) -> str:
    return f"{run.server}/{run.name}/{row}"


@functools.cache
def _answers(place: int) -> record.Answers:
    return record.ask_all(table.RUNS[place], "shoal")


def shoal_answers(run: Run) -> record.Answers:
    """What Shoal says to the rows of a run: asked once, in order, by whichever test comes first."""
    return _answers(table.RUNS.index(run))


@functools.cache
def recorded(server: str) -> dict[str, record.Answers]:
    return record.load(server)


def mismatches_of(run: Run, row: str) -> list[Mismatch]:
    return mismatches(recorded(run.server)[run.name][row], shoal_answers(run)[row])


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("run", "row"), [pytest.param(run, row, id=name_of(run, row)) for run, row in ROWS])
def test_shoal_answers_as_recorded(run: Run, row: str) -> None:
    found = unexpected(name_of(run, row), mismatches_of(run, row))

    assert [str(one) for one in found] == []


@pytest.mark.timeout(300)
@pytest.mark.parametrize("entry", DIFFERENCES, ids=lambda entry: f"{entry.rows} {entry.values}")
def test_a_difference_that_is_listed_is_still_there(entry: Difference) -> None:
    covered = [
        (row, one) for run, row in ROWS for one in mismatches_of(run, row) if entry.covers(name_of(run, row), one)
    ]

    assert covered


def test_every_row_was_recorded_and_none_besides() -> None:
    names = [
        f"{server}/{run}/{row}"
        for server in ("torchserve", "mms")
        for run, rows in recorded(server).items()
        for row in rows
    ]

    assert sorted(names) == sorted(name_of(run, row) for run, row in ROWS)

"""Shoal in place of tritonserver: on the same models its clients get the answers that were recorded of it."""

import functools

import pytest

from tests.upstream.compare import Mismatch
from tests.upstream.differences import Difference
from tests.upstream.triton import record, table
from tests.upstream.triton.differences import DIFFERENCES, compare, unexpected
from tests.upstream.triton.words import EVERY, RELEASES, Run

CASES = [(run, key) for run in table.RUNS for key in run.keys]
EACH_CASE = pytest.mark.parametrize(
    ("run", "key"),
    [pytest.param(run, key, id=f"{run.name}/{key}") for run, key in CASES],
)


@functools.cache
def _answers(name: str, release: str) -> record.Answers:
    return record.answers_of(next(run for run in table.RUNS if run.name == name), "shoal", release)


def shoal_answers(run: Run, release: str = RELEASES[0]) -> record.Answers:
    """What the clients of a release get from Shoal: asked once, in order, by whichever test comes first."""
    return _answers(run.name, release)


@functools.cache
def recorded() -> dict[str, record.Answers]:
    return record.load()


def mismatches_of(run: Run, key: str) -> list[Mismatch]:
    return compare(recorded()[run.name][key], shoal_answers(run)[key])


@pytest.mark.timeout(500)
@EACH_CASE
def test_shoal_answers_as_recorded(run: Run, key: str) -> None:
    found = unexpected(f"{run.name}/{key}", mismatches_of(run, key))

    assert [str(one) for one in found] == []


@pytest.mark.timeout(500)
@pytest.mark.parametrize("entry", DIFFERENCES, ids=lambda entry: f"{entry.rows} {entry.values}")
def test_a_difference_that_is_listed_is_still_there(entry: Difference) -> None:
    covered = [
        (key, one) for run, key in CASES for one in mismatches_of(run, key) if entry.covers(f"{run.name}/{key}", one)
    ]

    assert covered


def test_every_difference_has_a_reason() -> None:
    assert [entry for entry in DIFFERENCES if len(entry.reason) < 20] == []


def test_every_case_was_recorded_and_none_besides() -> None:
    names = [f"{run}/{key}" for run, answers in recorded().items() for key in answers]

    assert sorted(names) == sorted(f"{run.name}/{key}" for run, key in CASES)


def test_every_method_of_every_client_is_called_that_needs_no_gpu() -> None:
    for transport in EVERY:
        assert recorded()["main"][f"{transport}/{table.UNUSED}"] == ["register_cuda_shared_memory"]


def test_every_case_has_a_name_of_its_own() -> None:
    for run in table.RUNS:
        assert len(set(run.keys)) == len(run.keys)

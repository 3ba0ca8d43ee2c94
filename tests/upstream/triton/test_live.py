"""The real tritonserver beside Shoal on the same models, asked by the clients of both releases."""

import functools

import pytest

from tests.upstream.triton import record, servers, table
from tests.upstream.triton.differences import compare, unexpected
from tests.upstream.triton.test_recorded import CASES, recorded, shoal_answers
from tests.upstream.triton.words import RELEASES, Run

pytestmark = [
    pytest.mark.upstream,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(servers.missing()), reason=f"tritonserver cannot run here: {servers.missing()}"),
]
EACH = [pytest.param(run, key, release, id=f"{release}/{run.name}/{key}") for release in RELEASES for run, key in CASES]


@functools.cache
def _answers(name: str, release: str) -> record.Answers:
    return record.answers_of(next(run for run in table.RUNS if run.name == name), "upstream", release)


@pytest.mark.parametrize(("run", "key"), [pytest.param(run, key, id=f"{run.name}/{key}") for run, key in CASES])
def test_the_recording_is_what_the_server_says(run: Run, key: str) -> None:
    found = compare(recorded()[run.name][key], _answers(run.name, RELEASES[0])[key])

    assert [str(one) for one in found] == []


@pytest.mark.parametrize(("run", "key", "release"), EACH)
def test_shoal_answers_as_the_server_does(run: Run, key: str, release: str) -> None:
    said = _answers(run.name, release)[key]
    found = unexpected(f"{run.name}/{key}", compare(said, shoal_answers(run, release)[key]))

    assert [str(one) for one in found] == []

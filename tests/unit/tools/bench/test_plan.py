from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import InvalidInput
from shoal.tools.bench.plan import Settings, Step, loads, steps
from shoal.tools.calls import site_of

SITE = site_of("http://x:1")


def test_a_closed_loop_is_the_default() -> None:
    assert [step.label for step in steps("", "", "", "poisson", 1)] == [
        "1 connection",
        "8 connections",
        "64 connections",
    ]


def test_rates_make_open_loops() -> None:
    assert steps("", "100,200", "", "constant", 4) == [
        Step("constant", "100/s constant, 4 at once", rate=100.0, burst=4),
        Step("constant", "200/s constant, 4 at once", rate=200.0, burst=4),
    ]


def test_a_trace_is_one_level(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("1\n2\n")

    assert steps("", "", str(tmp_path / "t"), "poisson", 1) == [Step("trace", "trace of 2", times=[0.0, 1.0])]


def test_one_kind_of_load_at_a_time() -> None:
    with pytest.raises(InvalidInput, match="give one of them"):
        steps("1", "100", "", "poisson", 1)
    with pytest.raises(InvalidInput, match="--burst belongs to --rate"):
        steps("1", "", "", "poisson", 2)


@given(st.integers(1, 300), st.integers(1, 16))
def test_connections_are_shared_out_whole_and_nobody_has_none(concurrency: int, processes: int) -> None:
    step = Step("closed", "", concurrency=concurrency)

    parts = loads(step, Settings(processes=processes), SITE, [b"a"])

    assert sum(part.connections for part in parts) == concurrency
    assert len(parts) == min(concurrency, processes)
    assert max(part.connections for part in parts) - min(part.connections for part in parts) <= 1
    assert len({part.begin for part in parts}) == 1


def test_rates_and_traces_are_shared_out_too() -> None:
    parts = loads(Step("poisson", "", rate=90.0), Settings(processes=3), SITE, [b"a"])
    assert [part.rate for part in parts] == [30.0] * 3
    assert len({part.seed for part in parts}) == 3

    parts = loads(Step("trace", "", times=[0.0, 1.0]), Settings(processes=3), SITE, [b"a"])
    assert [part.times for part in parts] == [[0.0], [1.0]]


def test_processes_begin_with_different_bodies() -> None:
    parts = loads(Step("closed", "", concurrency=4), Settings(processes=2), SITE, [b"a", b"b", b"c"])

    assert [part.requests for part in parts] == [[b"a", b"b", b"c"], [b"b", b"c", b"a"]]

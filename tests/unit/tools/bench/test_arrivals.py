from itertools import islice, pairwise
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import InvalidInput
from shoal.tools.bench import arrivals


def test_constant_arrivals_are_evenly_spaced_whatever_their_burst() -> None:
    assert list(islice(arrivals.constant(10.0), 3)) == pytest.approx([0.0, 0.1, 0.2])
    assert list(islice(arrivals.constant(10.0, burst=2, first=0.05), 4)) == pytest.approx([0.05, 0.05, 0.25, 0.25])


@pytest.mark.parametrize("burst", [1, 5])
def test_poisson_arrivals_have_the_rate_and_come_as_they_like(burst: int) -> None:
    times = list(islice(arrivals.poisson(100.0, Random(3), burst), 20_000))
    moments = times[::burst]
    pauses = [after - before for before, after in pairwise(moments)]
    mean = sum(pauses) / len(pauses)
    variance = sum((pause - mean) ** 2 for pause in pauses) / len(pauses)

    assert times == sorted(times)
    assert len(times) / times[-1] == pytest.approx(100.0, rel=0.05)
    assert variance == pytest.approx(mean**2, rel=0.1)  # exponential: the deviation is the mean


@given(st.lists(st.floats(0, 100), max_size=50).map(sorted), st.integers(1, 8))
def test_every_arrival_of_a_trace_has_one_process(times: list[float], processes: int) -> None:
    parts = arrivals.shared(times, processes)

    assert len(parts) == processes
    assert sorted(time for part in parts for time in part) == times


def test_a_trace_begins_at_zero_in_the_order_of_time(tmp_path: Path) -> None:
    (tmp_path / "trace").write_text("# seconds\n12.5,\n\n10.0\n11 # late\n")

    assert arrivals.read_trace(str(tmp_path / "trace")) == [0.0, 1.0, 2.5]


@pytest.mark.parametrize(
    ("text", "problem"), [("1\nx\n", "line 2: .*'x'"), ("", "0 arrivals"), ("0\ninf\n", "finite"), ("nan\n1", "finite")]
)
def test_a_trace_that_is_none_is_refused_by_line(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "trace").write_text(text)

    with pytest.raises(InvalidInput, match=problem):
        arrivals.read_trace(str(tmp_path / "trace"))


def test_a_trace_that_is_missing_is_said_to_be() -> None:
    with pytest.raises(InvalidInput, match="cannot read the trace nowhere"):
        arrivals.read_trace("nowhere")

from pathlib import Path
from random import Random

import msgspec
import pytest

from shoal.errors import InvalidInput
from shoal.tools.bench.compare import compare, read_report
from shoal.tools.bench.messages import Slice
from shoal.tools.bench.results import Report, sum_up


def report(seed: int, mean: float, label: str = "8 connections") -> Report:
    """A bench of 60 slices whose latencies are around `mean`, and whose rate follows from them."""
    source = Random(seed)
    slices = []
    for number in range(60):
        slice = Slice(number, answered=0)
        for _ in range(int(1 / mean)):
            slice.latencies.add(source.gauss(mean, mean / 10))
            slice.answered += 1
        slices.append(slice)
    level = msgspec.structs.replace(sum_up(slices, 0.1), label=label)
    return Report("http://x", "text", {}, {}, [level])


def test_a_change_that_is_real_is_shown() -> None:
    changes = {change.figure: change for change in compare(report(1, 0.010), report(2, 0.012), draws=200)}

    assert changes["p50"].change == pytest.approx(0.2, abs=0.03)
    assert changes["p50"].low < 0.2 < changes["p50"].high + 0.02
    assert changes["p50"].verdict == changes["p99"].verdict == "worse"
    assert changes["answers/s"].verdict == "worse"
    assert {change.verdict for change in compare(report(2, 0.012), report(1, 0.010), draws=200)} == {"better"}


def test_chance_is_not_taken_for_a_change() -> None:
    for change in compare(report(1, 0.010), report(2, 0.010), draws=200):
        assert change.low <= 0 <= change.high
        assert change.verdict == "no difference shown"


def test_a_comparison_comes_out_the_same_twice() -> None:
    assert compare(report(1, 0.01), report(2, 0.011), draws=50) == compare(report(1, 0.01), report(2, 0.011), draws=50)


def test_only_levels_that_both_have_are_compared() -> None:
    with pytest.raises(InvalidInput, match="share no level of load: 8 connections; and 9 connections"):
        compare(report(1, 0.01), report(1, 0.01, "9 connections"))


def test_a_report_is_read_back(tmp_path: Path) -> None:
    made = report(1, 0.01)
    (tmp_path / "a.json").write_bytes(msgspec.json.encode(made))

    assert read_report(str(tmp_path / "a.json")) == made


def test_what_is_no_report_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"levels": 3}')

    with pytest.raises(InvalidInput, match="no report of shoal bench"):
        read_report(str(tmp_path / "a.json"))
    with pytest.raises(InvalidInput, match="cannot read"):
        read_report(str(tmp_path / "b.json"))

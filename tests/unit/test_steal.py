"""What benchmarks ask about the host they share."""

import asyncio
from pathlib import Path

import pytest

from benchmarks import steal
from benchmarks.steal import Calm, Steal


@pytest.fixture
def stat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "stat"
    monkeypatch.setattr(steal, "STAT", file)
    monkeypatch.setattr(steal, "PROBE", 0.0)
    monkeypatch.setattr(steal, "PAUSE", 0.0)
    return file


def write(file: Path, *, idle: int, stolen: int) -> None:
    file.write_text(f"cpu  10 0 5 {idle} 0 0 0 {stolen} 7 7\ncpu0 9 9 9 9 9 9 9 9 9 9\n")


def test_what_is_stolen_is_a_share_of_the_time_since(stat: Path) -> None:
    write(stat, idle=100, stolen=50)
    counted = Steal()
    assert counted.share == 0.0, "no time has passed"

    write(stat, idle=130, stolen=60)
    assert counted.share == 0.25


def test_where_nobody_counts_nothing_is_stolen(stat: Path) -> None:
    counted = Steal()
    assert counted.share == 0.0

    stat.write_text("cpu  1 2 3 4\n")
    assert Steal().share == 0.0


def test_a_host_that_is_busy_with_others_is_waited_for_as_long_as_there_is_patience(
    stat: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings = iter([(0, 0), (5, 10), (5, 10), (10, 20), (10, 20), (10, 30)])
    monkeypatch.setattr(steal, "ticks", lambda: next(readings))
    calm = Calm(60.0)

    assert asyncio.run(calm(0.02)), "the third time nothing was stolen"
    assert calm.patience < 60.0
    assert not list(readings)
    assert not asyncio.run(Calm(0.0)(0.02))

"""When an operator hears that clients wait for the server's own process."""

import asyncio
import logging
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.strain import AGAIN, BUSY, FEWEST, MOST, WINDOW, Strain, Watcher

MANY = 16


def looks(rule: Strain, shares: Sequence[float], window: float = WINDOW) -> list[float]:
    """What the rule says at the end of each window, of which the process was busy for this share."""
    now, spent = 100.0, 7.0
    rule.look(now, spent)
    said = []
    for share in shares:
        now, spent = now + window, spent + share * window
        said.append(rule.look(now, spent))
    return said


def test_a_process_that_is_busy_all_the_time_is_told_of_once() -> None:
    assert looks(Strain(MANY), [0.5, 0.97, 0.98]) == [0.0, pytest.approx(0.97), 0.0]


def test_after_an_hour_it_is_told_of_again() -> None:
    windows = int(AGAIN / WINDOW)

    said = looks(Strain(MANY), [1.0] * (windows + 1))

    assert [place for place, share in enumerate(said) if share] == [0, windows]


def test_before_the_first_look_nothing_was_spent_in_any_window() -> None:
    rule = Strain(MANY)

    assert rule.look(5.0, 1000.0) == 0.0
    assert rule.look(5.0, 2000.0) == 0.0  # a window without an end


@pytest.mark.parametrize("cpus", range(1, FEWEST))
def test_where_more_processes_have_no_room_nothing_is_said(cpus: int) -> None:
    rule = Strain(cpus)

    assert rule.proposed == 0
    assert looks(rule, [1.0] * 5) == [0.0] * 5


@pytest.mark.parametrize(("cpus", "proposed"), [(4, 2), (6, 3), (8, 4), (16, 4), (192, 4)])
def test_half_of_the_processors_are_proposed_and_four_at_the_most(cpus: int, proposed: int) -> None:
    assert Strain(cpus).proposed == proposed <= MOST


@given(cpus=st.integers(1, 64), shares=st.lists(st.floats(0, 1.2), max_size=30), window=st.floats(0.5, 2 * AGAIN))
def test_it_is_said_only_of_a_busy_window_and_not_twice_in_an_hour(
    cpus: int, shares: list[float], window: float
) -> None:
    said = looks(Strain(cpus), shares, window)

    last = -AGAIN
    for place, (share, told) in enumerate(zip(shares, said, strict=True)):
        assert 0.0 <= told <= 1.0
        if told:
            assert share >= BUSY * (1 - 1e-6)
            assert window * (place + 1) - last >= AGAIN * (1 - 1e-6)
            last = window * (place + 1)


class Times:
    """A clock, and what the thread has spent, which go on by themselves with each look."""

    def __init__(self, share: float) -> None:
        self.share = share
        self.looks = 0

    def now(self) -> float:
        self.looks += 1
        return 10.0 * self.looks

    def spent(self) -> float:
        return 10.0 * self.looks * self.share


def watched(
    caplog: pytest.LogCaptureFixture,
    share: float,
    *,
    frontends: int = 1,
    cpus: int = MANY,
    stop: bool = False,
    looks: bool = True,
) -> tuple[int, list[str]]:
    """How often it looked and what it logged, while a loop ran; `looks`: it is waited for, else only a while."""
    times = Times(share)

    async def run() -> None:
        watcher = Watcher(frontends, cpus=lambda: cpus, now=times.now, spent=times.spent, window=0.001)
        watcher.start()
        if stop:
            watcher.stop()
        for _ in range(5000 if looks else 50):
            if times.looks >= 5:
                break
            await asyncio.sleep(0.001)
        watcher.stop()

    with caplog.at_level(logging.WARNING, "shoal"):
        asyncio.run(run())
    return times.looks, [record.getMessage() for record in caplog.records]


def test_the_log_says_what_is_busy_and_what_takes_work_from_it(caplog: pytest.LogCaptureFixture) -> None:
    looked, lines = watched(caplog, 0.96)

    assert looked >= 5
    assert len(lines) == 1
    assert "busy for 96 %" in lines[0] and "--frontends 4 or SHOAL_FRONTENDS=4" in lines[0]


def test_nothing_is_logged_of_a_process_that_has_time(caplog: pytest.LogCaptureFixture) -> None:
    looked, lines = watched(caplog, 0.5)

    assert looked >= 5 and not lines


@pytest.mark.parametrize(("frontends", "cpus"), [(2, MANY), (1, 2)])
def test_where_nothing_would_help_it_does_not_look(caplog: pytest.LogCaptureFixture, frontends: int, cpus: int) -> None:
    assert watched(caplog, 1.0, frontends=frontends, cpus=cpus, looks=False) == (0, [])


def test_once_stopped_it_looks_no_more(caplog: pytest.LogCaptureFixture) -> None:
    assert watched(caplog, 1.0, stop=True, looks=False) == (1, [])

"""Many deadlines on one timer."""

from hypothesis import given
from hypothesis import strategies as st

from shoal.frontend.http2.deadlines import FEW, Deadlines
from tests.unit.frontend.http2.fakes import FakeTime


class Dated:
    def __init__(self, deadlines: Deadlines) -> None:
        self.is_over = False
        self.expired = 0
        self._deadlines = deadlines

    def expire(self) -> None:
        self.expired += 1
        self.end()

    def end(self) -> None:
        if not self.is_over:
            self.is_over = True
            self._deadlines.drop()


def made() -> tuple[FakeTime, Deadlines]:
    clock = FakeTime()
    return clock, Deadlines(clock.time, clock.call_at)


@given(st.lists(st.tuples(st.floats(0.01, 10), st.one_of(st.none(), st.floats(0, 10)), st.floats(0, 1)), max_size=50))
def test_each_call_expires_in_its_time_unless_it_is_over(
    calls: list[tuple[float, float | None, float]],
) -> None:
    clock, deadlines = made()
    made_at, events = [], []
    for timeout, end, wait in calls:
        clock.move(wait)
        call = Dated(deadlines)
        deadlines.add(timeout, call)
        made_at.append((call, clock.now + timeout, end))
    begin = clock.now
    for call, _, end in made_at:
        if end is not None:
            events.append((begin + end, call))
    for time, call in sorted(events, key=lambda event: event[0]):
        clock.move(max(0.0, time - clock.now))
        due = next(d for c, d, _ in made_at if c is call)
        assert bool(call.expired) == (due <= clock.now)
        call.end()
    clock.move(20)
    clock.move(20)

    assert all(call.is_over and call.expired <= 1 for call, _, _ in made_at)
    assert all(call.expired == 1 for call, _, end in made_at if end is None)
    assert len(deadlines) == 0
    assert [timer for timer in clock.timers if not timer.is_cancelled] == []


def test_only_one_timer_runs_and_it_is_the_earliest() -> None:
    clock, deadlines = made()
    for timeout in (5.0, 3.0, 4.0):
        deadlines.add(timeout, Dated(deadlines))

    assert [timer.time for timer in clock.timers if not timer.is_cancelled] == [3.0]


def test_calls_that_are_over_do_not_pile_up() -> None:
    _, deadlines = made()
    for _ in range(10_000):
        call = Dated(deadlines)
        deadlines.add(3600.0, call)
        call.end()

    assert len(deadlines) <= 2 * FEW


def test_stop_forgets_everything() -> None:
    clock, deadlines = made()
    call = Dated(deadlines)
    deadlines.add(1.0, call)
    deadlines.stop()
    clock.move(2)

    assert call.expired == 0
    assert len(deadlines) == 0

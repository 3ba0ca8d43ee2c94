import asyncio
import math
from collections.abc import Callable
from typing import Any, cast

from shoal.alarm import LoopAlarm


class Handle:
    def __init__(self, delay: float, call: Callable[[], None]) -> None:
        self.delay, self.call, self.is_cancelled = delay, call, False

    def cancel(self) -> None:
        self.is_cancelled = True


class Loop:
    """An event loop that only remembers what it was asked."""

    def __init__(self) -> None:
        self.ready: list[Callable[[], None]] = []
        self.timers: list[Handle] = []

    def call_soon(self, call: Callable[[], None]) -> None:
        self.ready.append(call)

    def call_later(self, delay: float, call: Callable[[], None]) -> Handle:
        self.timers.append(Handle(delay, call))
        return self.timers[-1]

    def live(self) -> list[Handle]:
        return [timer for timer in self.timers if not timer.is_cancelled]


class Clock:
    def __init__(self) -> None:
        self.time = 100.0

    def now(self) -> float:
        return self.time


def make() -> tuple[LoopAlarm, Loop, Clock, list[float]]:
    loop, clock, rings = Loop(), Clock(), cast(list[float], [])
    alarm = LoopAlarm(cast(asyncio.AbstractEventLoop, cast(Any, loop)), clock)
    alarm.connect(rings.append)
    return alarm, loop, clock, rings


def test_what_asks_several_times_in_one_turn_is_called_once() -> None:
    alarm, loop, _, rings = make()
    for _ in range(5):
        alarm.soon()

    assert len(loop.ready) == 1
    loop.ready.pop()()
    assert rings == [100.0]
    alarm.soon()
    assert len(loop.ready) == 1, "the next turn is asked for anew"


def test_a_time_is_kept_until_another_is_set() -> None:
    alarm, loop, clock, rings = make()
    alarm.at(100.5)
    alarm.at(100.5)
    assert [timer.delay for timer in loop.live()] == [0.5], "the same time again is no new timer"

    alarm.at(100.2)
    assert [round(timer.delay, 6) for timer in loop.live()] == [0.2]

    clock.time = 100.2
    loop.live()[0].call()
    assert rings == [100.2]


def test_a_time_that_is_over_rings_at_once_and_never_is_forgotten() -> None:
    alarm, loop, _, _ = make()
    alarm.at(99.0)
    assert loop.live()[0].delay == 0.0

    alarm.at(math.inf)
    assert not loop.live()


def test_the_same_time_can_be_asked_for_again_after_it_rang() -> None:
    alarm, loop, _, _ = make()
    alarm.at(100.5)
    loop.live()[0].call()
    alarm.at(100.5)

    assert len(loop.timers) == 2

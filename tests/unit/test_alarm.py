import asyncio
import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import pytest
import uvloop

from shoal.alarm import NEAR, Bell, LoopAlarm
from shoal.clock import EARLY, MonotonicClock


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
    assert not rings, "what came at the same moment is looked at first"
    loop.ready.pop()()
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


async def near(times: list[float]) -> list[float]:
    """Ask an alarm with a bell for each of these seconds from now in turn; by how much each rang late."""
    clock = MonotonicClock()
    bell = Bell(clock)
    bell.start()
    rang: asyncio.Queue[float] = asyncio.Queue()
    alarm = LoopAlarm(asyncio.get_running_loop(), clock, bell)
    alarm.connect(rang.put_nowait)
    late = []
    for seconds in times:
        time = clock.now() + seconds
        alarm.at(time)
        late.append(await asyncio.wait_for(rang.get(), 10.0) - time)
    bell.stop()
    assert rang.empty(), "each rings once"
    return late


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_near_time_never_rings_before_it(loop_factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        late = runner.run(near([0.0001, 0.0004, 0.0012, -1.0, 0.0004, 0.8 * NEAR, 0.0002]))

    assert min(late) >= -EARLY, "loops alone ring up to half a millisecond before, and are asked again and again"


@pytest.mark.parametrize("stall", [0.0, 0.03], ids=["in time", "all at once"])
def test_of_several_alarms_each_rings_at_its_time(stall: float) -> None:
    async def run() -> list[tuple[str, float]]:
        clock = MonotonicClock()
        bell = Bell(clock)
        bell.start()
        rings: asyncio.Queue[tuple[str, float]] = asyncio.Queue()
        begin = clock.now()

        def note(name: str, now: float) -> None:
            rings.put_nowait((name, now - begin))

        alarms = {name: LoopAlarm(asyncio.get_running_loop(), clock, bell) for name in ("late", "early", "never")}
        for name, alarm in alarms.items():
            alarm.connect(partial(note, name))
        alarms["never"].at(begin + 0.001)
        alarms["late"].at(begin + 0.02)
        alarms["early"].at(begin + 0.01)
        alarms["never"].at(math.inf)
        time.sleep(stall)  # noqa: ASYNC251 - a machine that stands still
        found = [await asyncio.wait_for(rings.get(), 10.0) for _ in range(2)]
        bell.stop()
        assert rings.empty()
        return found

    rings = asyncio.run(run())

    assert [name for name, _ in rings] == ["early", "late"]
    assert all(now >= due - EARLY for (_, now), due in zip(rings, (0.01, 0.02), strict=True))


def test_an_alarm_that_fails_does_not_silence_the_others() -> None:
    async def run() -> list[str]:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda *_: None)
        clock = MonotonicClock()
        bell = Bell(clock)
        bell.start()
        rings: asyncio.Queue[str] = asyncio.Queue()

        def fail() -> None:
            rings.put_nowait("fails")
            raise RuntimeError("on purpose")

        time = clock.now() + 0.001
        bell.at(time, fail)
        bell.at(time, partial(rings.put_nowait, "rings"))
        found = [await asyncio.wait_for(rings.get(), 10.0) for _ in range(2)]
        bell.stop()
        return found

    assert asyncio.run(run()) == ["fails", "rings"]


def test_a_time_that_becomes_far_is_taken_from_the_bell() -> None:
    loop, clock, rings = Loop(), Clock(), cast(list[float], [])
    asked: list[float] = []

    class Remembers(Bell):
        def at(self, time: float, call: Callable[[], None]) -> None:
            asked.append(time)

    alarm = LoopAlarm(cast(asyncio.AbstractEventLoop, cast(Any, loop)), clock, Remembers(clock))
    alarm.connect(rings.append)
    alarm.at(100.01)
    assert (asked, loop.live()) == ([100.01], [])

    alarm.at(100.0 + 2 * NEAR)
    assert asked == [100.01, math.inf]
    assert len(loop.live()) == 1

    alarm.at(100.02)
    assert asked == [100.01, math.inf, 100.02]
    assert not loop.live()

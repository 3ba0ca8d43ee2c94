"""How a batched function begins and ends: methods, closing, garbage."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from shoal.embedded.batched import Batched, BatchedMethod, batched
from shoal.errors import Unavailable
from tests.unit.embedded.gates import PATIENCE, Caller, Gated, eventually, wait_for_queue


@dataclass(eq=True)
class Scaler:  # equal to its like and not hashable, as data classes are
    factor: int
    seen: list[list[int]] = field(default_factory=list, compare=False)

    @batched
    def scale(self, items: list[int]) -> list[int]:
        """Multiply."""
        self.seen.append(items)
        return [self.factor * item for item in items]

    @batched(workers=2)
    async def scale_later(self, items: list[int]) -> list[int]:
        return [self.factor * item for item in items]


def threads_of(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(f"{name} ")]


def test_nothing_starts_before_the_first_call() -> None:
    @batched
    def untouched(items: list[int]) -> list[int]:
        return items

    assert untouched.describe()["answered"] == 0
    assert not threads_of("untouched")
    assert untouched(1) == 1
    assert len(threads_of("untouched")) == 1
    untouched.close()
    assert not threads_of("untouched")


def test_a_function_keeps_its_name_and_documentation() -> None:
    @batched
    def documented(items: list[int]) -> list[int]:
        """What it does."""
        return items

    assert (documented.__name__, documented.__doc__) == ("documented", "What it does.")
    assert (Scaler.scale.__name__, Scaler.scale.__doc__) == ("scale", "Multiply.")


def test_each_instance_has_batches_of_its_own() -> None:
    first, second = Scaler(2), Scaler(2)
    assert (first.scale(1), second.scale(10), first.scale(2)) == (2, 20, 4)
    assert (first.seen, second.seen) == ([[1], [2]], [[10]])
    assert asyncio.run(first.scale_later(3)) == 6
    assert isinstance(Scaler.scale, BatchedMethod)
    first.scale.close()
    with pytest.raises(Unavailable):
        first.scale(1)
    assert second.scale(1) == 2
    second.scale.close()


def test_an_instance_is_let_go_and_its_threads_end() -> None:
    before = len(threads_of("scale"))
    scaler = Scaler(3)
    assert scaler.scale(1) == 3
    gone = weakref.ref(scaler)
    gc.disable()  # nothing but the last reference is needed
    try:
        del scaler
        eventually(lambda: gone() is None and len(threads_of("scale")) == before)
    finally:
        gc.enable()


def test_a_method_taken_from_an_instance_keeps_it_alive() -> None:
    scale = Scaler(4).scale
    assert scale(2) == 8
    scale.close()


def test_an_instance_that_cannot_be_let_go_is_refused() -> None:
    class Slotted:
        __slots__ = ()

        @batched
        def scale(self, items: list[int]) -> list[int]:
            return items

    with pytest.raises(TypeError, match="add '__weakref__' to its __slots__"):
        Slotted().scale(1)


def test_a_function_that_nobody_can_call_any_more_ends_its_threads() -> None:
    def forgotten(items: list[int]) -> list[int]:
        return items

    short_lived = batched(batch_size=2, max_batch_delay=1)(forgotten)
    assert short_lived(1) == 1
    assert len(threads_of("forgotten")) == 2, "a worker and an alarm"
    del short_lived
    eventually(lambda: not threads_of("forgotten"))


@pytest.mark.parametrize(
    ("function", "shown"),
    [(lambda: [], r"\(\)"), (lambda a, b, c: [], r"\(a, b, c\)"), (lambda items, *, key: [], r"\(items, \*, key\)")],
)
def test_a_function_that_takes_no_list_is_refused(function: Callable[..., Any], shown: str) -> None:
    with pytest.raises(TypeError, match=rf"<lambda>{shown} must take a list of items"):
        batched(function)


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(TypeError, match="batched takes a function of a list of items, got int"):
        batched(3)  # type: ignore[call-overload]


def test_a_builtin_and_a_bound_method_can_be_batched() -> None:
    total: Batched[int, int] = batched(reversed)
    assert total(5) == 5
    total.close()


def test_closing_finishes_what_was_taken_and_refuses_what_comes() -> None:
    gated = Gated()
    double: Batched[int, int] = batched(gated.double)
    callers = [Caller(double, 0)]
    gated.wait_inside()
    callers.append(Caller(double, 1))
    wait_for_queue(double, 1)
    closings = [Caller(lambda _: double.close(), None) for _ in range(2)]
    gated.let(2)
    assert [caller.result() for caller in (*callers, *closings)] == [0, 2, None, None]
    with pytest.raises(Unavailable, match="double is closed"):
        double(2)
    double.close()


def test_closing_in_a_hurry_refuses_what_waits() -> None:
    gated = Gated()
    double: Batched[int, int] = batched(gated.double)
    first = Caller(double, 0)
    gated.wait_inside()
    second = Caller(double, 1)
    wait_for_queue(double, 1)
    double.close(timeout=0.01)
    assert isinstance(second.result(), Unavailable)
    gated.let()
    assert first.result() == 0, "what runs is never thrown away"


def test_what_was_never_started_can_be_closed() -> None:
    double: Batched[int, int] = batched(lambda items: items)
    double.close()
    with pytest.raises(Unavailable):
        double(1)


def test_a_function_may_close_itself() -> None:
    @batched
    def last(items: list[int]) -> list[int]:
        last.close()
        return items

    assert Caller(last, 1).result() == 1
    eventually(lambda: not threads_of("last"))


def test_a_hold_in_force_ends_when_time_is_over_not_before() -> None:
    """Two calls whose delays differ: the alarm is set earlier and later, and each batch leaves in its time."""
    gated = Gated()
    double: Batched[int, int] = batched(batch_size=2, max_batch_delay=2)(gated.double)
    gated.let(100)
    for item in range(20):
        assert double(item, timeout=PATIENCE if item % 2 else None) == 2 * item
    assert double.describe()["reasons"] == {"delay": 20}
    double.close()

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.embedded.batched import AsyncBatched, Batched, batched
from shoal.errors import DeadlineExceeded, HandlerFailed, QueueFull, Unavailable
from tests.unit.embedded.gates import Caller, Gated, wait_for_queue

Call = Callable[..., Awaitable[int]]


class AsyncGated:
    """Doubles its items, each batch once it is let through, as a coroutine."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self._inside = asyncio.Semaphore(0)
        self._open = asyncio.Semaphore(0)

    async def double(self, items: list[int]) -> list[int]:
        self.batches.append(list(items))
        self._inside.release()
        await self._open.acquire()
        return [2 * item for item in items]

    def let(self, batches: int = 1) -> None:
        for _ in range(batches):
            self._open.release()

    async def wait_inside(self) -> None:
        await self._inside.acquire()


class Subject:
    """A gated function of either kind, called in the same way."""

    def __init__(self, kind: str, **options: Any) -> None:
        self.gated: Gated | AsyncGated = Gated() if kind == "plain" else AsyncGated()
        function: Any = self.gated.double
        self.batched: Any = batched(**options)(function)
        self.call: Call = self.batched.aio if kind == "plain" else self.batched

    async def wait_inside(self) -> None:
        if isinstance(self.gated, Gated):
            await asyncio.to_thread(self.gated.wait_inside)
        else:
            await self.gated.wait_inside()

    async def close(self) -> None:
        if isinstance(self.batched, Batched):
            await asyncio.to_thread(self.batched.close)
        else:
            await self.batched.aclose()


@asynccontextmanager
async def busy(kind: str, **options: Any) -> AsyncIterator[tuple[Subject, "asyncio.Task[int]"]]:
    """A function that is at work on item 0; closed afterwards."""
    subject = Subject(kind, **options)
    first = asyncio.ensure_future(subject.call(0))
    await subject.wait_inside()
    yield subject, first
    await subject.close()


async def turns() -> None:
    """Let every task get as far as it can by itself."""
    for _ in range(5):
        await asyncio.sleep(0)


both = pytest.mark.parametrize("kind", ["plain", "coroutine"])


@both
def test_calls_of_one_turn_leave_together_and_each_task_gets_its_own_result(kind: str) -> None:
    async def main() -> None:
        subject = Subject(kind)
        subject.gated.let()
        assert await asyncio.gather(*map(subject.call, range(8))) == [2 * item for item in range(8)]
        assert subject.gated.batches == [list(range(8))]
        await subject.close()

    asyncio.run(main())


@both
def test_a_cancelled_call_that_waits_is_never_computed(kind: str) -> None:
    async def main() -> None:
        async with busy(kind) as (subject, first):
            second, third = (asyncio.ensure_future(subject.call(item)) for item in (1, 2))
            await turns()
            second.cancel()
            await turns()
            assert second.cancelled()
            assert (subject.batched.describe()["waiting"], subject.batched.describe()["withdrawn"]) == (1, 1)
            subject.gated.let(2)
            assert (await first, await third) == (0, 4)
            assert subject.gated.batches == [[0], [2]]

    asyncio.run(main())


@both
def test_a_call_cancelled_in_its_own_turn_is_never_computed(kind: str) -> None:
    async def main() -> None:
        async with busy(kind) as (subject, first):
            second = asyncio.ensure_future(subject.call(1))
            await asyncio.sleep(0)
            second.cancel()
            await turns()
            subject.gated.let(2)
            assert await first == 0
        assert subject.gated.batches == [[0]]

    asyncio.run(main())


@both
def test_a_coroutine_that_is_dropped_before_its_item_was_offered_leaves_nothing_behind(kind: str) -> None:
    async def main() -> None:
        subject = Subject(kind)
        dropped: Any = subject.call(1)
        dropped.send(None)
        dropped.close()
        await turns()
        assert subject.batched.describe()["waiting"] == 0
        subject.gated.let()
        assert await subject.call(2) == 4
        assert subject.gated.batches == [[2]]
        await subject.close()

    asyncio.run(main())


@both
def test_neighbours_of_a_call_cancelled_while_it_runs_get_their_results(kind: str) -> None:
    async def main() -> None:
        subject = Subject(kind)
        tasks = [asyncio.ensure_future(subject.call(item)) for item in range(3)]
        await subject.wait_inside()
        tasks[1].cancel()
        await turns()
        subject.gated.let()
        await asyncio.wait(tasks)
        assert (tasks[0].result(), tasks[1].cancelled(), tasks[2].result()) == (0, True, 4)
        await subject.close()

    asyncio.run(main())


@both
def test_a_call_whose_time_is_over_says_so_wherever_its_item_is(kind: str) -> None:
    async def main() -> None:
        subject = Subject(kind)
        running = asyncio.ensure_future(subject.call(0, timeout=0.05))
        await subject.wait_inside()
        with pytest.raises(DeadlineExceeded):
            await subject.call(1, timeout=0.01)
        with pytest.raises(DeadlineExceeded):
            await running
        subject.gated.let()
        await subject.close()
        assert subject.gated.batches == [[0]]
        assert subject.batched.describe()["answered"] == 0, "a result that nobody waits for is discarded"

    asyncio.run(main())


@both
def test_a_full_queue_refuses(kind: str) -> None:
    async def main() -> None:
        async with busy(kind, queue_size=1) as (subject, first):
            second = asyncio.ensure_future(subject.call(1))
            await turns()
            with pytest.raises(QueueFull):
                await subject.call(2)
            assert subject.batched.describe()["refused"] == 1
            subject.gated.let(2)
            assert (await first, await second) == (0, 2)

    asyncio.run(main())


@both
def test_closing_finishes_what_was_taken_and_refuses_what_comes(kind: str) -> None:
    async def main() -> None:
        subject = Subject(kind)
        first = asyncio.ensure_future(subject.call(0))
        await subject.wait_inside()
        second = asyncio.ensure_future(subject.call(1))
        await turns()
        closings = [asyncio.ensure_future(subject.close()) for _ in range(2)]
        await turns()
        assert not any(closing.done() for closing in closings)
        subject.gated.let(2)
        await asyncio.gather(*closings)
        assert (await first, await second) == (0, 2)
        with pytest.raises(Unavailable, match="double is closed"):
            await subject.call(2)

    asyncio.run(main())


@both
def test_what_the_function_raises_is_raised_for_every_task_of_the_batch(kind: str) -> None:
    raised = StopIteration("not even this is lost") if kind == "plain" else KeyError("x")

    def fail(items: list[int]) -> list[int]:
        raise raised

    async def fail_later(items: list[int]) -> list[int]:
        raise raised

    async def main() -> None:
        call: Any = batched(fail).aio if kind == "plain" else batched(fail_later)
        ended = await asyncio.gather(*map(call, range(3)), return_exceptions=True)
        assert [raised in (error, error.__cause__) for error in ended] == [True] * 3  # PEP 479 wraps StopIteration

    asyncio.run(main())


def test_a_plain_function_refuses_to_block_an_event_loop() -> None:
    async def main() -> None:
        @batched
        def double(items: list[int]) -> list[int]:
            raise AssertionError("nobody should come here")

        with pytest.raises(RuntimeError, match=r"use `await double\.aio\(item\)`"):
            double(1)

    asyncio.run(main())


def test_threads_and_loops_share_the_batches_of_a_plain_function() -> None:
    gated = Gated()
    double: Batched[int, int] = batched(gated.double)

    async def call(item: int) -> int:
        return await double.aio(item)

    first = Caller(double, 0)
    gated.wait_inside()
    later = [Caller(lambda item: asyncio.run(call(item)), item) for item in (1, 2)] + [Caller(double, 3)]
    wait_for_queue(double, 3)
    gated.let(2)
    assert [caller.result() for caller in (first, *later)] == [0, 2, 4, 6]
    assert sorted(gated.batches[1]) == [1, 2, 3]
    double.close()


def test_a_coroutine_function_runs_on_the_loop_of_its_callers() -> None:
    loops = []

    @batched
    async def double(items: list[int]) -> list[int]:
        loops.append(asyncio.get_running_loop())
        return [2 * item for item in items]

    async def main() -> asyncio.AbstractEventLoop:
        assert await double(2) == 4
        return asyncio.get_running_loop()

    assert [asyncio.run(main()) for _ in range(3)] == loops


def test_a_batch_runs_in_none_of_its_callers_contexts() -> None:
    user: ContextVar[str] = ContextVar("user", default="nobody")

    @batched
    async def whose(items: list[int]) -> list[str]:
        return [user.get() for _ in items]

    async def main() -> None:
        user.set("ada")
        assert await whose(1) == "nobody"

    asyncio.run(main())


def test_a_function_that_is_cancelled_does_not_cancel_its_callers() -> None:
    @batched
    async def give_up(items: list[int]) -> list[int]:
        raise asyncio.CancelledError

    async def main() -> None:
        with pytest.raises(HandlerFailed, match="give_up was cancelled"):
            await give_up(1)

    asyncio.run(main())


@both
def test_a_loop_may_end_while_a_batch_runs(kind: str) -> None:
    subjects: list[Subject] = []

    async def main() -> None:
        subject = Subject(kind)
        subjects.append(subject)
        asyncio.ensure_future(subject.call(0)).add_done_callback(lambda _: None)
        await subject.wait_inside()

    asyncio.run(main())
    (subject,) = subjects
    subject.gated.let()
    if isinstance(subject.batched, Batched):
        subject.batched.close()


def test_a_loop_closed_under_its_callers_does_not_harm_the_worker() -> None:
    gated = Gated()
    double: Batched[int, int] = batched(gated.double)
    loop = asyncio.new_event_loop()
    left = loop.create_task(double.aio(1))
    loop.run_until_complete(turns())
    gated.wait_inside()
    loop.close()
    gated.let(2)
    assert double(2) == 4
    double.close()
    left._log_destroy_pending = False  # type: ignore[attr-defined]  # it is what this test is about


Steps = st.lists(
    st.one_of(
        st.tuples(st.just("call"), st.integers(1, 5)),
        st.tuples(st.just("cancel"), st.integers(0, 30)),
        st.tuples(st.just("let"), st.integers(1, 2)),
        st.tuples(st.just("turn"), st.integers(1, 3)),
    ),
    max_size=25,
)


@both
@given(steps=Steps, workers=st.integers(1, 3), size=st.integers(0, 4))
@settings(max_examples=200, deadline=None)
def test_whoever_leaves_whenever_each_caller_gets_its_own_result_once(
    kind: str, steps: list[tuple[str, int]], workers: int, size: int
) -> None:
    async def main() -> None:
        subject = Subject(kind, workers=workers, batch_size=size, policy="adaptive")
        tasks: list[asyncio.Future[int]] = []
        for step, number in steps:
            match step:
                case "call":
                    tasks += [asyncio.ensure_future(subject.call(len(tasks) + i)) for i in range(number)]
                case "cancel":
                    if number < len(tasks):
                        tasks[number].cancel()
                case "let":
                    subject.gated.let(number)
                case "turn":
                    for _ in range(number):
                        await asyncio.sleep(0)
        subject.gated.let(len(tasks) + 1)
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        await subject.close()
        computed = [item for batch in subject.gated.batches for item in batch]
        assert len(set(computed)) == len(computed), "an item was computed twice"
        assert not size or all(len(batch) <= size for batch in subject.gated.batches)
        for item, (task, result) in enumerate(zip(tasks, ended, strict=True)):
            assert task.cancelled() or (result == 2 * item and item in computed)
        facts = subject.batched.describe()
        assert facts["waiting"] == 0
        left = sum(tasks[item].cancelled() for item in computed)  # a result may cross a cancellation on its way
        assert len(computed) - left <= facts["answered"] <= len(computed)

    asyncio.run(main())


def test_both_kinds_have_the_types_their_users_see() -> None:
    assert isinstance(batched(lambda items: items), Batched)
    assert isinstance(batched(AsyncGated().double), AsyncBatched)

"""Triton's dynamic batcher, row by row of what was seen of it, through the real scheduler."""

import math
from typing import Any

import pytest

from shoal.core.policy import Hold, Leave
from shoal.core.preferred import Preferred, decide
from shoal.payload import Result
from tests.support import ask
from tests.unit.core.executions import Server


def dynamic(**settings: Any) -> dict[str, Any]:
    return {"dynamic_batching": settings}


PREFERRED = dynamic(preferred_batch_size=[4])
DELAYED = dynamic(preferred_batch_size=[4], max_queue_delay_microseconds=500_000)
ONLY_DELAY = dynamic(max_queue_delay_microseconds=500_000)


def after_one(settings: dict[str, Any], *rows: int) -> Server:
    """One request runs; the others come while it does."""
    server = Server(settings)
    server.arrive()
    server.until(0.05)
    for count in rows:
        server.arrive(count)
    server.finish()
    return server


def ones(count: int) -> list[int]:
    return [1] * count


def test_on_an_idle_instance_the_first_goes_alone_at_once() -> None:
    server = Server(dynamic())
    for _ in range(5):
        server.arrive()
    server.finish()

    assert server.sizes == [ones(1), ones(4)]
    assert server.starts == [0.0, 0.2]


@pytest.mark.parametrize(
    ("settings", "rows", "expected"),
    [
        (dynamic(), ones(10), [ones(8), ones(2)]),
        (dynamic(), ones(20), [ones(8), ones(8), ones(4)]),
        (dynamic(), [5, 5, 3], [[5], [5, 3]]),
        (PREFERRED, ones(7), [ones(4), ones(3)]),
        (PREFERRED, ones(10), [ones(4), ones(4), ones(2)]),
    ],
)
def test_what_came_while_one_ran_leaves_in_these_batches(
    settings: dict[str, Any], rows: list[int], expected: list[list[int]]
) -> None:
    assert after_one(settings, *rows).sizes == [[1], *expected]


@pytest.mark.parametrize(
    ("settings", "count", "expected"),
    [
        (DELAYED, 3, [(0.5, 3)]),
        (DELAYED, 4, [(0.0, 4)]),
        (DELAYED, 6, [(0.0, 4), (0.5, 2)]),
        (ONLY_DELAY, 3, [(0.5, 3)]),
        (ONLY_DELAY, 8, [(0.0, 8)]),
        (ONLY_DELAY, 10, [(0.0, 8), (0.5, 2)]),
    ],
)
def test_with_a_delay_an_idle_instance_waits_too(
    settings: dict[str, Any], count: int, expected: list[tuple[float, int]]
) -> None:
    server = Server(settings)
    for _ in range(count):
        server.arrive()
    server.finish()

    assert [(began, len(rows)) for began, rows, _ in server.executions] == expected


def test_one_that_goes_past_the_largest_preferred_size_sends_those_before_it() -> None:
    server = Server(DELAYED)
    server.arrive(3)
    server.until(0.1)
    server.arrive(3)
    server.finish()

    assert server.sizes == [[3], [3]]
    assert server.starts == [0.1, 0.6]


def test_the_delay_counts_from_the_oldest_that_waits() -> None:
    server = Server(ONLY_DELAY)
    for number in range(8):
        server.until(0.1 * number)
        server.arrive()
    server.finish()

    assert server.sizes == [ones(5), ones(3)]
    assert server.starts == [0.5, 1.0]


def test_two_busy_instances_share_what_waits_as_they_come_free() -> None:
    server = Server(dynamic(), 2, i1=0.25)
    for _ in range(2):
        server.arrive()
    for _ in range(10):
        server.arrive()
    server.finish()

    assert server.sizes == [[1], [1], ones(8), ones(2)]
    assert [execution.instance for execution in server.executions[2:]] == ["i0", "i1"]


def test_requests_of_one_turn_of_the_loop_leave_together() -> None:
    server = Server(dynamic())
    for _ in range(5):
        server.arrive(alone=False)
    server.finish()

    assert server.sizes == [ones(5)]


def test_another_shape_sends_those_before_it_and_is_never_passed_by() -> None:
    server = Server(dynamic(max_queue_delay_microseconds=300_000))
    for number, shape in enumerate([4, 4, 5, 4]):
        server.until(0.01 * number)
        server.arrive(group=shape)
    server.finish()

    groups = [[request.group for request in batch.requests] for batch in server.batches]
    assert groups == [[4, 4], [5], [4]]
    assert server.starts == [0.02, 0.22, 0.42]


def test_shapes_that_alternate_travel_one_by_one() -> None:
    server = after_one(dynamic())
    server.arrive()
    for shape in (1, 2, 1, 2):
        server.arrive(group=shape)
    server.finish()

    assert [batch.requests[0].group for batch in server.batches[2:]] == [1, 2, 1, 2]


def test_once_the_oldest_has_waited_preferred_sizes_are_not_looked_at() -> None:
    server = Server(DELAYED, took=1.0)
    server.arrive(4)
    server.until(0.3)
    for _ in range(6):
        server.arrive()
    server.finish()

    assert server.sizes == [[4], ones(6)]
    assert server.starts == [0.0, 1.0]


def test_whoever_leaves_can_make_the_rest_a_preferred_size() -> None:
    server = Server(dynamic(preferred_batch_size=[2, 6], max_queue_delay_microseconds=500_000))
    first = server.arrive(1)
    server.until(0.1)
    server.arrive(2)
    assert server.executions == []

    server.scheduler.withdraw(first, server.now)
    server.settle()
    assert (server.sizes, server.starts) == ([[2]], [0.1])


def test_without_dynamic_batching_nobody_is_merged_and_first_come_is_first_served() -> None:
    server = Server({})
    requests = [
        server.arrive(rows, group, level=level) for rows, group, level in [(1, "a", 3), (8, "b", 1), (2, "a", 2)]
    ]
    requests.append(server.arrive(1, "b"))
    server.finish()

    assert server.sizes == [[1], [8], [2], [1]]
    assert [batch.requests[0] for batch in server.batches] == requests


# -- the scenario of five requests -------------------------------------------------------------------------------------

X = 0.9


def scenario(settings: dict[str, Any], instances: int, *, together: bool) -> Server:
    """A and C come at 0, B at X/3, D and E at 2X/3."""
    server = Server(settings, instances, took=X)
    for time, rows in [(0.0, (4, 2)), (X / 3, (2,)), (2 * X / 3, (6, 2))]:
        server.until(time)
        for count in rows:
            server.arrive(count, alone=not together)
    server.finish()
    return server


def length(settings: dict[str, Any], instances: int = 1, *, together: bool = True) -> float:
    return round(scenario(settings, instances, together=together).finish() / X, 3)


@pytest.mark.parametrize("together", [True, False])
def test_five_requests_take_five_times_as_long_alone_and_three_times_in_batches(together: bool) -> None:
    assert length({}, together=together) == 5.0
    assert length(dynamic(), together=together) == 3.0


def test_a_delay_fills_the_batches_and_two_instances_halve_the_wait() -> None:
    delayed = dynamic(max_queue_delay_microseconds=int(X / 2 * 1e6))
    server = scenario(delayed, 1, together=False)

    assert server.sizes == [[4, 2, 2], [6, 2]]
    assert length(delayed) == round(7 / 3, 3)
    assert length({}, 2) == 3.0
    assert length(dynamic(), 2) == length(dynamic(), 2, together=False) == 2.0
    assert length(delayed, 2) == round(5 / 3, 3)


# -- the rule itself ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "sizes", "expected"),
    [
        ([1, 1], [2, 4], 2),
        ([1, 1, 1], [2, 4], 2),
        ([1, 1, 1, 1, 1], [2, 4], 4),
        ([3, 3], [4], 3),
        ([2, 1, 3], [2, 4], 2),
        ([6], [4], 6),
        ([6, 2], [4], 6),
        ([3, 2, 3], [4], 3),
        ([9], [8], 9),
        ([1], [8], 1),
    ],
)
def test_the_point_where_a_batch_ends_without_a_delay(rows: list[int], sizes: list[int], expected: int) -> None:
    decision = decide([ask(rows=count) for count in rows], sizes, 8, 0.0, 5.0)

    assert isinstance(decision, Leave)
    assert decision.rows == expected


def test_one_larger_than_every_preferred_size_waits_for_nobody() -> None:
    assert decide([ask(rows=6)], [4], 8, 0.5, 0.0) == Leave(6, "preferred")


def test_the_oldest_is_the_oldest_of_all_that_wait() -> None:
    urgent, older = ask(arrived=2.0), ask(arrived=1.0)

    assert decide([urgent, older], [8], 8, 0.5, 1.4) == Hold(1.5, "delay")


def test_it_tells_what_it_was_given_and_learns_nothing() -> None:
    policy = Preferred(8, [4, 2, 4], 0.002)

    assert policy.describe() == {
        "batch_size": 8,
        "preferred_batch_size": [2, 4],
        "max_queue_delay_microseconds": 2000,
    }
    assert Preferred(8).sizes == [8]
    assert policy.retry_after(10, Server({}).batcher.fleet) == 1.0


# -- answers in order --------------------------------------------------------------------------------------------------


def test_with_preserve_ordering_a_slow_first_request_holds_the_others_back() -> None:
    server = Server(dynamic(preferred_batch_size=[1], preserve_ordering=True), 2, i0=1.0, i1=0.1)
    requests = [server.arrive() for _ in range(4)]
    server.until(0.9)
    assert [execution.instance for execution in server.executions] == ["i0", "i1", "i1", "i1"]
    assert [len(request.ear.heard) for request in requests] == [0, 0, 0, 0]

    server.until(1.0)
    assert all(isinstance(request.ear.last, Result) for request in requests)


def test_without_it_they_are_not_held_back() -> None:
    server = Server(dynamic(preferred_batch_size=[1]), 2, i0=1.0, i1=0.1)
    requests = [server.arrive() for _ in range(4)]
    server.until(0.9)

    assert [len(request.ear.heard) for request in requests] == [0, 1, 1, 1]
    assert server.alarm.time == math.inf

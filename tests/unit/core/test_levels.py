"""Queue policies and priority levels: who waits how long, how many, and who goes first."""

import math
from typing import Any

import pytest

from shoal.config.scheduling import QueuePolicy
from shoal.core.batch import Batch
from shoal.core.levels import LevelQueue
from shoal.core.request import State
from shoal.errors import DeadlineExceeded, LevelFull, QueueFull, QueueTimeout, WorkerDied
from shoal.payload import Result
from tests.support import Asked, ask
from tests.unit.core.executions import Server

REJECT = {"timeout_action": "REJECT", "default_timeout_microseconds": 300_000}
DELAY = {"timeout_action": "DELAY", "default_timeout_microseconds": 300_000}


def busy(took: float = 1.0, instances: int = 1, **settings: Any) -> Server:
    """A server whose instance has just begun a batch."""
    server = Server({"dynamic_batching": settings}, instances, took=took)
    server.arrive(8)
    return server


def ran(server: Server) -> list[list[Asked]]:
    return [list(batch.requests) for batch in server.batches[1:]]  # type: ignore[arg-type]


# -- time-outs -----------------------------------------------------------------------------------------------------


def test_one_that_waited_too_long_is_rejected_at_that_moment() -> None:
    server = busy(default_queue_policy=REJECT)
    late = server.arrive()
    assert server.alarm.time == 0.3

    server.until(0.3)
    assert isinstance(late.ear.last, QueueTimeout)
    assert str(late.ear.last) == "Request timeout expired"
    assert (late.state, server.stats.expired) == (State.EXPIRED, 1)
    assert late.block.released == 1
    server.finish()
    assert ran(server) == []


def test_a_time_out_ends_when_the_request_leaves() -> None:
    server = Server({"dynamic_batching": {"default_queue_policy": REJECT}}, took=1.0)
    request = server.arrive()
    server.finish()

    assert isinstance(request.ear.last, Result)


@pytest.mark.parametrize(
    ("policy", "own", "expected"),
    [
        ({"default_timeout_microseconds": 300_000}, 0.1, 0.3),
        ({"default_timeout_microseconds": 300_000, "allow_timeout_override": True}, 0.1, 0.1),
        ({"default_timeout_microseconds": 300_000, "allow_timeout_override": True}, 0.5, 0.3),
        ({"default_timeout_microseconds": 300_000, "allow_timeout_override": True}, 0.0, 0.3),
        ({"allow_timeout_override": True}, 0.1, math.inf),
        ({}, 0.1, math.inf),
    ],
)
def test_a_requests_own_time_out_can_only_shorten_the_policys(
    policy: dict[str, Any], own: float, expected: float
) -> None:
    server = busy(default_queue_policy=policy)
    server.arrive(timeout=own)

    assert server.batcher.queue.next_deadline() == expected


def test_the_delayed_go_behind_the_others_of_their_level_and_never_expire_again() -> None:
    server = busy(preferred_batch_size=[1], default_queue_policy=DELAY, took=0.4)
    first, second = server.arrive(), server.arrive()
    server.until(0.35)
    third = server.arrive()
    server.finish()

    assert ran(server) == [[third], [first], [second]]
    assert all(isinstance(request.ear.last, Result) for request in (first, second, third))
    assert server.stats.expired == 0


def test_one_in_the_middle_can_be_the_first_to_be_delayed() -> None:
    server = busy(preferred_batch_size=[1], default_queue_policy={**DELAY, "allow_timeout_override": True}, took=0.12)
    first, second, third = server.arrive(), server.arrive(timeout=0.1), server.arrive()
    server.until(1.0)

    assert ran(server) == [[first], [third], [second]]


def test_a_deadline_ends_a_request_whatever_the_policy_says() -> None:
    server = busy(default_queue_policy=DELAY)
    request = ask(deadline=0.5)
    server.send(request)
    server.until(0.5)

    assert isinstance(request.ear.last, DeadlineExceeded)
    assert not isinstance(request.ear.last, QueueTimeout)


def test_a_free_instance_is_not_left_waiting_by_queue_policies() -> None:
    server = busy(max_queue_delay_microseconds=0, default_queue_policy={"max_queue_size": 100}, took=0.01)
    for _ in range(40):
        server.arrive()
    server.finish()

    assert server.starts == [0.0, 0.01, 0.02, 0.03, 0.04, 0.05]


# -- sizes -----------------------------------------------------------------------------------------------------------


def test_a_full_level_refuses_at_once_and_says_so() -> None:
    server = busy(default_queue_policy={"max_queue_size": 2})
    waiting = [server.arrive() for _ in range(2)]
    with pytest.raises(LevelFull, match=r"^Exceeds maximum queue size$"):
        server.arrive()
    assert issubclass(LevelFull, QueueFull)

    server.scheduler.withdraw(waiting[0], server.now)
    server.arrive()
    with pytest.raises(LevelFull):
        server.arrive()
    server.until(1.1)
    server.arrive()


def test_each_level_has_its_own_room_and_the_delayed_count() -> None:
    policies = {"1": {"max_queue_size": 1}, "2": {**DELAY, "max_queue_size": 1}}
    server = busy(priority_levels=2, default_priority_level=2, priority_queue_policy=policies)
    server.arrive(level=1)
    server.arrive(level=2)
    server.until(0.5)

    for level in (1, 2, 0, 7):
        with pytest.raises(LevelFull):
            server.arrive(level=level)


def test_the_models_own_limit_holds_over_all_levels() -> None:
    queue = LevelQueue("m", 2)
    queue.add(ask(), lambda: 3.0)
    queue.add(ask(), lambda: 3.0)

    with pytest.raises(QueueFull, match="already has 2 requests") as refused:
        queue.add(ask(), lambda: 3.0)
    assert refused.value.retry_after == 3.0


# -- levels ------------------------------------------------------------------------------------------------------------


def test_the_first_level_goes_first_and_a_batch_may_mix_levels() -> None:
    server = busy(priority_levels=3, default_priority_level=2)
    wanted = [3, 0, 1, 9, 2, 3, 1]
    requests = [server.arrive(level=level) for level in wanted]
    server.finish()

    third, default, first, other, second, last, early = requests
    assert ran(server) == [[first, early, default, other, second, third, last]]


def test_an_urgent_late_comer_joins_the_batch_that_waits() -> None:
    server = Server(
        {
            "dynamic_batching": {
                "priority_levels": 2,
                "default_priority_level": 2,
                "preferred_batch_size": [2],
                "max_queue_delay_microseconds": 500_000,
            }
        }
    )
    usual = server.arrive()
    server.until(0.1)
    urgent = server.arrive(level=1)

    assert [list(batch.requests) for batch in server.batches] == [[urgent, usual]]


def test_the_delayed_of_a_level_go_before_the_next_level() -> None:
    policies = {"1": DELAY}
    server = busy(
        preferred_batch_size=[1], priority_levels=2, default_priority_level=2, priority_queue_policy=policies, took=0.4
    )
    usual, early = server.arrive(level=2), server.arrive(level=1)
    server.until(0.35)
    fresh = server.arrive(level=1)
    server.finish()

    assert ran(server) == [[fresh], [early], [usual]]


# -- coming back -----------------------------------------------------------------------------------------------------


def test_those_whose_worker_died_go_first_and_their_time_out_is_over() -> None:
    server = Server({"dynamic_batching": {"default_queue_policy": REJECT}}, took=1.0)
    first = server.arrive()
    second = server.arrive()
    server.until(0.2)
    server.kill("i0")
    server.until(0.29)
    third = server.arrive()
    server.until(0.4)
    assert isinstance(second.ear.last, QueueTimeout)
    assert not first.ear.heard

    server.join("i1")
    assert list(server.batches[-1].requests) == [first, third]


def test_of_one_that_comes_back_only_the_deadline_is_watched() -> None:
    policies = [QueuePolicy(default_timeout_microseconds=300_000), QueuePolicy(default_timeout_microseconds=100_000)]
    queue = LevelQueue("m", 10, policies, 2)
    stays, leaves, ends = ask(priority=2), ask(priority=1), ask(priority=1, deadline=0.4)
    for request in (stays, leaves, ends):
        line = queue.add(request, lambda: 1.0)
    batch = Batch(1, queue.pop(line, 2), "test", 0.0)
    assert queue.next_deadline() == 0.1
    queue.add_first(batch.close(0.2, lambda: WorkerDied("gone"), retry=3))

    assert list(queue.expired(0.39)) == [stays]
    assert list(queue.expired(0.5)) == [ends]


def test_the_queue_forgets_those_who_left_however_many() -> None:
    queue = LevelQueue("m", 10_000)
    stays = ask(rows=3)
    queue.add(stays, lambda: 1.0)
    for number in range(1000):
        request = ask(arrived=float(number))
        queue.add(request, lambda: 1.0)
        request.withdraw(1.0)
        queue.forget(request)

    line = queue.head()
    assert line is not None
    assert (len(queue), line.rows, list(line)) == (1, 3, [stays])
    assert sum(len(level.fresh) for level in line.levels) < 100
    assert queue.pop(line, 8) == [stays]
    assert queue.head() is None


def test_everybody_can_be_taken_out() -> None:
    queue = LevelQueue("m", 10, [QueuePolicy(max_queue_size=1)] * 2, 2)
    requests = [ask(priority=1), ask(priority=2)]
    for request in requests:
        queue.add(request, lambda: 1.0)
    assert queue.drain() == requests
    assert len(queue) == 0
    queue.add(ask(priority=1), lambda: 1.0)


def test_the_line_is_read_by_place() -> None:
    queue = LevelQueue("m", 10)
    requests = [ask(), ask()]
    for request in requests:
        line = queue.add(request, lambda: 1.0)

    assert (line[0], line[1], len(line)) == (requests[0], requests[1], 2)
    with pytest.raises(IndexError):
        line[2]

import math

import pytest

from shoal.core.batch import Batch
from shoal.core.batcher import Batcher, WaitUntil
from shoal.core.policy import Fixed, Hold, Leave, Policy, Refuse, Single
from shoal.core.queue import RequestQueue
from shoal.core.request import State
from shoal.errors import DeadlineExceeded, QueueFull
from shoal.payload import Result
from tests.support import Asked, Scripted, ask


def batcher_of(policy: Policy, *requests: Asked, limit: int = 100) -> Batcher:
    batcher = Batcher(RequestQueue("m", limit), policy)
    for request in requests:
        batcher.offer(request, request.arrived)
    return batcher


def take(batcher: Batcher, now: float = 0.0) -> Batch:
    batch = batcher.take("a", now)
    assert isinstance(batch, Batch), batch
    return batch


def test_a_lone_request_leaves_when_its_delay_ends() -> None:
    lone = ask(arrived=1.000)
    batcher = batcher_of(Fixed(8, 0.005), lone)

    assert batcher.take("a", 1.000) == WaitUntil(1.005, "delay")
    assert batcher.take("a", 1.004) == WaitUntil(1.005, "delay")
    assert list(take(batcher, 1.005).requests) == [lone]
    assert batcher.take("a", 1.006) is None


def test_a_batch_says_its_number_its_reason_and_when_it_left() -> None:
    batcher = batcher_of(Single(), ask(), ask())
    first, second = take(batcher, 1.0), take(batcher, 2.0)

    assert (first.number, second.number) == (1, 2)
    assert (second.reason, second.left) == ("single", 2.0)


def test_a_batch_has_one_group() -> None:
    batcher = batcher_of(Scripted(), ask(group="a"), ask(group="b"), ask(group="a"))

    assert [request.group for request in take(batcher).requests] == ["a", "a"]
    assert [request.group for request in take(batcher).requests] == ["b"]


def test_a_batch_has_one_priority() -> None:
    batcher = batcher_of(Scripted(), ask(priority=1), ask(priority=0), ask(priority=1))

    assert [request.priority for request in take(batcher).requests] == [0]
    assert [request.priority for request in take(batcher).requests] == [1, 1]


def test_a_batch_holds_at_most_the_rows_the_policy_says() -> None:
    requests = [ask(rows=2) for _ in range(4)]
    batcher = batcher_of(Scripted(Leave(5, "five")), *requests)

    assert list(take(batcher).requests) == requests[:2]


def test_the_refused_are_not_told_to_the_policy_and_get_its_hint() -> None:
    policy = Scripted()
    batcher = batcher_of(policy, ask(), limit=1)

    with pytest.raises(QueueFull) as refused:
        batcher.offer(ask(), 0.0)
    assert refused.value.retry_after == 7.0
    assert len(policy.told) == 1


def test_those_the_policy_gives_up_end_and_the_next_are_asked_about() -> None:
    lost, saved = ask(arrived=1.0), ask(arrived=1.0)
    batcher = batcher_of(Scripted(Refuse([lost])), lost, saved)
    batch = take(batcher, 1.25)

    assert list(batch.requests) == [saved]
    assert isinstance(lost.ear.last, DeadlineExceeded)
    assert "(250 ms)" in str(lost.ear.last)
    assert lost.state is State.EXPIRED
    assert lost.block.released == 1
    assert batcher.expired == 1


def test_nothing_is_taken_when_everybody_is_given_up() -> None:
    one, two = ask(), ask()
    batcher = batcher_of(Scripted(Refuse([one, two])), one, two)

    assert batcher.take("a", 0.0) is None
    assert len(batcher.queue) == 0


def test_those_past_their_deadline_end_while_they_wait() -> None:
    late, calm = ask(deadline=1.0), ask()
    batcher = batcher_of(Single(), late, calm)
    batcher.expire(0.5)
    assert not late.has_ended
    batcher.expire(1.0)

    assert isinstance(late.ear.last, DeadlineExceeded)
    assert len(batcher.queue) == 1
    assert batcher.expired == 1
    assert list(take(batcher, 1.0).requests) == [calm]


def test_a_busy_instance_is_sent_no_second_batch_unless_the_policy_says_so() -> None:
    never = batcher_of(Scripted(), ask())
    later = batcher_of(Scripted(ahead=2.0), ask())

    assert never.take("a", 1.0, is_busy=True) == WaitUntil(math.inf, "ahead")
    assert later.take("a", 1.0, is_busy=True) == WaitUntil(2.0, "ahead")
    assert isinstance(later.take("a", 2.0, is_busy=True), Batch)


def test_a_hold_says_until_when_and_why() -> None:
    batcher = batcher_of(Scripted(Hold(3.0, "company")), ask())

    assert batcher.take("a", 1.0) == WaitUntil(3.0, "company")


def test_nothing_is_taken_when_nobody_waits() -> None:
    assert batcher_of(Single()).take("a", 0.0) is None


def test_one_that_left_while_it_waited_is_not_taken() -> None:
    gone, here = ask(), ask()
    batcher = batcher_of(Scripted(), gone, here)

    assert batcher.withdraw(gone, 0.0)
    assert not batcher.withdraw(gone, 0.0)
    assert len(batcher.queue) == 1
    assert list(take(batcher).requests) == [here]


def test_one_that_leaves_while_it_runs_stays_in_its_batch() -> None:
    gone, here = ask(), ask()
    batcher = batcher_of(Scripted(), gone, here)
    batch = take(batcher)

    assert batcher.withdraw(gone, 0.0)
    assert list(batch.requests) == [gone, here]
    assert len(batcher.queue) == 0


def test_one_that_was_answered_cannot_leave() -> None:
    request = ask()
    batcher = batcher_of(Scripted(), request)
    take(batcher).deliver(0, Result(b"yes"), True, 1.0)

    assert not batcher.withdraw(request, 1.0)


def test_the_policy_hears_of_arrivals_of_what_was_sent_and_of_what_was_done() -> None:
    policy = Scripted()
    request = ask()
    batcher = batcher_of(policy, request)
    batch = take(batcher)
    batcher.sent(batch, 0.0)
    batcher.done(batch, 1.0)

    assert policy.told == [("arrived", request), ("sent", batch), ("done", batch)]

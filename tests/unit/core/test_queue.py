import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core.queue import PATIENCE, GroupLane, RequestQueue, client_of, most_of
from shoal.core.request import Request, State
from shoal.errors import QueueFull, ShareUsed
from tests.support import Asked, ask


def never() -> float:
    raise AssertionError("only the refused are given a hint")


def queue_of(*requests: Asked, limit: int = 100) -> RequestQueue:
    queue = RequestQueue("m", limit)
    for request in requests:
        queue.add(request, never)
    return queue


def head(queue: RequestQueue) -> GroupLane:
    lane = queue.head()
    assert lane is not None
    return lane


def empty(queue: RequestQueue, rows: int = 1) -> list[Request]:
    """Everybody, in the order they leave."""
    left: list[Request] = []
    while (lane := queue.head()) is not None:
        left += queue.pop(lane, rows)
    return left


def leave(queue: RequestQueue, request: Asked) -> None:
    request.withdraw(0.0)
    queue.forget(request)


def test_equals_leave_in_the_order_they_came() -> None:
    requests = [ask() for _ in range(5)]

    assert empty(queue_of(*requests)) == requests


def test_a_full_queue_refuses_and_takes_nothing() -> None:
    queue = queue_of(ask(), ask(), limit=2)

    with pytest.raises(QueueFull, match="'m' already has 2 requests waiting") as refused:
        queue.add(ask(), lambda: 7.0)
    assert refused.value.retry_after == 7.0
    assert len(queue) == 2
    assert head(queue).rows == 2


def test_the_limit_counts_requests_and_not_rows() -> None:
    assert len(queue_of(ask(rows=50), ask(rows=50), limit=2)) == 2


def test_whoever_leaves_makes_room() -> None:
    first = ask()
    queue = queue_of(first, ask(), limit=2)
    leave(queue, first)
    queue.add(ask(), never)
    queue.pop(head(queue), 1)
    queue.add(ask(), never)

    assert len(queue) == 2


def test_the_smaller_priority_leaves_first() -> None:
    late, early, middle = ask(priority=5), ask(priority=-1), ask(priority=0)

    assert empty(queue_of(late, early, middle)) == [early, middle, late]


def test_the_nearer_deadline_leaves_first() -> None:
    calm, urgent, soon = ask(), ask(deadline=2.0), ask(deadline=1.0)

    assert empty(queue_of(calm, urgent, soon)) == [soon, urgent, calm]


def test_urgent_requests_cannot_starve_one_without_a_deadline() -> None:
    patient = ask(arrived=0.0)
    urgent = ask(arrived=PATIENCE - 1.0, deadline=PATIENCE + 1.0)

    assert empty(queue_of(patient, urgent)) == [patient, urgent]


def test_one_that_arrived_earlier_leaves_first_although_it_was_offered_later() -> None:
    late, early = ask(arrived=5.0), ask(arrived=1.0)

    assert empty(queue_of(late, early)) == [early, late]


def test_requests_with_one_deadline_do_not_overtake_each_other() -> None:
    first, second, third = (ask(deadline=5.0) for _ in range(3))
    other = ask(deadline=9.0)

    assert empty(queue_of(first, other, second, third)) == [first, second, third, other]


def test_groups_wait_apart_and_the_one_due_first_has_its_turn() -> None:
    one, two, three = ask(group="a"), ask(group="b", deadline=3.0), ask(group="a", deadline=4.0)
    queue = queue_of(one, two, three)

    assert list(head(queue)) == [two]
    assert queue.pop(head(queue), 10) == [two]
    assert queue.pop(head(queue), 10) == [three, one]


def test_a_smaller_priority_is_served_before_a_nearer_deadline() -> None:
    calm, urgent = ask(priority=0), ask(priority=1, deadline=1.0)

    assert empty(queue_of(urgent, calm)) == [calm, urgent]


def test_pop_takes_as_many_rows_as_fit_and_stops_at_the_first_that_does_not() -> None:
    requests = [ask(rows=rows) for rows in (2, 3, 4, 1)]
    queue = queue_of(*requests)

    assert queue.pop(head(queue), 6) == requests[:2]
    assert head(queue).rows == 5
    assert len(queue) == 2


def test_a_request_larger_than_a_batch_travels_alone() -> None:
    large, small = ask(rows=9), ask()
    queue = queue_of(large, small)

    assert queue.pop(head(queue), 4) == [large]
    assert queue.pop(head(queue), 4) == [small]


def test_all_of_a_lane_leaves_when_it_fits() -> None:
    requests = [ask(rows=2) for _ in range(3)]
    queue = queue_of(*requests)

    assert queue.pop(head(queue), 6) == requests
    assert len(queue) == 0
    assert queue.head() is None


def test_whoever_left_is_not_seen_again() -> None:
    one, two, three = ask(rows=2), ask(rows=3), ask(rows=4)
    queue = queue_of(one, two, three)
    leave(queue, two)
    lane = head(queue)

    assert len(queue) == len(lane) == 2
    assert lane.rows == 6
    assert list(lane) == [one, three]
    assert lane[1] is three
    leave(queue, one)
    assert queue.pop(lane, 3) == [three]


def test_a_nearer_deadline_finds_its_place_among_those_that_left() -> None:
    gone, calm, urgent = ask(deadline=1.0), ask(), ask(deadline=2.0)
    queue = queue_of(gone, calm)
    leave(queue, gone)
    queue.add(urgent, never)

    assert empty(queue) == [urgent, calm]


def test_a_lane_survives_an_arrival_between_an_end_and_its_being_forgotten() -> None:
    """Whoever hears that it was refused may ask again at once, before the queue has crossed it out."""
    gone, refused, calm = ask(deadline=1.0), ask(deadline=2.0), ask()
    queue = queue_of(gone, refused, calm)
    leave(queue, gone)
    refused.withdraw(0.0)
    again = ask(deadline=3.0)
    queue.add(again, never)
    queue.forget(refused)

    assert len(queue) == len(head(queue)) == 2
    assert empty(queue) == [again, calm]


def taken(queue: RequestQueue, rows: int) -> list[Request]:
    """Pop as a batch does, and hand back as a dead worker does."""
    requests = queue.pop(head(queue), rows)
    for request in requests:
        request.attempts += 1
    return requests


def test_requests_taken_back_go_first_in_their_order_whatever_the_limit() -> None:
    requests = [ask() for _ in range(4)]
    queue = queue_of(*requests, limit=4)
    back = taken(queue, 2)
    queue.add(late := ask(), never)
    queue.add(later := ask(), never)
    queue.add_first(back)

    assert len(queue) == 6
    assert head(queue).rows == 6
    assert empty(queue) == [*requests, late, later]


def test_requests_taken_back_go_before_nearer_deadlines() -> None:
    calm = ask()
    queue = queue_of(calm)
    back = taken(queue, 1)
    queue.add(waiting := ask(deadline=5.0), never)
    queue.add_first(back)
    queue.add(urgent := ask(deadline=1.0), never)

    assert empty(queue) == [calm, urgent, waiting]


def test_requests_taken_back_do_not_mix_up_those_behind_them() -> None:
    calm = [ask() for _ in range(3)]
    queue = queue_of(*calm)
    back = taken(queue, 3)
    first, last = ask(deadline=5.0), ask(deadline=50.0)
    queue.add(first, never)
    queue.add(last, never)
    queue.add_first(back)
    queue.add(second := ask(deadline=5.0), never)

    assert empty(queue) == [*calm, first, second, last]


def test_taken_back_requests_find_their_own_lanes() -> None:
    queue = queue_of()
    one, two = ask(group="a", priority=1), ask(group="b")
    queue.add_first([one, two])

    assert empty(queue) == [two, one]


def test_the_expired_are_given_once_their_deadline_has_come_nearest_first() -> None:
    late, soon, never_late = ask(deadline=2.0), ask(deadline=1.0), ask()
    queue = queue_of(late, soon, never_late)

    assert list(queue.expired(0.999)) == []
    assert list(queue.expired(1.0)) == [soon]
    assert list(queue.expired(5.0)) == [late]


def test_whoever_left_or_runs_does_not_expire() -> None:
    gone, running = ask(deadline=1.0), ask(deadline=2.0)
    queue = queue_of(gone, running)
    leave(queue, gone)
    assert queue.next_deadline() == 2.0
    queue.pop(head(queue), 1)
    running.state = State.RUNNING

    assert queue.next_deadline() == math.inf
    assert list(queue.expired(9.0)) == []


def test_a_request_taken_back_still_expires_once() -> None:
    request = ask(deadline=1.0)
    queue = queue_of(request)
    back = taken(queue, 1)
    request.state = State.RUNNING
    assert queue.next_deadline() == math.inf
    request.state = State.QUEUED
    queue.add_first(back)

    assert queue.next_deadline() == 1.0
    for expired in queue.expired(2.0):
        expired.withdraw(2.0)
        queue.forget(expired)
    assert len(queue) == 0


def test_deadlines_of_the_ended_are_forgotten_in_the_long_run() -> None:
    queue = queue_of()
    for _ in range(5000):
        request = ask(deadline=1.0)
        queue.add(request, never)
        leave(queue, request)

    assert len(queue._deadlines) <= 1100


def test_inventing_groups_and_priorities_leaves_nothing_behind() -> None:
    queue = queue_of()
    for number in range(50):
        request = ask(group=number, priority=number % 3)
        queue.add(request, never)
        if number % 2:
            leave(queue, request)
    assert len(empty(queue)) == 25

    assert sum(len(level) for level in queue._levels.values()) <= 1


def test_a_lane_emptied_by_those_who_left_is_no_turn() -> None:
    gone, waiting = ask(group="a", priority=0), ask(group="b", priority=1)
    queue = queue_of(gone, waiting)
    leave(queue, gone)

    assert list(head(queue)) == [waiting]


def test_drain_takes_out_everybody_and_leaves_an_empty_queue() -> None:
    gone = ask()
    requests = {ask(group="a"), ask(group="b"), ask(priority=3)}
    queue = queue_of(gone, *requests)
    leave(queue, gone)

    assert set(queue.drain()) == requests
    assert len(queue) == 0
    assert queue.head() is None


# -- shares --------------------------------------------------------------------------------------------------------


class Caller(int):
    """A connection that comes from somewhere."""

    address: str


def caller(number: int, address: str) -> Caller:
    made = Caller(number)
    made.address = address
    return made


def a_second() -> float:
    return 1.0


def test_one_address_gets_no_more_than_its_share_however_many_connections_it_has() -> None:
    queue = RequestQueue("m", 10, 0.5)
    for number in range(5):
        queue.add(ask(client=caller(number, "10.0.0.1")), a_second)
    with pytest.raises(ShareUsed, match=r"client 10\.0\.0\.1 already has 5 of the 10 requests"):
        queue.add(ask(client=caller(9, "10.0.0.1")), a_second)
    for number in range(5):
        queue.add(ask(client=caller(20 + number, "10.0.0.2")), a_second)
    with pytest.raises(QueueFull, match="already has 10 requests waiting"):
        queue.add(ask(client=caller(40, "10.0.0.3")), a_second)


def test_a_client_whose_address_is_not_known_counts_as_its_connection() -> None:
    queue = RequestQueue("m", 4, 0.5)
    queue.add(ask(client=1), a_second)
    queue.add(ask(client=1), a_second)
    with pytest.raises(ShareUsed):
        queue.add(ask(client=1), a_second)
    queue.add(ask(client=2), a_second)


def test_who_has_been_served_may_wait_again() -> None:
    queue = RequestQueue("m", 8, 0.5)
    for _ in range(4):
        queue.add(ask(client=1), a_second)
    queue.add(ask(client=2), a_second)
    lane = queue.head()
    assert lane is not None
    queue.pop(lane, 1)
    queue.add(ask(client=1), a_second)
    with pytest.raises(ShareUsed):
        queue.add(ask(client=1), a_second)


def test_a_whole_share_is_the_whole_queue_and_nobody_is_counted() -> None:
    queue = RequestQueue("m", 100)
    for _ in range(100):
        queue.add(ask(client=1), a_second)

    assert queue._counts is None
    with pytest.raises(QueueFull):
        queue.add(ask(client=2), a_second)


@given(
    st.lists(st.tuples(st.sampled_from(["add", "pop", "leave", "back"]), st.integers(0, 3)), max_size=120),
    st.floats(0.05, 1.0),
)
def test_counts_are_right_whatever_comes_and_goes(steps: list[tuple[str, int]], share: float) -> None:
    queue = RequestQueue("m", 20, share)
    waiting: list[Request] = []
    taken: list[Request] = []
    most = most_of(20, share)
    for what, number in steps:
        if what == "add":
            request: Request = ask(client=caller(len(waiting), f"10.0.0.{number}"))
            mine = sum(client_of(other) == client_of(request) for other in waiting)
            try:
                queue.add(request, a_second)
                assert len(waiting) < 20
                assert len(waiting) < most or mine < most
                waiting.append(request)
            except ShareUsed:
                assert mine >= most
            except QueueFull:
                assert len(waiting) >= 20
        elif what == "pop" and (lane := queue.head()) is not None:
            for request in queue.pop(lane, number + 1):
                waiting.remove(request)
                taken.append(request)
        elif what == "leave" and waiting:
            request = waiting.pop(number % len(waiting))
            request.withdraw(0.0)
            queue.forget(request)
        elif what == "back" and taken and len(waiting) < 20:
            queue.add_first([request := taken.pop()])
            waiting.append(request)
        if queue._counts is not None:
            assert queue._counts == Counter(client_of(request) for request in waiting)
        assert len(queue) == len(waiting)

from collections.abc import Callable

import pytest

from shoal.core.batch import MANY, TOGETHER, Batch
from shoal.core.request import Outcome, Request, State
from shoal.errors import HandlerFailed, ServingError, WorkerDied
from shoal.payload import Payload, Result
from tests.support import Asked, ask


def batch_of(*requests: Asked) -> Batch:
    return Batch(7, list(requests), "full", 3.0)


def died() -> ServingError:
    return WorkerDied("gone")


def test_requests_are_running_from_the_moment_the_batch_is_made() -> None:
    one, two = ask(rows=2), ask(rows=3)
    batch = batch_of(one, two)

    assert batch.rows == 5
    assert len(batch) == 2
    for request in (one, two):
        assert request.state is State.RUNNING
        assert request.batch is batch
        assert request.batched == 3.0
        assert request.attempts == 1


def test_each_request_gets_its_own_outcome() -> None:
    one, two, three = ask(), ask(), ask()
    batch = batch_of(one, two, three)
    batch.deliver(2, Result(b"third"), True, 4.0)
    batch.deliver(0, Result(b"first"), True, 4.0)
    batch.deliver(1, HandlerFailed("second"), True, 4.0)

    assert one.ear.bodies == [b"first"]
    assert str(two.ear.last) == "second"
    assert three.ear.bodies == [b"third"]


def test_a_neighbour_that_left_does_not_disturb_the_others() -> None:
    one, two = ask(), ask()
    batch = batch_of(one, two)
    one.withdraw(3.5)
    batch.deliver(0, Result(b"unheard"), True, 4.0)
    batch.deliver(1, Result(b"heard"), True, 4.0)
    batch.close(4.0, died)

    assert one.ear.heard == []
    assert two.ear.bodies == [b"heard"]


def test_whoever_is_unanswered_when_the_batch_closes_fails_once() -> None:
    answered, streaming, silent = ask(), ask(), ask()
    batch = batch_of(answered, streaming, silent)
    batch.deliver(0, Result(b"yes"), True, 4.0)
    batch.deliver(1, Result(b"begun"), False, 4.0)
    batch.close(5.0, died)

    assert answered.ear.bodies == [b"yes"]
    assert isinstance(streaming.ear.last, WorkerDied)
    assert isinstance(silent.ear.last, WorkerDied)
    assert (batch.answered, batch.failed) == (1, 2)


def test_each_failed_request_has_an_error_of_its_own() -> None:
    one, two = ask(), ask()
    batch_of(one, two).close(5.0, died)

    assert one.ear.last is not two.ear.last


def test_a_batch_closes_once() -> None:
    batch = batch_of(ask())
    batch.close(4.0, died)

    with pytest.raises(AssertionError, match="closes once"):
        batch.close(4.0, died)


def test_lent_memory_comes_back_when_the_batch_closes_and_not_before() -> None:
    answered, left, silent = ask(), ask(), ask()
    batch = batch_of(answered, left, silent)
    batch.deliver(0, Result(b"yes"), True, 4.0)
    left.withdraw(4.0)
    assert [request.block.released for request in (answered, left, silent)] == [0, 0, 0]
    batch.close(5.0, died)

    assert [request.block.released for request in (answered, left, silent)] == [1, 1, 1]


def test_who_may_be_tried_again_is_queued_again_in_order_and_keeps_its_memory() -> None:
    requests = [ask() for _ in range(3)]
    again = batch_of(*requests).close(5.0, died, retry=2)

    assert again == requests
    for request in requests:
        assert request.state is State.QUEUED
        assert request.batch is None
        assert request.block.released == 0
        assert request.ear.heard == []


def test_a_request_tried_often_enough_fails_instead() -> None:
    request = ask()
    assert batch_of(request).close(5.0, died, retry=2) == [request]
    assert batch_of(request).close(6.0, died, retry=2) == []

    assert isinstance(request.ear.last, WorkerDied)
    assert request.block.released == 1


def test_a_stream_that_was_begun_is_not_tried_again() -> None:
    begun, silent = ask(), ask()
    batch = batch_of(begun, silent)
    batch.deliver(0, Result(b"begun"), False, 4.0)

    assert batch.close(5.0, died, retry=3) == [silent]
    assert isinstance(begun.ear.last, WorkerDied)


def test_who_left_or_was_answered_is_not_tried_again() -> None:
    left, answered = ask(), ask()
    batch = batch_of(left, answered)
    left.withdraw(4.0)
    batch.deliver(1, Result(b"yes"), True, 4.0)

    assert batch.close(5.0, died, retry=3) == []
    assert left.block.released == answered.block.released == 1
    assert (batch.answered, batch.failed) == (1, 0)


class Post:
    """Requests whose answers are letters: those that may leave with others are put into the batch's bundle."""

    def __init__(self) -> None:
        self.made: list[Request] = []
        self.sent: list[Request] = []

    def ask(self, reply: Callable[[Request], None] | None = None) -> Request:
        def on_answer(request: Request, outcome: Outcome, is_last: bool) -> None:
            if reply is not None:
                reply(request)
            self.made.append(request)
            assert request.batch is not None
            if request.batch.together is None:
                self.sent.append(request)
            else:
                request.batch.together.append(Letter(self, request))

        return Request(Payload([]), on_answer, 0.0)


class Letter:
    def __init__(self, post: Post, request: Request) -> None:
        self.post, self.request = post, request

    def leave(self) -> None:
        self.post.sent.append(self.request)


@pytest.mark.parametrize("size", [MANY, TOGETHER - 1, TOGETHER, TOGETHER + 1, 2 * TOGETHER, 100])
def test_answers_handed_out_leave_in_order_and_never_more_than_a_few_late(size: int) -> None:
    post, late = Post(), []
    requests = [post.ask(lambda request: late.append(len(post.made) - len(post.sent))) for _ in range(size)]
    batch = Batch(7, requests, "full", 3.0)
    batch.hand_out([Result(b"")] * size, 4.0)

    assert post.sent == post.made == requests
    assert late == [place % TOGETHER for place in range(size)]
    assert batch.together is None


@pytest.mark.parametrize("size", [1, 2, MANY - 1])
def test_the_answers_of_a_small_batch_leave_as_they_are_made(size: int) -> None:
    post, late = Post(), []
    requests = [post.ask(lambda request: late.append(len(post.made) - len(post.sent))) for _ in range(size)]
    Batch(7, requests, "full", 3.0).hand_out([Result(b"")] * size, 4.0)

    assert post.sent == post.made == requests
    assert late == [0] * size


def test_whoever_has_no_outcome_fails_as_the_batch_closes() -> None:
    one, two, three = ask(), ask(), ask()
    batch = batch_of(one, two, three)
    batch.hand_out([Result(b"first"), Result(b"second")], 4.0)
    assert (one.ear.bodies, two.ear.bodies, three.ear.heard) == ([b"first"], [b"second"], [])
    batch.close(4.0, died)

    assert isinstance(three.ear.last, WorkerDied)


def test_no_outcomes_are_nobody_s() -> None:
    silent = ask()
    batch_of(silent).hand_out([], 4.0)

    assert silent.ear.heard == []


def test_answers_that_were_made_leave_though_a_later_one_cannot_be_made() -> None:
    def fail(request: Request) -> None:
        raise ZeroDivisionError

    post = Post()
    requests = [*(post.ask() for _ in range(MANY)), post.ask(fail)]
    batch = Batch(7, requests, "full", 3.0)
    with pytest.raises(ZeroDivisionError):
        batch.hand_out([Result(b"")] * len(requests), 4.0)

    assert post.sent == requests[:MANY]
    assert batch.together is None

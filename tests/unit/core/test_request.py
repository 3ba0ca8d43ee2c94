import math

import pytest

from shoal.core.request import ALLOWED, State
from shoal.errors import DeadlineExceeded, HandlerFailed, ServingError, Withdrawn
from shoal.payload import Result
from tests.support import Asked, ask


def running() -> Asked:
    request = ask()
    request.state = State.RUNNING
    return request


def test_a_plain_answer_is_one_piece_and_ends_the_request() -> None:
    request = running()
    result = Result(b"yes")

    assert request.answer(result, True, 2.0)
    assert request.ear.heard == [(result, True)]
    assert request.state is State.ANSWERED
    assert request.answered == 2.0
    assert request.pieces == 1


def test_a_stream_is_heard_piece_by_piece_and_ends_with_its_last() -> None:
    request = running()
    for body in (b"a", b"b"):
        assert request.answer(Result(body), False, 1.0)
        assert not request.has_ended
    request.answer(Result(b"c"), True, 2.0)

    assert request.ear.bodies == [b"a", b"b", b"c"]
    assert [is_last for _, is_last in request.ear.heard] == [False, False, True]


@pytest.mark.parametrize("late", [Result(b"late"), HandlerFailed("late")])
def test_nothing_is_heard_after_the_last_piece(late: Result | ServingError) -> None:
    request = running()
    request.answer(Result(b"yes"), True, 1.0)

    assert not request.answer(late, True, 2.0)
    assert request.ear.bodies == [b"yes"]
    assert request.state is State.ANSWERED
    assert request.answered == 1.0
    assert request.pieces == 1


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (HandlerFailed("it raised"), State.FAILED),
        (DeadlineExceeded("too late"), State.EXPIRED),
        (Withdrawn("gone"), State.WITHDRAWN),
    ],
)
def test_an_error_is_always_the_last_piece_and_says_how_the_request_ended(error: ServingError, state: State) -> None:
    request = ask()
    request.answer(error, False, 1.0)

    assert request.ear.heard == [(error, True)]
    assert request.state is state


def test_who_withdraws_is_told_nothing_more() -> None:
    request = ask()

    assert request.withdraw(1.0)
    assert not request.answer(Result(b"late"), True, 2.0)
    assert request.ear.heard == []
    assert request.state is State.WITHDRAWN
    assert request.answered == 1.0


def test_withdrawing_after_the_end_changes_nothing() -> None:
    request = running()
    request.answer(Result(b"yes"), True, 1.0)

    assert not request.withdraw(2.0)
    assert request.state is State.ANSWERED


def test_withdrawing_twice_is_withdrawing_once() -> None:
    request = ask()

    assert request.withdraw(1.0)
    assert not request.withdraw(2.0)
    assert request.answered == 1.0
    assert request.block.released == 1


def test_nobody_answers_a_request_that_no_worker_has() -> None:
    with pytest.raises(AssertionError):
        ask().answer(Result(b"from nowhere"), True, 1.0)


def test_memory_of_one_that_ends_while_it_waits_comes_back_at_once() -> None:
    left, refused = ask(), ask()
    left.withdraw(1.0)
    refused.answer(DeadlineExceeded("too late"), True, 1.0)

    assert left.block.released == refused.block.released == 1


def test_memory_that_a_worker_may_read_stays_lent_when_the_request_ends() -> None:
    left, answered = running(), running()
    left.withdraw(1.0)
    answered.answer(Result(b"yes"), True, 1.0)

    assert left.block.released == answered.block.released == 0


def test_the_state_is_final_before_the_answer_is_heard() -> None:
    states: list[State] = []
    request = running()
    request.on_answer = lambda request, outcome, is_last: states.append(request.state)
    request.answer(Result(b"piece"), False, 1.0)
    request.answer(Result(b"last"), True, 1.0)

    assert states == [State.RUNNING, State.ANSWERED]


def test_a_request_has_no_deadline_of_its_own() -> None:
    assert ask().deadline == math.inf


def test_an_ended_request_has_no_next_state() -> None:
    final = {state for state, allowed in ALLOWED.items() if not allowed}

    assert final == {State.ANSWERED, State.FAILED, State.EXPIRED, State.WITHDRAWN}
    assert ALLOWED.keys() == set(State)

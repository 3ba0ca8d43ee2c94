import json
from typing import Any

import pytest

from shoal.tools.check.child import Ear
from shoal.tools.check.judge import Judge, difference
from shoal.wire.messages import Answered, Ended, Failure, Piece, Pieces
from shoal.worker.batch import Answer
from shoal.worker.proof import Tolerance

JSON = "application/json"


def answer(value: Any, kind: str = JSON) -> Answer:
    return (value if isinstance(value, bytes) else json.dumps(value).encode(), kind, None)


def judge(*alone: Answer | Failure, relative: float = 1e-3) -> Judge:
    made = Judge(Tolerance(relative, min(relative, 1e-5)))
    for number, each in enumerate(alone):
        made.judge(number, each)
    return made


def test_the_first_answer_is_what_the_others_are_held_against() -> None:
    made = Judge(Tolerance())
    assert made.judge(0, answer([1])).kind == "answered"
    assert made.judge(0, answer([1])).kind == "same"
    assert made.judge(0, answer([2])).kind == "other"
    assert made.judge(1, Failure("handler", "no")).kind == "refused"


def test_numbers_may_be_apart_by_the_tolerance() -> None:
    assert judge(answer([100.0])).judge(0, answer([100.09])).kind == "same"
    assert judge(answer([100.0])).judge(0, answer([100.2])).kind == "other"
    assert judge(answer([100.0]), relative=0.01).judge(0, answer([100.2])).kind == "same"
    assert judge(answer([1.0]), relative=0.0).judge(0, answer([1.0000001])).kind == "other"


def test_an_answer_of_another_sample_is_known_as_that() -> None:
    made = judge(answer(["a"]), answer(["b"]), answer(["c"]))
    verdict = made.judge(0, answer(["c"]))
    assert (verdict.kind, verdict.of) == ("mixed", 2)


def test_failing_where_it_did_not_fail_alone_is_told_and_the_other_way_round() -> None:
    made = judge(answer([1]), Failure("handler", "no"))
    assert (
        made.judge(
            0,
            Failure("handler", "too many"),
        ).text
        == "too many"
    )
    assert made.judge(0, Failure("handler", "too many")).kind == "failed"
    assert made.judge(1, Failure("input", "no")).kind == "same"
    assert made.judge(1, answer([1])).text == "it was answered, and failed alone"


@pytest.mark.parametrize(
    ("alone", "together", "words"),
    [
        (answer({"a": [1, {"b": 0.5}]}), answer({"a": [1, {"b": 0.7}]}), "answer.a[1].b is 0.7, alone 0.5"),
        (answer([1, 2]), answer([1, 2, 3]), "answer is [1, 2, 3], alone [1, 2]"),
        (answer({"a": 1}), answer({"b": 1}), 'answer is {"b": 1}, alone {"a": 1}'),
        (answer("x" * 200), answer("y"), 'alone "xxx'),
        (answer(b"\xff\x00"), answer(b"\xff\x01"), "the bytes differ, the first at byte 1"),
        (answer(b"\xff"), answer(b"\xff\x01"), "the bytes differ, 2 bytes, alone 1"),
        (answer(b"1", "text/plain"), answer(b"1"), "the content type is application/json, alone text/plain"),
    ],
)
def test_where_two_answers_differ_is_said(alone: Answer, together: Answer, words: str) -> None:
    told = difference(alone, together, Tolerance())
    assert words in told
    assert len(told) < 250


def test_samples_that_are_all_answered_alike_tell_nothing() -> None:
    assert not judge(answer([1]), answer([1])).are_told_apart()
    assert not judge(answer([1])).are_told_apart()
    assert judge(answer([1]), answer([2])).are_told_apart()
    assert not judge(answer([1]), Failure("handler", "no")).are_told_apart()


def test_an_ear_hears_whole_answers_pieces_and_failures() -> None:
    whole = Ear(2)
    whole.send(Answered(1, [1, 2], ["text/plain"], (0.0, 0.0, 0.0)), [b"a", b"bc"])
    assert [heard[:2] for heard in whole.heard() if isinstance(heard, tuple)] == [
        (b"a", "text/plain"),
        (b"bc", "text/plain"),
    ]

    pieces = Ear(4)
    pieces.send(Pieces(1, [Piece(1, False, 1, "x"), Piece(0, True, 2, "y")]), [b"1", b"00"])
    pieces.send(Pieces(1, [Piece(1, True, 1), Piece(2, True, 0, failure=Failure("input", "bad"))]), [b"1"])
    pieces.send(Ended(1, (0.0, 0.0, 0.0), Failure("handler", "all")))
    first, second, third, fourth = pieces.heard()
    assert isinstance(first, tuple) and first[:2] == (b"00", "y")
    assert isinstance(second, tuple) and second[:2] == (b"11", "x")
    assert isinstance(third, Failure) and third.message == "bad"
    assert isinstance(fourth, Failure) and fourth.message == "all"

    assert isinstance(Ear(1).heard()[0], Failure)

"""The rules themselves: what the harness calls right, allowed, lost, wrong and refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.chaos.models.deeds import act, read
from tests.chaos.requests import CUT, LEFT, NO_ANSWER, Ask, Asking, End
from tests.chaos.rules import RULES, Incidents, Verdict, judge


def verdict(kind: str, status: int, body: bytes = b"", *incidents: tuple[str, str, float, float]) -> Verdict:
    ask = Ask("t1", kind, "m", began=10.0, ended=11.0)
    book = Incidents()
    for model, what, began, ended in incidents:
        book.add(model, what, began, ended)
    return judge(ask, End(status, body), book)


RIGHT = b"t1 00000000 0 1.0"


def test_only_its_own_answer_is_right() -> None:
    assert verdict("keep-alive", 200, RIGHT) is Verdict.RIGHT
    assert verdict("keep-alive", 200, b"t2 00000000 0 1.0") is Verdict.WRONG
    assert verdict("keep-alive", 200, b"t1 00000001 0 1.0") is Verdict.WRONG
    assert verdict("keep-alive", 200, b"") is Verdict.WRONG


@pytest.mark.parametrize("status", [400, 404, 500, 503, 504])
def test_an_innocent_request_may_get_no_error_whatever_was_done_to_its_model(status: int) -> None:
    done = [("m", what, 10.0, 11.0) for what in ("kill", "template", "stop", "absent")]

    assert verdict("keep-alive", status, b"", *done) is Verdict.REFUSED
    assert verdict("beside poison", status, b"", *done) is Verdict.REFUSED


def test_a_request_whose_every_worker_was_killed_is_given_up() -> None:
    thrice = [("m", what, 10.5, 10.5) for what in ("kill", "template", "kill")]
    told = b"the worker died while it held this request, which is given to at most 3 of them"

    assert verdict("keep-alive", 500, told, *thrice) is Verdict.ALLOWED
    assert verdict("keep-alive", 503, told, *thrice) is Verdict.REFUSED
    assert verdict("keep-alive", 500, b"something else", *thrice) is Verdict.REFUSED
    assert verdict("keep-alive", 500, told, *thrice[1:], ("m", "stop", 10.5, 10.5)) is Verdict.REFUSED, "one lived"
    assert verdict("keep-alive", 500, told, *thrice[1:], ("m", "kill", 11.5, 11.5)) is Verdict.REFUSED, "it had ended"
    assert verdict("raise", 200, RIGHT, *thrice) is Verdict.WRONG


def test_silence_and_a_cut_connection_are_losses() -> None:
    assert verdict("keep-alive", NO_ANSWER) is Verdict.LOST
    assert verdict("keep-alive", CUT) is Verdict.LOST
    assert verdict("leaver", LEFT) is Verdict.LEFT
    assert verdict("segv", NO_ANSWER) is Verdict.LOST


def test_a_stream_may_be_cut_only_while_its_model_was_hurt() -> None:
    assert verdict("stream", CUT) is Verdict.LOST
    assert verdict("stream", CUT, b"", ("m", "kill", 10.5, 10.5)) is Verdict.ALLOWED
    assert verdict("stream", CUT, b"", ("m", "kill", 11.5, 11.5)) is Verdict.LOST, "it had ended"
    assert verdict("stream", CUT, b"", ("m", "kill", 9.0, 9.5)) is Verdict.LOST, "it had not begun"
    assert verdict("stream", CUT, b"", ("other", "kill", 10.5, 10.5)) is Verdict.LOST


def test_poison_fails_with_its_own_error_and_no_other() -> None:
    assert verdict("raise", 500) is Verdict.ALLOWED
    assert verdict("raise", 503) is Verdict.REFUSED
    assert verdict("raise", 200, RIGHT) is Verdict.WRONG
    assert verdict("hang", 504) is Verdict.ALLOWED
    assert verdict("hang", 500) is Verdict.REFUSED


def test_a_refusal_for_overload_says_when_to_come_back() -> None:
    ask = Ask("t1", "burst", "m")

    assert judge(ask, End(503, has_hint=True), Incidents()) is Verdict.ALLOWED
    assert judge(ask, End(503), Incidents()) is Verdict.REFUSED


def test_a_version_may_be_missing_only_while_it_is_away() -> None:
    ask = Ask("t1", "version", "m", version="2.0", began=10.0, ended=11.0)
    away = Incidents()
    absence = away.add("m/2.0", "absent", 5.0, float("inf"))

    assert judge(ask, End(404), away) is Verdict.ALLOWED
    absence.ended = 9.0
    assert judge(ask, End(404), away) is Verdict.REFUSED
    assert judge(Ask("t1", "rolling", "m"), End(404), away) is Verdict.REFUSED


def test_every_rule_names_errors_and_no_success() -> None:
    for rule in RULES.values():
        assert 200 not in rule.always
        assert 200 not in [status for status, _ in rule.under]
        assert NO_ANSWER not in rule.always


@given(st.binary(max_size=300), st.sampled_from(["sum", "big", "stream"]), st.integers(0, 20))
def test_the_model_and_the_harness_agree_on_the_right_answer(data: bytes, deed: str, number: int) -> None:
    ask = Ask("t-1", "x", "m", deed=deed, argument=str(number), data=data)
    for item in (ask.body, {"head": ask.head, "data": ask.data}):
        answer = act(read(item), "1.0")
        whole = answer if isinstance(answer, bytes) else b"".join(answer)

        assert ask.is_right(whole)
        assert not ask.is_right(whole + b"x")
        assert not Ask("t-2", "x", "m", deed=deed, argument=str(number + 1), data=data).is_right(whole)


def test_a_named_version_answers_itself() -> None:
    ask = Ask("t1", "version", "m", version="2.0")

    assert ask.is_right(b"t1 00000000 0 2.0")
    assert not ask.is_right(b"t1 00000000 0 1.0")


def test_tokens_never_repeat_and_content_follows_from_the_seed() -> None:
    one, two = Asking(7, "a"), Asking(7, "a")
    made = [one.ask("x", "m") for _ in range(100)]

    assert len({ask.token for ask in made}) == 100
    assert [ask.data for ask in made] == [two.ask("x", "m").data for _ in range(100)]

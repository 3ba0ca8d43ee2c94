import json
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.config.model import MicroBatching
from shoal.wire.messages import Ended, Failure, Item, Measure, Measured, PartHead, Pieces, Proved, Run
from shoal.worker.batch import Batch
from shoal.worker.handler import Context
from shoal.worker.pipeline import Inline, Threaded
from shoal.worker.program import Program, Stage
from shoal.worker.proof import IN_PIECES, PROOFS, SIDE_EFFECTS, Prover, alike, close
from tests.unit.worker.making import Listener, Result, batch, nothing, program


class Trial:
    """A handler under proof, the batches it was called with, and what the front process heard."""

    def __init__(self, handler: Callable[..., Any], can_batch: bool | None = None, **more: Any) -> None:
        self.calls: list[int] = []
        self.words = Listener()
        self.heard = Listener()
        self.prover = Prover(self.words, can_batch, **more)
        self.poll: Callable[[], None] = nothing
        self.number = 0

        def counted(items: list[Any], context: Context) -> Any:
            self.calls.append(len(items))
            return handler(items, context) if handler.__code__.co_argcount > 1 else handler(items)

        self.program = program(counted, "Bees.handle")

    def ask(self, *bodies: bytes) -> list[Result]:
        self.number += 1
        return self.run(batch(self.number, bodies, self.heard))

    def run(self, made: Batch) -> list[Result]:
        self.calls.clear()
        inline = Inline(self.program, None, nothing, lambda: self.poll(), self.prover.run)
        inline.submit(made)
        assert isinstance(self.heard.frames[-1][0], Ended) or len(self.heard.frames[-1][0].sizes) == len(made.items)
        return self.heard.results(made.number, len(made.items))

    @property
    def proved(self) -> list[Proved]:
        return [message for message, _ in self.words.frames]


def upper(items: list[bytes]) -> list[bytes]:
    return [item.upper() for item in items]


def test_a_handler_is_trusted_once_it_has_twice_answered_together_as_alone() -> None:
    trial = Trial(upper)

    for turn in range(PROOFS):
        assert trial.proved == []
        assert trial.ask(b"a", b"b", b"%d" % turn) == [b"A", b"B", b"%d" % turn]
        assert trial.calls == [1, 1, 1, 3]
    assert trial.proved == [Proved(True, "")]
    assert trial.ask(b"x", b"y") == [b"X", b"Y"]
    assert trial.calls == [2]


def test_a_lone_request_is_not_looked_at_twice() -> None:
    trial = Trial(upper)

    assert trial.ask(b"a") == [b"A"]
    assert trial.calls == [1]


def test_every_answer_leaves_as_soon_as_it_is_there() -> None:
    trial = Trial(upper)
    told: list[int] = []
    trial.poll = lambda: told.append(len(trial.heard.frames))
    trial.ask(b"a", b"b")

    assert told == [0, 1]
    *pieces, (end, _) = trial.heard.frames
    assert [message.pieces[0].index for message, _ in pieces] == [0, 1]
    assert all(message.pieces[0].is_last for message, _ in pieces)
    assert isinstance(end, Ended) and end.failure is None


def test_a_batch_that_agreed_says_what_it_costs_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """The adaptive rule would learn from the time of the requests alone that batches do not pay."""
    time = [0.0]
    monkeypatch.setattr("shoal.worker.pipeline.perf_counter", lambda: time[0])

    def slow(items: list[bytes]) -> list[bytes]:
        time[0] += 1.0 + 0.25 * len(items)
        return upper(items)

    trial = Trial(slow)
    trial.ask(b"a", b"b")
    assert trial.heard.ends[-1].stages == (0.0, 1.5, 0.0)
    trial = Trial(slow, False)
    trial.ask(b"a", b"b")
    assert trial.heard.ends[-1].stages == (0.0, 2.5, 0.0)


WRONG: list[tuple[Callable[..., Any], str]] = [
    (lambda items: [items[0].upper()], "Bees.handle gave 1 results for 2 requests"),
    (lambda items: [items[0].upper()] * len(items), "of 2 requests together, number 2 was not answered as alone"),
    (lambda items: [item.upper() for item in reversed(items)], "number 1 was not answered as alone"),
]


@pytest.mark.parametrize(("handler", "why"), WRONG)
def test_a_handler_that_answers_otherwise_together_is_run_one_by_one(handler: Callable[..., Any], why: str) -> None:
    trial = Trial(handler)
    alone = [trial.ask(body)[0] for body in (b"a", b"b", b"c")]

    assert trial.ask(b"a", b"b") == alone[:2]
    assert trial.calls == [1, 1, 2]
    (word,) = trial.proved
    assert not word.can_batch
    assert why in word.why
    assert trial.ask(b"a", b"b", b"c") == alone
    assert trial.calls == [1, 1, 1]
    assert len(trial.proved) == 1


def test_an_error_of_the_whole_says_what_it_was() -> None:
    def alone_only(items: list[bytes]) -> list[bytes]:
        if len(items) > 1:
            raise ValueError("one at a time, please")
        return upper(items)

    trial = Trial(alone_only)

    assert trial.ask(b"a", b"b", b"c") == [b"A", b"B", b"C"]
    (word,) = trial.proved
    assert word.why == ("3 requests that were answered alone failed together: ValueError: one at a time, please")


def test_answers_that_change_by_themselves_are_not_batched() -> None:
    numbers = iter(range(100))
    trial = Trial(lambda items: [next(numbers) for _ in items])

    assert trial.ask(b"a", b"b") == [b"0", b"1"]
    assert [word.can_batch for word in trial.proved] == [False]


def test_equal_requests_are_compared_once_and_prove_nothing_of_others() -> None:
    trial = Trial(lambda items: [items[0].upper()] * len(items))

    trial.ask(b"a", b"a")
    assert trial.calls == [1, 1, 2]
    assert trial.ask(b"a", b"a", b"a") == [b"A"] * 3
    assert trial.calls == [3]
    assert trial.proved == []
    assert trial.ask(b"a", b"b") == [b"A", b"B"]
    assert [word.can_batch for word in trial.proved] == [False]
    assert trial.ask(b"a", b"a") == [b"A", b"A"]
    assert trial.calls == [1, 1]


def test_equal_requests_that_are_answered_otherwise_together_end_the_trial() -> None:
    trial = Trial(lambda items: [b"%d" % len(items)] * len(items))

    assert trial.ask(b"a", b"a") == [b"1", b"1"]
    assert [word.can_batch for word in trial.proved] == [False]


@pytest.mark.parametrize(
    "other",
    [
        Item([PartHead("body", "", 1)], b"2", [(b"X-Bee", b"2")]),
        Item([PartHead("body", "text/plain", 1)], b"2", [(b"X-Bee", b"1")]),
        Item([PartHead("data", "", 1)], b"2", [(b"X-Bee", b"1")]),
    ],
)
def test_requests_that_differ_in_a_header_a_name_or_a_type_are_not_equal(other: Item) -> None:
    trial = Trial(lambda items: ["same"] * len(items))
    first = Item([PartHead("body", "", 1)], b"1", [(b"X-Bee", b"1")])
    trial.run(Batch(Run(1, 0, [first, first]), memoryview(b"aa"), trial.heard))
    assert trial.calls == [1, 1, 2]

    trial.run(Batch(Run(2, 0, [first, other]), memoryview(b"aa"), trial.heard))
    assert trial.calls == [1, 1]
    trial.run(Batch(Run(3, 0, [first, first]), memoryview(b"aa"), trial.heard))
    assert trial.calls == [2]


def test_different_requests_with_one_answer_prove_nothing() -> None:
    """Nobody could tell whether they were mixed up."""
    trial = Trial(lambda items: [{"is_bee": items[0] == b"bee"}] * len(items))

    for _ in range(3 * PROOFS):
        trial.ask(b"ant", b"wasp")
        assert trial.calls == [1, 1]
    assert trial.proved == []
    assert trial.ask(b"ant", b"bee") == [b'{"is_bee":false}', b'{"is_bee":true}']
    assert [word.can_batch for word in trial.proved] == [False]


def test_a_request_that_fails_alone_fails_alone_and_proves_nothing() -> None:
    def picky(items: list[bytes]) -> list[bytes]:
        if b"bad" in items:
            raise ValueError("a bad one")
        return upper(items)

    trial = Trial(picky)
    good, bad, fine = trial.ask(b"a", b"bad", b"c")

    assert (good, fine) == (b"A", b"C")
    assert isinstance(bad, Failure) and "a bad one" in bad.message
    assert trial.calls == [1, 1, 1]
    assert trial.proved == []
    assert trial.heard.ends[-1].failure is None, "nobody else is to blame"


def test_a_request_that_nobody_waits_for_is_not_run() -> None:
    trial = Trial(upper)
    made = batch(1, [b"a", b"b", b"c"], trial.heard)
    trial.poll = lambda: made.cancelled.add(1)
    Inline(trial.program, None, nothing, lambda: trial.poll(), trial.prover.run).submit(made)

    assert trial.calls == [1, 1]
    indices = [message.pieces[0].index for message, _ in trial.heard.frames if isinstance(message, Pieces)]
    assert indices == [0, 2]


def test_nothing_more_is_run_for_a_front_process_that_is_gone() -> None:
    trial = Trial(upper)

    def leave() -> None:
        trial.heard.is_gone = bool(trial.calls)

    trial.poll = leave
    made = batch(1, [b"a", b"b", b"c"], trial.heard)
    Inline(trial.program, None, nothing, lambda: trial.poll(), trial.prover.run).submit(made)
    assert trial.calls == [1]


def test_a_handler_that_answers_in_pieces_is_run_one_by_one() -> None:
    def talk(items: list[bytes], context: Context) -> list[bytes]:
        context.send([b"so "] * len(items))
        return upper(items)

    trial = Trial(talk)

    assert trial.ask(b"a", b"b") == [b"so A", b"so B"]
    assert trial.calls == [1, 1]
    assert trial.proved == [Proved(False, IN_PIECES)]


def test_a_handler_that_gives_generators_is_run_one_by_one() -> None:
    def steps(items: list[bytes]) -> Any:
        for letter in zip(*[item.decode() for item in items], strict=True):
            yield list(letter)

    trial = Trial(steps)

    assert trial.ask(b"ab", b"cd") == [b"ab", b"cd"]
    assert trial.calls == [1, 1]
    assert trial.proved == [Proved(False, IN_PIECES)]


def test_pieces_in_the_run_together_alone_end_the_trial_unheard() -> None:
    def talk(items: list[bytes], context: Context) -> list[bytes]:
        if len(items) > 1:
            context.send([b"so "] * len(items))
        return upper(items)

    trial = Trial(talk)

    assert trial.ask(b"a", b"b") == [b"A", b"B"]
    assert trial.proved == [Proved(False, "2 requests together were answered in pieces")]


def test_a_handler_with_side_effects_is_never_run_twice() -> None:
    trial = Trial(upper, side_effects=True)
    trial.prover.begin()

    assert trial.proved == [Proved(False, SIDE_EFFECTS)]
    trial.ask(b"a", b"b")
    assert trial.calls == [1, 1]


@pytest.mark.parametrize(("known", "calls"), [(True, [2]), (False, [1, 1])])
def test_what_an_earlier_worker_found_is_not_asked_again(known: bool, calls: list[int]) -> None:
    trial = Trial(upper, known, side_effects=True)
    trial.prover.begin()
    trial.ask(b"a", b"b")

    assert trial.calls == calls
    assert trial.proved == []


def test_what_is_done_and_why_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "shoal.worker")
    trial = Trial(upper)
    trial.ask(b"a", b"b", b"c")
    trial.ask(b"a", b"b")
    Trial(lambda items: [items[0]] * len(items)).ask(b"a", b"b")

    assert [record.getMessage() for record in caplog.records] == [
        "checking that Bees.handle can batch: 3 requests are run alone and together",
        "checking that Bees.handle can batch: 2 requests are run alone and together",
        "Bees.handle answers requests together as alone: they are batched from now on",
        "checking that Bees.handle can batch: 2 requests are run alone and together",
        "Bees.handle is not batched: of 2 requests together, number 2 was not answered as alone; "
        "requests are run one at a time from now on",
    ]


def test_what_the_run_together_measures_does_not_count() -> None:
    taken: list[str] = []

    def take() -> list[Measure]:
        measures = [Measure(name, "Count", "COUNTER", 1.0, []) for name in taken]
        taken.clear()
        return measures

    def call(rows: list[Any]) -> list[Any]:
        taken.append(f"of {len(rows)}")
        return [str(row) for row in rows]

    base = program(upper)
    made = Program("m", (Stage("inference", "m", call, gives_rows=True),), base.read, base.context, False, take)
    heard = Listener()
    Inline(made, None, nothing, nothing, Prover(Listener()).run).submit(batch(1, [b"a", b"b"], heard))

    assert [message for message, _ in heard.frames if isinstance(message, Measured)] == [
        Measured([Measure("of 1", "Count", "COUNTER", 1.0, [])] * 2)
    ]
    assert take() == []


def test_status_and_headers_are_compared_too() -> None:
    def chosen(items: list[bytes], context: Context) -> list[bytes]:
        context.set_response_header(0, "X-Rows", str(len(items)))
        return upper(items)

    trial = Trial(chosen)
    trial.ask(b"a", b"b")

    assert [word.can_batch for word in trial.proved] == [False]


def test_several_instances_share_one_verdict() -> None:
    heard, words = Listener(), Listener()
    prover, calls = Prover(words), []
    lock = threading.Lock()

    def counted(items: list[bytes]) -> list[bytes]:
        with lock:
            calls.append(len(items))
        return upper(items)

    made = program(counted)
    pipelines = [Threaded(made, MicroBatching(), None, nothing, prover.run) for _ in range(2)]
    for pipeline in pipelines:
        pipeline.start()
    for number in range(1, 9):
        pipelines[number % 2].submit(batch(number, [b"a", b"b"], heard))
    heard.wait(8)
    pipelines[0].submit(batch(9, [b"a", b"b"], heard))
    heard.wait()

    assert [message for message, _ in words.frames] == [Proved(True, "")]
    assert calls[-1] == 2
    assert all(heard.results(number, 2) == [b"A", b"B"] for number in range(1, 10))


# -- sameness --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "is_close"),
    [
        (0.123456, 0.123457, True),
        (1e-9, -1e-9, True),
        (0.5, 0.502, False),
        (float("nan"), float("nan"), True),
        (float("nan"), 1.0, False),
        (1, 1.0000001, True),
        (1000000, 1000001, False),
        (True, 1, False),
        (True, 1.0, False),
        (None, 0.0, False),
        ("0.1", "0.1000001", False),
        ([1.0, 2.0], [1.0, 2.0000001], True),
        ([1.0, 2.0], [1.0], False),
        ({"a": [0.1]}, {"a": [0.10000001]}, True),
        ({"a": 1.0, "b": 2.0}, {"b": 2.0, "a": 1.0}, True),
        ({"a": 1.0}, {"b": 1.0}, False),
        ({"a": 1.0}, {"a": 1.0, "b": 1.0}, False),
        ([], {}, False),
    ],
)
def test_only_the_last_digits_of_fractions_may_differ(one: Any, other: Any, is_close: bool) -> None:
    assert close(one, other) is is_close
    assert close(other, one) is is_close


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(values)
def test_a_value_is_always_close_to_itself(value: Any) -> None:
    assert close(value, json.loads(json.dumps(value)))


def test_bodies_are_the_same_bytes_or_close_numbers() -> None:
    assert alike((b"\xff\x00", "", None), (bytearray(b"\xff\x00"), "", None))
    assert not alike((b"\xff\x00", "", None), (b"\xff\x01", "", None))
    assert alike((b"[0.1]", "", None), (memoryview(b"[0.10000001]"), "", None))
    assert not alike((b"[0.1]", "", None), (b"[0.1]", "text/plain", None))
    assert not alike((b"a", "", None), (b"b", "", None))
    assert not alike((b"1.0", "", None), (b"1" * 400, "", None))
    assert not alike((b"[" * 100000, "", None), (b"{" * 100000, "", None))


def test_saved_tensors_are_compared_by_value() -> None:
    torch = pytest.importorskip("torch")
    import io

    def saved(tensor: Any) -> tuple[bytes, str, None]:
        buffer = io.BytesIO()
        torch.save(tensor, buffer)
        return buffer.getvalue(), "", None

    tensor = torch.tensor([0.25, 3.0])
    assert alike(saved(tensor), saved(tensor + 1e-6))
    assert not alike(saved(tensor), saved(tensor + 0.1))
    assert not alike(saved(tensor), saved(torch.tensor([1, 2, 3])))
    assert not alike(saved(torch.tensor([1, 2])), saved(torch.tensor([1, 3])))

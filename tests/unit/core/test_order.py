"""Answers in the order of their requests, whoever is done first, whatever happens to the others."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.core.levels import LevelQueue
from shoal.core.order import AnswerOrder
from shoal.core.policy import Single
from shoal.core.request import Outcome, Request
from shoal.errors import HandlerFailed, QueueFull, Unavailable
from shoal.payload import Payload, Result
from tests.support import Bench


@dataclass
class Listener:
    """Hears of all requests, and can leave or ask again while it does."""

    bench: Bench
    heard: list[tuple[int, bytes | str, bool]] = field(default_factory=list)
    leave_at: set[int] = field(default_factory=set)  # requests withdrawn when something of them is heard
    numbers: dict[Request, int] = field(default_factory=dict)

    def ask(self) -> Request:
        request = Request(Payload([]), self.hear, 0.0)
        self.bench.offer(request)
        self.numbers[request] = len(self.numbers)
        return request

    def hear(self, request: Request, outcome: Outcome, is_last: bool) -> None:
        number = self.numbers[request]
        what = bytes(outcome.body) if isinstance(outcome, Result) else str(outcome)
        self.heard.append((number, what, is_last))
        if number in self.leave_at:
            self.bench.scheduler.withdraw(request, 0.0)


def ordered(limit: int = 100) -> tuple[Bench, Listener]:
    bench = Bench(Single())
    bench.batcher.queue = LevelQueue("m", limit)
    bench.batcher.order = AnswerOrder()
    return bench, Listener(bench)


def test_later_answers_wait_for_the_first() -> None:
    bench, listener = ordered()
    a, b = bench.join("a"), bench.join("b")
    listener.ask()
    listener.ask()
    bench.feed()
    bench.finish(b, b"second")
    assert listener.heard == []
    bench.finish(a, b"first")

    assert listener.heard == [(0, b"first", True), (1, b"second", True)]
    assert bench.batcher.order is not None
    assert len(bench.batcher.order) == 0


def test_a_stream_passes_at_once_when_it_is_its_turn_and_as_it_was_otherwise() -> None:
    bench, listener = ordered()
    a, b = bench.join("a"), bench.join("b")
    listener.ask()
    listener.ask()
    bench.feed()
    b.batches[0].deliver(0, Result(b"x"), False, 0.0)
    a.batches[0].deliver(0, Result(b"1"), False, 0.0)
    assert listener.heard == [(0, b"1", False)]
    b.batches[0].deliver(0, Result(b"y"), True, 0.0)
    bench.finish(a, b"2")

    assert listener.heard[1:] == [(0, b"2", True), (1, b"x", False), (1, b"y", True)]


def test_errors_keep_their_place() -> None:
    bench, listener = ordered()
    a, b = bench.join("a"), bench.join("b")
    listener.ask()
    listener.ask()
    listener.ask()
    bench.feed()
    bench.finish(b, error=HandlerFailed("bad"))
    bench.scheduler.leave(b, 0.0, lambda batch: HandlerFailed("gone"))
    bench.scheduler.fail_waiting(lambda: Unavailable("nobody comes"), 0.0)
    assert listener.heard == []
    bench.finish(a, b"fine")

    assert [(number, what) for number, what, _ in listener.heard] == [(0, b"fine"), (1, "bad"), (2, "nobody comes")]


def test_one_that_left_holds_nobody_back_and_hears_nothing() -> None:
    bench, listener = ordered()
    a, b, c = bench.join("a"), bench.join("b"), bench.join("c")
    first, second, _third = listener.ask(), listener.ask(), listener.ask()
    bench.feed()
    bench.finish(b, b"second")
    bench.finish(c, b"third")
    bench.scheduler.withdraw(second, 0.0)  # it had been answered, and nobody heard of it yet
    assert listener.heard == []
    bench.scheduler.withdraw(first, 0.0)

    assert listener.heard == [(2, b"third", True)]
    bench.finish(a, b"first")
    assert len(listener.heard) == 1


def test_whoever_is_refused_takes_no_place() -> None:
    bench, listener = ordered(limit=1)
    a = bench.join("a")
    listener.ask()
    with pytest.raises(QueueFull):
        listener.ask()
    bench.feed()
    bench.finish(a, b"one")

    assert listener.heard == [(0, b"one", True)]


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_any_story_is_heard_in_order_and_to_the_end(data: st.DataObject) -> None:
    bench, listener = ordered()
    workers = [bench.join(name) for name in "abc"]
    left: set[int] = set()
    count = data.draw(st.integers(1, 8))
    listener.leave_at = data.draw(st.sets(st.integers(0, 7), max_size=2))
    requests = [listener.ask() for _ in range(count)]
    bench.feed()
    while busy := [worker for worker in workers if worker.batches]:
        worker = data.draw(st.sampled_from(busy))
        what = data.draw(st.sampled_from(["whole", "piece", "error", "leave"]))
        if what == "whole":
            bench.finish(worker, b"end")
        elif what == "error":
            bench.finish(worker, error=HandlerFailed("bad"))
        elif what == "piece":
            worker.batches[0].deliver(0, Result(b"piece"), False, 0.0)
        else:
            number = data.draw(st.integers(0, count - 1))
            if not any(heard == number and is_last for heard, _, is_last in listener.heard):
                left.add(number)
            bench.scheduler.withdraw(requests[number], 0.0)
        bench.feed()

    order = [number for number, _, _ in listener.heard]
    assert order == sorted(order)
    ended = [number for number, _, is_last in listener.heard if is_last]
    stayed = [number for number in range(count) if number not in left and number not in listener.leave_at]
    assert [number for number in ended if number in stayed] == stayed
    assert len(ended) == len(set(ended))
    assert bench.batcher.order is not None
    assert len(bench.batcher.order) == 0

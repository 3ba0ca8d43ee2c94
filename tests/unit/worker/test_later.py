"""Answers that come after their stage has returned: who says what when, and how the front process hears of it."""

import gc
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from shoal.config.model import MicroBatching
from shoal.errors import HandlerFailed, InvalidInput
from shoal.wire.messages import Begun, Ended, Failure, Pieces
from shoal.worker.batch import Batch
from shoal.worker.later import Later, Open, Pump
from shoal.worker.pipeline import Inline, Threaded
from shoal.worker.program import Program, Stage
from tests.unit.worker.making import Listener, batch, context, nothing


class Voice:
    """Says what the test says."""

    def __init__(self) -> None:
        self.is_open = False
        self.is_settled = False
        self.way: Open | None = None
        self.index = -1

    def open(self, way: Open, index: int) -> None:
        self.way, self.index, self.is_open = way, index, True

    def close(self) -> None:
        self.is_open, self.way = False, None

    def settle(self) -> None:
        self.is_settled = True

    def say(self, value: Any) -> None:
        if (way := self.way) is not None:
            way.say(self.index, value)

    def end(self) -> None:
        if (way := self.way) is not None:
            way.end(self.index)


class Model:
    """Begins batches, and answers when the test says so."""

    def __init__(self) -> None:
        self.pump = Pump()
        self.begun: list[tuple[list[Voice], Callable[[], None]]] = []
        self.changed = threading.Semaphore(0)

    def start(self, values: Sequence[Any]) -> Later:
        voices = [Voice() for _ in values]

        def begin(returned: Callable[[], None]) -> None:
            self.begun.append((voices, returned))
            self.changed.release()

        return Later(self.pump, voices, begin)

    def wait(self, batches: int = 1) -> None:
        for _ in range(batches):
            assert self.changed.acquire(timeout=20), "a batch never began"

    def flush(self) -> None:
        """Wait until all that was said has been sent."""
        done = threading.Event()
        self.pump.put(done.set)
        assert done.wait(20)


class Bench:
    """A pipeline of two stages whose second answers later."""

    def __init__(self, slice_size: int = 0) -> None:
        self.model = Model()
        self.listener = Listener()
        self.done: list[int] = []
        made = context()
        stages = (
            Stage("preprocess", "m (reading)", lambda rows: rows, gives_rows=False),
            Stage("inference", "m.execute", self.model.start, gives_rows=True),
        )
        self.program = Program("m", stages, read, made, False)
        micro = MicroBatching(micro_batch_size=slice_size)
        self.pipeline = Threaded(self.program, micro, None, lambda batch: self.done.append(batch.number))
        self.pipeline.start()

    def submit(self, number: int, *bodies: bytes) -> Batch:
        made = batch(number, bodies, self.listener)
        self.pipeline.submit(made)
        return made

    def told(self, number: int) -> list[Any]:
        """What the front process heard of a batch, in short."""
        self.model.flush()
        found: list[Any] = []
        for message, data in self.listener.frames:
            if message.batch != number:
                continue
            if isinstance(message, Pieces):
                (piece,) = message.pieces
                found.append((piece.index, piece.failure or (data[0] if data else b""), piece.is_last))
            else:
                found.append(type(message))
        return found


def read(items: Sequence[Any], data: memoryview, arena: Any) -> list[Any]:
    rows: list[Any] = []
    for item in items:
        size = item.parts[0].size
        body, data = bytes(data[:size]), data[size:]
        rows.append(InvalidInput("unreadable") if body == b"bad" else body)
    return rows


def test_answers_leave_in_their_order_and_the_batch_with_the_last() -> None:
    bench = Bench()
    bench.submit(1, b"a", b"b")
    bench.model.wait()
    ((first, second), returned) = bench.model.begun[0]
    first.say(b"1")
    second.say(b"2")
    returned()
    first.say(b"3")
    first.end()
    assert bench.told(1) == [(0, b"1", False), (1, b"2", False), Begun, (0, b"3", False), (0, b"", True)]
    assert bench.done == []
    second.end()

    assert bench.told(1)[5:] == [(1, b"", True), Ended]
    assert bench.done == [1]
    assert first.is_settled and second.is_settled


def test_a_batch_that_is_answered_when_its_call_returns_just_ends() -> None:
    bench = Bench()
    bench.submit(1, b"a")
    bench.model.wait()
    ((voice,), returned) = bench.model.begun[0]
    voice.say(b"1")
    voice.end()
    assert bench.told(1) == [(0, b"1", False), (0, b"", True)], "its instance is not free before the call returned"
    assert not voice.is_settled, "the call may look at its requests still"
    returned()

    assert bench.told(1)[2:] == [Ended]


def test_many_batches_are_open_at_once_on_no_thread_of_their_own() -> None:
    bench = Bench()
    before = threading.active_count()
    for number in range(200):
        bench.submit(number, b"x")
    bench.model.wait(200)
    assert threading.active_count() <= before
    for _, returned in bench.model.begun:
        returned()
    for number, ((voice,), _) in reversed(list(enumerate(bench.model.begun))):
        voice.say(b"%d" % number)
        voice.end()

    for number in range(200):
        assert bench.told(number) == [Begun, (0, b"%d" % number, False), (0, b"", True), Ended]
    assert bench.done == list(range(199, -1, -1))


def test_an_exception_ends_its_request_alone() -> None:
    bench = Bench()
    bench.submit(1, b"a", b"b")
    bench.model.wait()
    ((first, second), returned) = bench.model.begun[0]
    returned()
    first.say(HandlerFailed("no bee", status=418))
    first.say(b"after its end")
    first.end()
    second.say(object())  # nothing that can be written
    told = bench.told(1)

    assert [type(each[1]) for each in told[1:-1]] == [Failure, Failure]
    assert (told[1][1].message, told[1][1].status, told[1][2]) == ("no bee", 418, True)
    assert told[0] is Begun and told[-1] is Ended


def test_a_request_that_cannot_be_read_fails_and_the_others_are_answered() -> None:
    bench = Bench()
    bench.submit(1, b"bad", b"b")
    bench.model.wait()
    ((voice,), returned) = bench.model.begun[0]
    returned()
    voice.say(b"yes")
    voice.end()
    bench.model.flush()

    assert bench.listener.results(1, 2)[1] == b"yes"
    assert isinstance(failure := bench.listener.results(1, 2)[0], Failure) and failure.message == "unreadable"


def test_one_that_is_cancelled_is_left_and_the_batch_ends_without_it() -> None:
    bench = Bench()
    made = bench.submit(1, b"a", b"b")
    bench.model.wait()
    ((first, second), returned) = bench.model.begun[0]
    returned()
    made.cancel(0)
    bench.model.flush()
    assert not first.is_open and second.is_open
    first.say(b"nobody hears it")
    second.say(b"2")
    second.end()

    assert bench.told(1) == [Begun, (1, b"2", False), (1, b"", True), Ended]


def test_a_batch_that_everybody_left_ends_when_its_call_returns() -> None:
    bench = Bench()
    made = bench.submit(1, b"a")
    bench.model.wait()
    made.cancel(0)
    assert bench.told(1) == []
    bench.model.begun[0][1]()

    assert bench.told(1) == [Ended]


def test_one_that_left_before_its_batch_began_is_not_waited_for() -> None:
    bench = Bench()
    made = batch(1, [b"a"], bench.listener)
    made.cancel(0)
    bench.pipeline.submit(made)
    bench.model.wait()
    bench.model.begun[0][1]()

    assert bench.told(1) == [Ended]


def test_a_batch_in_slices_ends_with_the_last_of_them() -> None:
    bench = Bench(slice_size=1)
    made = bench.submit(1, b"a", b"b")
    bench.model.wait(2)
    made.cancel(1)
    for (voice,), returned in bench.model.begun:
        returned()
        voice.end()
    told = bench.told(1)

    assert told.count(Ended) == 1 and told[-1] is Ended
    assert (0, b"", True) in told and bench.done == [1]


def test_where_nobody_sees_it_off_the_answers_are_waited_for() -> None:
    bench = Bench()
    inline = Inline(bench.program, None, nothing, nothing)

    def answer() -> None:
        bench.model.wait()
        ((voice,), returned) = bench.model.begun[0]
        returned()
        voice.say(b"yes")
        voice.end()

    thread = threading.Thread(target=answer)
    thread.start()
    inline.submit(batch(1, [b"a"], bench.listener))
    thread.join()

    assert bench.told(1) == [Begun, (0, b"yes", False), (0, b"", True), Ended]


def test_the_time_of_the_answers_is_the_stages() -> None:
    bench = Bench()
    bench.submit(1, b"a")
    bench.model.wait()
    ((voice,), returned) = bench.model.begun[0]
    returned()
    threading.Event().wait(0.05)
    voice.end()
    bench.model.flush()

    assert bench.listener.ends[0].stages[1] >= 0.05


def test_nothing_of_a_batch_that_has_ended_waits_for_the_collector() -> None:
    bench = Bench()
    made = bench.submit(1, b"a")
    bench.model.wait()
    ((voice,), returned) = bench.model.begun[0]
    returned()
    voice.end()
    bench.told(1)
    found = weakref.ref(voice.way or made)
    gc.disable()
    try:
        bench.submit(2, b"b")  # the threads let go of what they had last
        bench.model.wait()
        bench.told(1)
        bench.model.begun.clear()
        del voice, returned, made
        assert found() is None
    finally:
        gc.enable()


def test_a_finalizer_may_speak_while_something_is_sent() -> None:
    bench = Bench()
    bench.submit(1, b"a", b"b")
    bench.model.wait()
    ((first, second), returned) = bench.model.begun[0]
    returned()
    send = bench.listener.send
    lock = threading.Lock()

    def guarded(message: Any, data: Any = ()) -> None:
        with lock:  # as the way to the front process is
            if second.is_open:
                second.say(b"from inside")
                second.end()
            send(message, data)

    bench.listener.send = guarded  # type: ignore[method-assign]
    first.say(b"1")
    bench.model.flush()
    first.end()

    assert bench.told(1)[-1] is Ended


@pytest.mark.parametrize("error", [ValueError("odd"), SystemExit(3)])
def test_the_pump_outlives_what_it_is_given(error: BaseException) -> None:
    pump = Pump()

    def fail() -> None:
        raise error

    pump.put(fail)
    done = threading.Event()
    pump.put(done.set)
    assert done.wait(20)

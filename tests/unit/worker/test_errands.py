"""Errands of a model in its worker: who waits, who reads, and what is left when the server is gone."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from shoal.errors import ProtocolError
from shoal.payload import Buffer
from shoal.wire.messages import CallOff, Command, Order, Stop, Told
from shoal.worker.errands import CANCELLED, GONE, SMALL, Errand, Errands

NOTHING = memoryview(b"")
Script = list[tuple[Command, memoryview] | None]


class Sent:
    """Notes what is sent."""

    def __init__(self) -> None:
        self.is_gone = False
        self.messages: list[Any] = []

    def send(self, message: msgspec.Struct, data: Sequence[Buffer] = ()) -> None:
        self.messages.append(message)


def begin(errands: Errands) -> Errand:
    return errands.begin(lambda number: Order(number, "ready", "m"))


def connected(script: Script | None = None, *, is_read: bool = True) -> tuple[Errands, Sent]:
    errands, sent, lines = Errands(), Sent(), iter(script or [])
    errands.connect(sent, lambda: next(lines))
    if is_read:
        errands.serve()
    return errands, sent


def wanted() -> bool:
    return True


def heard(errand: Errand, place: int = 0, is_wanted: Callable[[], bool] = wanted) -> Any:
    found = errand.wait(place, is_wanted)
    assert found is not None
    return found


def test_an_answer_goes_to_whom_it_is_for() -> None:
    errands, sent = connected()
    first, second = begin(errands), begin(errands)
    errands.hear(Told(second.number, True, True), NOTHING)
    errands.hear(Told(first.number, True), memoryview(b"x"))

    assert sent.messages == [Order(1, "ready", "m"), Order(2, "ready", "m")]
    assert heard(second)[0].is_true and bytes(heard(first)[1]) == b"x"
    assert heard(first)[0] == Told(1, True)  # as often as it is asked for
    assert first.wait(1, wanted) is None


def test_who_waits_is_woken() -> None:
    errands, _ = connected()
    errand = begin(errands)
    later = threading.Timer(0.05, lambda: errands.hear(Told(errand.number, True, True), NOTHING))
    later.start()

    assert heard(errand)[0].is_true
    later.join()


def test_many_answers_come_in_order_and_nothing_after_the_last() -> None:
    errands, _ = connected()
    errand = begin(errands)
    for body, is_last in ((b"a", False), (b"b", False), (b"", True), (b"c", True)):
        errands.hear(Told(errand.number, is_last), memoryview(body))

    assert [bytes(heard(errand, place)[1]) for place in range(3)] == [b"a", b"b", b""]
    assert errand.at(1) is not None and errand.at(3) is None
    assert errand.wait(3, wanted) is None


def test_news_are_told_once_for_each_answer() -> None:
    errands, _ = connected()
    errand, told = begin(errands), []
    errand.on_news = lambda: told.append(errand.has_ended)
    errands.hear(Told(errand.number, False), NOTHING)
    errands.hear(Told(errand.number, True), NOTHING)

    assert told == [False, True]


def test_what_nobody_wants_is_called_off() -> None:
    errands, sent = connected()
    errand = begin(errands)
    told, _ = heard(errand, is_wanted=lambda: False)

    assert told.failure is not None and told.failure.status == CANCELLED
    assert sent.messages[-1] == CallOff(errand.number)
    errands.hear(Told(errand.number, True, True), NOTHING)  # on its way when it was called off
    assert heard(errand)[0].failure is not None
    errand.call_off()
    assert sent.messages.count(CallOff(errand.number)) == 1


def test_while_nobody_reads_the_one_who_waits_does() -> None:
    errands, _ = connected([(Told(2, True), NOTHING), (Told(1, True, True), NOTHING)], is_read=False)
    first, second = begin(errands), begin(errands)

    assert heard(first)[0].is_true
    assert heard(second)[0] == Told(2, True)


def test_two_that_wait_while_nobody_reads_both_get_their_answers() -> None:
    errands, _ = connected([(Told(number, True, True), NOTHING) for number in (4, 3, 2, 1)], is_read=False)
    waiting = [begin(errands) for _ in range(4)]
    found: list[bool] = []
    threads = [threading.Thread(target=lambda each=each: found.append(heard(each)[0].is_true)) for each in waiting]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)

    assert found == [True] * 4


def test_who_has_what_it_waited_for_reads_no_further() -> None:
    errands, _ = connected([], is_read=False)
    errands.read(lambda: True)
    errands.serve()
    errands.read(lambda: False)


def test_what_has_ended_is_forgotten() -> None:
    errands, _ = connected()
    errand = begin(errands)
    errands.hear(Told(errand.number, True), NOTHING)

    assert errands.forget(errand.number) is None


def test_a_command_that_has_no_place_in_a_load_is_a_fault() -> None:
    errands, _ = connected([(Stop(), NOTHING)], is_read=False)

    with pytest.raises(ProtocolError, match="Stop came while the model was loaded"):
        begin(errands).wait(0, wanted)


def test_the_end_of_the_stream_ends_who_waits() -> None:
    errands, _ = connected([None], is_read=False)
    told, _ = heard(begin(errands))

    assert told.failure is not None and told.failure.message == GONE


def test_once_the_server_is_gone_everybody_is_told() -> None:
    errands, _ = connected()
    errand = begin(errands)
    errands.close()
    late = begin(errands)

    for each in (errand, late):
        told, _ = heard(each)
        assert told.failure is not None and told.failure.message == GONE
    assert not errands.is_connected


def test_a_sender_that_nobody_listens_to_any_more_counts_as_gone() -> None:
    errands, sent = connected()
    sent.is_gone = True
    told, _ = heard(begin(errands))

    assert told.failure is not None and told.failure.message == GONE


def test_a_message_that_cannot_be_made_leaves_nothing_behind() -> None:
    errands, _ = connected()

    with pytest.raises(ZeroDivisionError):
        errands.begin(lambda number: Order(1 // 0, "ready", "m"))
    assert errands.forget(1) is None


def test_a_small_answer_holds_nothing_of_what_was_read_with_it() -> None:
    errands, _ = connected()
    errand = begin(errands)
    read = memoryview(bytes(SMALL + 1))
    errands.hear(Told(errand.number, False), read[:2])
    errands.hear(Told(errand.number, True), read)

    assert heard(errand)[1].nbytes == 2 and heard(errand)[1].obj is not read.obj
    assert heard(errand, 1)[1].obj is read.obj

"""What a worker's model asks of the server: taken within limits, answered once, called off when the worker is gone."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from shoal.payload import Buffer
from shoal.pool import errands
from shoal.pool.errands import Board, Caller, Errands, Tell
from shoal.pool.link import LinkedInstance, WorkerLink
from shoal.wire.messages import Ask, CallOff, Order, Told
from tests.support import Bench, FakeClock

BODY = memoryview(b"abc")


def _nobody(_: object) -> None:
    """Who is told of a worker here."""


class NotedBoard:
    """Notes what it is asked, and whether that was called off."""

    def __init__(self) -> None:
        self.asked: dict[int, tuple[Ask | Order, Tell]] = {}
        self.called_off: list[int] = []
        self.at_once: Told | None = None

    def ask(self, ask: Ask, body: memoryview, caller: Caller, tell: Tell) -> Callable[[], None]:
        assert body == BODY and caller.worker == "w"
        return self._take(ask, tell)

    def order(self, order: Order, caller: Caller, tell: Tell) -> Callable[[], None]:
        return self._take(order, tell)

    def _take(self, what: Ask | Order, tell: Tell) -> Callable[[], None]:
        self.asked[what.errand] = (what, tell)
        if self.at_once is not None:
            tell(self.at_once, ())
        return lambda: self.called_off.append(what.errand)


class Desk:
    """One worker's errands, and all that can be seen of them."""

    def __init__(self, board: Board | None) -> None:
        self.told: list[tuple[Told, bytes]] = []
        self.held: list[bool] = []
        self.errands = Errands(board, Caller("w", Bench().scheduler, self.held.append), self._tell)

    def _tell(self, told: Told, data: Sequence[Buffer]) -> None:
        self.told.append((told, b"".join(data)))

    def ask(self, number: int, *, holds: bool = False) -> None:
        self.errands.hear(Ask(number, "m", "", [], [], holds=holds), BODY)


def test_answers_are_passed_on_until_the_last() -> None:
    board = NotedBoard()
    desk = Desk(board)
    desk.ask(1)
    tell = board.asked[1][1]
    tell(Told(1, False), (b"a", b"b"))
    tell(Told(1, True), ())
    tell(Told(1, True), ())

    assert desk.told == [(Told(1, False), b"ab"), (Told(1, True), b"")]
    desk.errands.close()
    assert board.called_off == []


def test_an_order_goes_its_own_way() -> None:
    board = NotedBoard()
    desk = Desk(board)
    desk.errands.hear(Order(7, "ready", "m"), memoryview(b""))

    assert board.asked[7][0] == Order(7, "ready", "m")


def test_what_is_called_off_is_called_off_once_and_hears_nothing_more() -> None:
    board = NotedBoard()
    desk = Desk(board)
    desk.ask(1)
    desk.errands.hear(CallOff(1), memoryview(b""))
    desk.errands.hear(CallOff(1), memoryview(b""))
    board.asked[1][1](Told(1, True), ())

    assert board.called_off == [1]
    assert desk.told == []


def test_a_worker_that_is_gone_leaves_nothing_running() -> None:
    board = NotedBoard()
    desk = Desk(board)
    for number in range(3):
        desk.ask(number)
    desk.errands.close()

    assert board.called_off == [0, 1, 2]


def test_no_more_are_taken_than_may_be_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errands, "MOST", 2)
    board = NotedBoard()
    desk = Desk(board)
    for number in range(3):
        desk.ask(number)

    assert list(board.asked) == [0, 1]
    ((told, _),) = desk.told
    assert told.errand == 2 and told.is_last and told.failure is not None
    assert told.failure.message == "the model has 2 calls under way, and not more are taken"
    board.asked[0][1](Told(0, True), ())
    desk.ask(3)
    assert list(board.asked) == [0, 1, 3]


def test_a_number_that_is_in_use_is_refused() -> None:
    board = NotedBoard()
    desk = Desk(board)
    desk.ask(1)
    desk.ask(1)

    assert [told.failure.message for told, _ in desk.told if told.failure] == ["errand 1 is under way already"]


def test_where_nobody_does_errands_that_is_said() -> None:
    desk = Desk(None)
    desk.ask(1)

    assert [told.failure.message for told, _ in desk.told if told.failure] == [
        "this server takes no calls from its models"
    ]


def test_an_instance_is_held_from_the_first_to_the_last_call_that_it_waits_for() -> None:
    board = NotedBoard()
    desk = Desk(board)
    desk.ask(1)
    assert desk.held == []
    desk.ask(2, holds=True)
    desk.ask(3, holds=True)
    assert desk.held == [True]
    board.asked[2][1](Told(2, True), ())
    assert desk.held == [True]
    desk.errands.hear(CallOff(3), memoryview(b""))
    assert desk.held == [True, False]


def test_nothing_is_put_behind_a_batch_that_waits_for_another_model() -> None:
    async def made() -> WorkerLink:
        return WorkerLink(Bench().scheduler, FakeClock(), _nobody, _nobody, _nobody, _nobody)

    instance = LinkedInstance("w", 0, 3, asyncio.run(made()))
    instance.hold(True)
    assert instance.places == 1
    instance.hold(False)
    assert instance.places == 3


def test_an_answer_that_comes_at_once_ends_it_as_well() -> None:
    board = NotedBoard()
    board.at_once = Told(1, True)
    desk = Desk(board)
    desk.ask(1, holds=True)
    desk.errands.close()

    assert desk.told == [(Told(1, True), b"")]
    assert desk.held == [True, False]
    assert board.called_off == []

"""Errands of one worker: what its model asks of the server, how much of it at once, and who hears the answers."""

from collections.abc import Callable, Sequence
from typing import Protocol

from shoal.core.scheduler import Scheduler
from shoal.payload import Buffer
from shoal.wire.messages import Ask, CallOff, Failure, Order, Told

MOST = 1024  # errands of one worker at once
Tell = Callable[[Told, Sequence[Buffer]], None]


class Caller:
    """The worker that asks; `hold` hears whether its instance waits for an answer before it runs anything else."""

    def __init__(self, worker: str, home: Scheduler, hold: Callable[[bool], None]) -> None:
        self.worker = worker
        self.home = home  # of its model
        self.hold = hold


class Board(Protocol):
    """Does what models ask of the server. `tell` may be called at once; what is given back calls the errand off."""

    def ask(self, ask: Ask, body: memoryview, caller: Caller, tell: Tell) -> Callable[[], None]:
        """Call a model."""
        ...

    def order(self, order: Order, caller: Caller, tell: Tell) -> Callable[[], None]:
        """Change the repository, or look something up in it."""
        ...


class Errands:
    """Those of one worker that are under way."""

    def __init__(self, board: Board | None, caller: Caller, tell: Tell) -> None:
        self._board = board
        self._caller = caller
        self._tell = tell
        self._open: dict[int, Callable[[], None]] = {}
        self._holding: set[int] = set()

    def hear(self, report: Ask | Order | CallOff, body: memoryview) -> None:
        """Take what a worker asks, or calls off."""
        number = report.errand
        if isinstance(report, CallOff):
            if call_off := self._end(number):
                call_off()
        elif self._board is None:
            self._refuse(number, "this server takes no calls from its models")
        elif number in self._open:
            self._refuse(number, f"errand {number} is under way already")
        elif len(self._open) >= MOST:
            self._refuse(number, f"the model has {MOST} calls under way, and not more are taken")
        else:
            self._begin(self._board, report, body)

    def close(self) -> None:
        """The worker is gone: call everything off."""
        for number in list(self._open):
            if call_off := self._end(number):
                call_off()

    def _begin(self, board: Board, report: Ask | Order, body: memoryview) -> None:
        number = report.errand
        self._open[number] = _nothing
        if isinstance(report, Ask) and report.holds:
            self._hold(number)
        if isinstance(report, Ask):
            call_off = board.ask(report, body, self._caller, self._told)
        else:
            call_off = board.order(report, self._caller, self._told)
        if number in self._open:  # not answered already
            self._open[number] = call_off

    def _told(self, told: Told, data: Sequence[Buffer]) -> None:
        if told.errand in self._open:
            if told.is_last:
                self._end(told.errand)
            self._tell(told, data)

    def _hold(self, number: int) -> None:
        self._holding.add(number)
        if len(self._holding) == 1:
            self._caller.hold(True)

    def _end(self, number: int) -> Callable[[], None] | None:
        if number in self._holding:
            self._holding.remove(number)
            if not self._holding:
                self._caller.hold(False)
        return self._open.pop(number, None)

    def _refuse(self, number: int, message: str) -> None:
        self._tell(Told(number, True, failure=Failure("handler", message)), ())


def _nothing() -> None:
    """Nothing to call off yet."""

"""Continuous batching as TorchServe means it: requests join and leave a batch while it runs.

Every step is one call of the handler with a row for each request that is alive: its data the first time, an empty dict
from then on. Whether a request goes on is for the header `ts_stream_next` of its row to say.
"""

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, Protocol

from shoal.errors import HandlerFailed
from shoal.wire.memory import ArenaReader
from shoal.wire.messages import Pieces
from shoal.worker import failures
from shoal.worker.batch import STREAMED, Answer, Batch, Outcome, Slice, piece, rows_of
from shoal.worker.handler import RequestView
from shoal.worker.pipeline import Done, apart
from shoal.worker.program import Program
from shoal.worker.requests import Requests

NEXT = "ts_stream_next"  # the header that says whether a piece is followed by another
MORE, LAST = "true", "false"


class Answering(Protocol):
    """Takes the headers of one row's answer."""

    def add_response_property(self, key: str, value: str) -> None:
        """Set a header."""
        ...


def judge(criteria: Any, results: Any, rows: Sequence[Answering]) -> bool:
    """Ask the handler's stopping criteria, one for each row, and put down what they say; False where there are none.

    A criterion is given its row's result: true is the last piece, false one of several, None an answer without pieces.
    """
    if not criteria or not isinstance(results, list):
        return False
    if len(criteria) < len(rows):
        told = f"context.stopping_criteria has {len(criteria)} entries for {len(rows)} requests"
        raise HandlerFailed("Prediction failed", status=503, traceback=told)
    for criterion, result, row in zip(criteria, results, rows, strict=False):
        is_over = criterion(result)
        if is_over is not None:
            row.add_response_property(NEXT, LAST if is_over else MORE)
    return True


class Row:
    """One request that is alive."""

    __slots__ = ("cut", "data", "has_begun")

    def __init__(self, cut: Slice, data: Any) -> None:
        self.cut = cut
        self.data = data  # what the next step is given of it
        self.has_begun = False  # pieces of its answer have left

    @property
    def is_wanted(self) -> bool:
        """Whether anybody waits for it."""
        batch = self.cut.batch
        return not batch.sender.is_gone and self.cut.places[0] not in batch.cancelled

    def send(self, answer: Answer, *, is_last: bool) -> None:
        """Send a piece."""
        batch = self.cut.batch
        self.has_begun = True
        batch.sender.send(Pieces(batch.number, [piece(self.cut.places[0], is_last, answer)]), [answer[0]])


class Continuous:
    """Keeps the requests that are alive; `arrivals` gives the batches that came since it was last asked, at once."""

    def __init__(
        self, program: Program, arena: ArenaReader | None, done: Done, arrivals: Callable[[], list[Batch]]
    ) -> None:
        self._program = program
        (self._stage,) = program.stages
        self._arena = arena
        self._done = done
        self._arrivals = arrivals
        self._rows: list[Row] = []  # in the order they came
        self._requests = Requests((), RequestView)  # theirs, in the step at hand

    def start(self) -> None:
        """Nothing to start."""

    def submit(self, batch: Batch) -> None:
        """Run it together with whatever comes meanwhile, until nobody is left."""
        self._join(batch)
        while self._rows:
            for other in self._arrivals():
                self._join(other)
            for row in [row for row in self._rows if not row.is_wanted]:
                self._end(row, STREAMED)
            if self._rows:
                self._step()

    def _join(self, batch: Batch) -> None:
        (whole,) = batch.slices(0)
        rows = [Row(cut, None) for cut in apart(whole)]
        self._rows += rows
        try:
            values = self._program.read(batch.items, batch.data, self._arena)
        except Exception as error:  # a defect of ours: those who came with it are told, the others go on
            self._fail(rows, error)
            return
        for row, value in zip(rows, values, strict=True):
            row.data = value
            if isinstance(value, BaseException):
                self._fail([row], value)

    def _step(self) -> None:
        """Call the handler once for all; an error is everybody's."""
        rows = list(self._rows)
        self._requests = Requests([row.cut.items[0] for row in rows], RequestView)
        results: Sequence[Any]
        started = perf_counter()
        try:
            self._program.context.enter(self._requests, self._emit)
            results = rows_of(self._stage.call([row.data for row in rows]), len(rows), self._stage.label)
            failed = None
        except BaseException as error:  # SystemExit too: user code does not end the worker
            results, failed = (), error
        finally:
            self._program.context.leave()
        seconds = perf_counter() - started
        for row in rows:
            row.cut.spend(self._stage, seconds)
        if failed is not None:
            self._fail(rows, failed)
            return
        for index, (row, value) in enumerate(zip(rows, results, strict=True)):
            row.data = {}
            self._answer(row, index, value)

    def _answer(self, row: Row, index: int, value: Any) -> None:
        """Send what a step gave to one request; what is the whole answer is sent as such."""
        try:
            answer = self._write(row, index, value)
        except BaseException as error:
            self._fail([row], error)
            return
        said = answer[2]
        goes_on = said is not None and (NEXT, MORE) in said.headers
        if goes_on or row.has_begun:
            row.send(answer, is_last=not goes_on)
        if not goes_on:
            self._end(row, STREAMED if row.has_begun else answer)

    def _emit(self, results: Sequence[Any]) -> None:
        """Send pieces in the middle of a step; None is nothing for that request."""
        values = rows_of(results, len(self._requests), "context.send")
        for index, (row, value) in enumerate(zip(list(self._rows), values, strict=True)):
            if value is not None and row.is_wanted:
                row.send(self._write(row, index, value), is_last=False)

    def _write(self, row: Row, index: int, value: Any) -> Answer:
        if isinstance(value, BaseException):
            raise value
        row.cut.requests = self._requests.keep([index])
        return row.cut.write(0, value)

    def _fail(self, rows: Sequence[Row], error: BaseException) -> None:
        failure = failures.failure(error, self._stage.label)
        for row in rows:
            self._end(row, failure)

    def _end(self, row: Row, outcome: Outcome) -> None:
        """A request is through; so is its batch with the last of its requests."""
        self._rows.remove(row)
        batch = row.cut.batch
        batch.outcomes[row.cut.places[0]] = outcome
        if None not in batch.outcomes:
            batch.close(row.cut)
            batch.finish()
            self._done(batch)

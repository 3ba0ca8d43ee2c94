"""One batch inside a worker: its slices on their way through the stages, and what becomes of each request.

Every request of a batch ends in one of four ways: answered, failed by itself, failed with the rest (`Ended.failure`),
or streamed. Whatever happens in the stages, `finish` is called once and tells the front process all of it.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import msgspec

from shoal.errors import HandlerFailed
from shoal.payload import Buffer
from shoal.wire.messages import Answered, Ended, Failure, Item, Piece, Pieces, Run
from shoal.wire.tray import LARGE, Laid
from shoal.worker import failures
from shoal.worker.handler import RequestView
from shoal.worker.items import type_name, write
from shoal.worker.outlet import outlet
from shoal.worker.program import COLUMNS, Stage
from shoal.worker.requests import Requests, Said


class Sender(Protocol):
    """The way to the front process."""

    is_gone: bool  # nobody reads any more

    def send(self, message: msgspec.Struct, data: Sequence[Buffer] = ()) -> None:
        """Send one frame; from any thread."""
        ...


class Streamed:
    """The outcome of a request whose answer has been sent in pieces."""


STREAMED: Final = Streamed()
Later = Callable[["Slice", Stage], None]
Answer = tuple[Buffer, str, Said | None]  # body, content type, what the handler said about it
Whole = tuple[Buffer | Laid, str, Said | None]  # the same, where it is all of the answer
Outcome = Whole | Failure | Streamed | None
Plain = Answer | Failure | Streamed | None


class Batch:
    """The requests that came with one Run."""

    def __init__(self, run: Run, data: memoryview, sender: Sender, limit: int = 0) -> None:
        self.number = run.batch
        self.instance = run.instance
        self.items = run.items
        self.slots = run.slots  # of the requests' sequences, one for each; empty where there are none
        self.data = data
        self.limit = limit  # bytes an answer may have; 0: any
        self.sender = sender
        self.outcomes: list[Outcome] = [None] * len(run.items)
        self.cancelled: set[int] = set()
        self.on_cancel: list[Callable[[], None]] = []  # who wants to hear that one was
        self.failure: Failure | None = None  # what ends the requests that share one failure
        self.has_begun = False  # pieces of it have left, so its end comes in pieces too
        self._seconds = [0.0, 0.0, 0.0]
        self._open = 1
        self._lock = threading.Lock()

    def slices(self, size: int) -> list["Slice"]:
        """Cut it into micro-batches of `size` requests; 0 leaves it whole."""
        count = len(self.items)
        if not 0 < size < count:
            return [Slice(self, range(count), self.items, 0)]
        slices, at = [], 0
        for start in range(0, count, size):
            cut = Slice(self, range(start, min(start + size, count)), self.items[start : start + size], at)
            at += cut.inline_size
            slices.append(cut)
        self._open = len(slices)
        return slices

    def cancel(self, place: int) -> None:
        """Nobody waits for this request any more."""
        self.cancelled.add(place)
        for hear in list(self.on_cancel):  # another thread may take one out
            hear()

    def close(self, cut: "Slice") -> bool:
        """Count a slice that is through; True for the last one, whose caller then finishes the batch."""
        with self._lock:
            for column, seconds in enumerate(cut.seconds):
                self._seconds[column] += seconds
            self._open -= 1
            return not self._open

    def finish(self) -> None:
        """Tell the front process how each request ended that it has not heard of yet."""
        first, second, third = self._seconds
        stages = (first, second, third)
        if not self._send_answered(stages):
            self._send_pieces()
            self.sender.send(Ended(self.number, stages, self.failure))

    def fail_together(self, failure: Failure, places: Sequence[int]) -> None:
        """End these requests with one failure."""
        with self._lock:
            self.failure = self.failure or failure
        for place in places:
            if self.outcomes[place] is None:
                self.outcomes[place] = failure

    def _send_answered(self, stages: tuple[float, float, float]) -> bool:
        if self.has_begun:
            return False
        sizes: list[int] = []
        types: list[str] = []
        bodies: list[Any] = []
        largest = 0
        for outcome in self.outcomes:
            if type(outcome) is not tuple:
                return False
            body, content_type, said = outcome
            if said is not None and (said.status != 200 or said.reason or said.headers):
                return False
            size = len(body)
            largest = size if size > largest else largest
            sizes.append(size)
            types.append(content_type)
            bodies.append(body)
        if types and types[0] and types.count(types[0]) == len(types):
            types = types[:1]
        offsets: list[int] = []
        if largest >= LARGE:
            offsets, bodies = outlet.put(bodies)
        self.sender.send(Answered(self.number, sizes, types, stages, offsets), bodies)
        return True

    def _send_pieces(self) -> None:
        pieces, bodies = [], []
        for index, outcome in enumerate(self.outcomes):
            if isinstance(outcome, Failure):
                if outcome is not self.failure:
                    pieces.append(Piece(index, True, 0, failure=outcome))
            elif isinstance(outcome, tuple):
                answer = answer_of(outcome)
                pieces.append(piece(index, True, answer))
                bodies.append(answer[0])
        if pieces:
            self.sender.send(Pieces(self.number, pieces), bodies)


class Slice:
    """A micro-batch, or the whole of a batch: the requests still alive in it and the data between two stages."""

    __slots__ = ("batch", "column", "data", "items", "later", "leave", "places", "requests", "seconds", "start")

    def __init__(self, batch: Batch, places: Sequence[int], items: Sequence[Item], start: int) -> None:
        self.batch = batch
        self.places = places  # where in the batch each value of the data belongs
        self.items = items
        self.start = start  # where its bytes begin behind the message
        self.requests = Requests(items, RequestView)
        self.data: Any = None
        self.column = 0  # the stage that is next, where each has its thread
        self.later: Later | None = None  # lets its answers begin, where they come after its last stage
        self.leave: Callable[[Slice], None] | None = None  # who sees it off after those; None: they are waited for
        self.seconds = [0.0, 0.0, 0.0]

    @property
    def inline_size(self) -> int:
        """How many of the batch's bytes are its own."""
        return sum(part.size for item in self.items for part in item.parts if part.offset < 0)

    def spend(self, stage: Stage, seconds: float) -> None:
        """Note time that a stage took."""
        self.seconds[COLUMNS[stage.name]] += seconds

    def fail(self, error: BaseException, where: str) -> None:
        """End all that are alive with one failure."""
        self.batch.fail_together(failures.failure(error, where), self.places)
        self.places = ()

    def fail_one(self, index: int, error: BaseException, where: str) -> None:
        """End one with its own failure; the caller takes it out.

        That memory was short is said of the batch, whose size may be to blame; those who got none share it.
        """
        batch, place = self.batch, self.places[index]
        own = failures.failure(error, where)
        shared = batch.failure or own
        if own.kind == shared.kind == "memory":
            batch.fail_together(shared, [place])
        else:
            batch.outcomes[place] = own

    def drop_failed(self, values: Any, where: str) -> Any:
        """Take exceptions out of a list of one value per request, and with them the requests they end."""
        kind = type(values)
        if (kind is not list and kind is not tuple) or len(values) != len(self.places):
            return values
        if len(values) == 1 and not isinstance(values[0], BaseException):  # nothing to look for
            return values
        failed = [index for index, value in enumerate(values) if isinstance(value, BaseException)]
        if not failed:
            return values
        for index in failed:
            self.fail_one(index, values[index], where)
        return self.keep([index for index in range(len(values)) if index not in set(failed)], values)

    def keep(self, indices: Sequence[int], values: Sequence[Any]) -> list[Any]:
        """Go on with these alone."""
        self.requests = self.requests.keep(indices)
        self.places = [self.places[index] for index in indices]
        return [values[index] for index in indices]

    def emit(self, results: Sequence[Any]) -> None:
        """Send a piece of each answer while the handler is still at it; None is nothing for that request."""
        rows = rows_of(results, len(self.places), "context.send")
        batch, pieces, bodies = self.batch, [], []
        for index, (place, value) in enumerate(zip(self.places, rows, strict=True)):
            if value is not None and place not in batch.cancelled:
                answer = self.write(index, value)
                pieces.append(piece(place, False, answer))
                bodies.append(answer[0])
        if pieces:
            batch.has_begun = True
            batch.sender.send(Pieces(batch.number, pieces), bodies)

    def write(self, index: int, value: Any) -> Answer:
        """The piece of an answer that a value is for one of its requests."""
        return answer_of(self._write(index, value))

    def _write(self, index: int, value: Any) -> Whole:
        body, content_type = write(value)
        limit = self.batch.limit
        if limit and len(body) > limit:
            raise HandlerFailed(f"an answer of {len(body)} bytes is over the limit of {limit}")
        said = self.requests.said(index)
        return body, said.content_type or content_type if said else content_type, said

    def answer(self, results: Sequence[Any], where: str) -> None:
        """Write each result for its request; one that cannot be written fails alone."""
        outcomes = self.batch.outcomes
        for index, value in enumerate(results):
            if isinstance(value, BaseException):
                self.fail_one(index, value, where)
                continue
            try:
                outcomes[self.places[index]] = self._write(index, value)
            except HandlerFailed as error:
                self.fail_one(index, error, where)


def plain(outcome: Outcome) -> Plain:
    """Give an outcome whose answer, if it is one, is no longer in shared memory."""
    return answer_of(outcome) if isinstance(outcome, tuple) else outcome


def answer_of(whole: Whole) -> Answer:
    """Give an answer that is sent as it is."""
    body, content_type, said = whole
    return bytes(body.view) if isinstance(body, Laid) else body, content_type, said


def rows_of(result: Any, count: int, where: str) -> list[Any] | tuple[Any, ...]:
    """A stage's result as one value per request; HandlerFailed, saying what it gave instead, if it is not that."""
    if not isinstance(result, (list, tuple)):
        if not getattr(result, "ndim", 0) or not hasattr(result, "__iter__"):
            raise HandlerFailed(
                f"handler {where} gave {_what(result)}; it must give a list with one result per request"
            )
        result = list(result)
    rows: list[Any] | tuple[Any, ...] = result
    if len(rows) != count:
        raise HandlerFailed(f"handler {where} gave {len(rows)} results for {count} requests")
    return rows


def piece(index: int, is_last: bool, answer: Answer) -> Piece:
    """The piece that begins, or is, an answer."""
    body, content_type, said = answer
    if said is None:
        return Piece(index, is_last, len(body), content_type)
    return Piece(index, is_last, len(body), content_type, said.status, said.reason, said.headers)


def _what(result: Any) -> str:
    return "None" if result is None else f"a value of type {type_name(result)}"

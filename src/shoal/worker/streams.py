"""Answers in pieces: one generator in lock-step for a whole batch, or one for each request, pulled in turn.

Every piece says its content type, status and headers anew; those of a request's first piece count.
"""

import logging
from collections.abc import Callable, Generator, Sequence
from types import GeneratorType
from typing import Any

from shoal.wire.messages import Failure, Piece, Pieces
from shoal.worker import failures
from shoal.worker.batch import STREAMED, Answer, Slice, piece, rows_of
from shoal.worker.program import Stage

Steps = Generator[Any, None, None]
_log = logging.getLogger("shoal.worker")


def is_stream(result: Any) -> bool:
    """Whether a stage's result comes in pieces."""
    if isinstance(result, (list, tuple)):
        return GeneratorType in map(type, result)
    return isinstance(result, GeneratorType)


def run(cut: Slice, result: Any, stage: Stage, poll: Callable[[], None]) -> None:
    """Send the pieces as they come until every request's stream has ended, failed or was cancelled.

    `poll` is called between pieces. An exception of the lock-step generator is the caller's: it ends who is left.
    """
    stream = Stream(cut, stage, poll)
    if isinstance(result, GeneratorType):
        stream.pull_together(result)
    else:
        stream.pull_in_turn(rows_of(result, len(cut.places), stage.label))
    cut.places = ()


class Stream:
    """The requests of a slice that still get pieces."""

    def __init__(self, cut: Slice, stage: Stage, poll: Callable[[], None]) -> None:
        self._cut = cut
        self._stage = stage
        self._poll = poll
        self._alive = dict.fromkeys(range(len(cut.places)))  # an ordered set
        self._sources: dict[int, Steps] = {}  # the generators that single requests have

    def pull_together(self, steps: Steps) -> None:
        """Each step is a list with one value per request."""
        try:
            for values in steps:
                rows = rows_of(values, len(self._cut.places), self._stage.label)
                self._send([(index, rows[index]) for index in self._alive])
                self._leave_cancelled()
                if not self._alive:
                    return
            self._end(list(self._alive))
        finally:
            _close(steps)

    def pull_in_turn(self, sources: Sequence[Any]) -> None:
        """Each request has its own generator, or a value that is all there is."""
        self._sources = {index: source for index, source in enumerate(sources) if isinstance(source, GeneratorType)}
        while self._alive:
            for index in list(self._alive):
                if index in self._alive:  # not cancelled since
                    self._pull(index, sources[index])
                    self._leave_cancelled()

    def _pull(self, index: int, source: Any) -> None:
        if index not in self._sources:
            self._send([(index, source)], are_last=True)
            return
        try:
            value = next(source)
        except StopIteration:
            self._end([index])
        except BaseException as error:
            self._send([(index, error)])
        else:
            self._send([(index, value)])

    def _send(self, values: Sequence[tuple[int, Any]], are_last: bool = False) -> None:
        """Send a piece for each value that is not None; one that is or meets an error ends its request."""
        pieces, bodies, ended = [], [], []
        for index, value in values:
            if value is None and not are_last:
                continue
            place = self._cut.places[index]
            answer = written(self._cut, self._stage, index, value)
            if isinstance(answer, Failure):
                pieces.append(Piece(place, True, 0, failure=answer))
                ended.append(index)
            else:
                pieces.append(piece(place, are_last, answer))
                bodies.append(answer[0])
        if pieces:
            self._cut.batch.sender.send(Pieces(self._cut.batch.number, pieces), bodies)
        self._forget([index for index, _ in values] if are_last else ended)

    def _end(self, indices: Sequence[int]) -> None:
        batch, places = self._cut.batch, self._cut.places
        batch.sender.send(Pieces(batch.number, [Piece(places[index], True, 0) for index in indices]))
        self._forget(indices)

    def _leave_cancelled(self) -> None:
        self._poll()
        batch, places = self._cut.batch, self._cut.places
        self._forget([index for index in self._alive if batch.sender.is_gone or places[index] in batch.cancelled])

    def _forget(self, indices: Sequence[int]) -> None:
        for index in indices:
            del self._alive[index]
            self._cut.batch.outcomes[self._cut.places[index]] = STREAMED
            if source := self._sources.pop(index, None):
                _close(source)


def written(cut: Slice, stage: Stage, index: int, value: Any) -> Answer | Failure:
    """Give the piece that a value is for one request of a slice; of an exception, and where there is one, a failure."""
    try:
        if isinstance(value, BaseException):
            return failures.failure(value, stage.label)
        return cut.write(index, stage.encode(value) if stage.encode else value)
    except BaseException as error:
        return failures.failure(error, stage.label)


def _close(steps: Steps) -> None:
    try:
        steps.close()
    except BaseException:  # user code again; its stream has ended either way
        _log.exception("a generator failed while it was closed")

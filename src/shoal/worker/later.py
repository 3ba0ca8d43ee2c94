"""Answers that come later: a stage has returned, and whoever has something to say to its requests says it then.

Anybody may speak, from any thread and in a finalizer too, and nobody waits: one thread sends what was said, in order.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from time import perf_counter
from typing import Any, Protocol

from shoal.wire.messages import Begun, Failure, Piece, Pieces
from shoal.worker.batch import STREAMED, Slice, piece
from shoal.worker.program import Stage
from shoal.worker.streams import written

_log = logging.getLogger("shoal.worker")


class Pump:
    """The thread that sends what was said."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()
        threading.Thread(target=self._run, name="answers", daemon=True).start()

    def put(self, job: Callable[[], None]) -> None:
        """Do this once all before it is done; from anywhere."""
        self._jobs.put(job)

    def _run(self) -> None:
        while True:
            self._do(self._jobs.get())

    def _do(self, job: Callable[[], None]) -> None:
        """Do one thing; nothing of it is held once it is through."""
        try:
            job()
        except BaseException:  # a defect of ours: the thread lives
            _log.exception("an answer could not be sent")


class Voice(Protocol):
    """Speaks to one request."""

    def open(self, way: "Open", index: int) -> None:
        """Speak by this way from now on."""
        ...

    def close(self) -> None:
        """Nobody hears any more what is said."""
        ...

    def settle(self) -> None:
        """The batch is about to end, and the memory of its requests goes with it."""
        ...


@dataclass(frozen=True, slots=True)
class Later:
    """What a stage gives whose answers come later. `begin` is to say when what it began keeps nobody waiting."""

    pump: Pump
    voices: Sequence[Voice]  # one for each request
    begin: Callable[[Callable[[], None]], None]

    def open(self, cut: Slice, stage: Stage) -> None:
        """Let the requests of a slice be answered; waits for the last answer where nobody else sees the slice off."""
        done = threading.Event()
        way = Open(cut, stage, self, cut.leave or (lambda _: done.set()))
        self.begin(way.returned)
        if cut.leave is None:
            done.wait()


class Open:
    """The requests of a slice that may still be answered. Its state is the pump's alone."""

    def __init__(self, cut: Slice, stage: Stage, later: Later, leave: Callable[[Slice], None]) -> None:
        self._cut = cut
        self._stage = stage
        self._pump = later.pump
        self._voices = later.voices
        self._leave = leave
        self._alive = set(range(len(cut.places)))
        self._has_returned = False
        self._started = perf_counter()
        for index, voice in enumerate(self._voices):
            voice.open(self, index)
        cut.batch.on_cancel.append(self.look)
        self.look()  # somebody may have left before

    def say(self, index: int, value: Any) -> None:
        """Send a piece to a request; an exception is its end."""
        self._pump.put(partial(self._say, index, value))

    def end(self, index: int) -> None:
        """Say that there is nothing more for a request."""
        self._pump.put(partial(self._end, index))

    def look(self) -> None:
        """Look who has left."""
        self._pump.put(self._leave_cancelled)

    def returned(self) -> None:
        """Say that the next batch may run; what this one still gets is said beside it."""
        self._pump.put(self._return)

    def _say(self, index: int, value: Any) -> None:
        if index not in self._alive:
            return
        batch, place = self._cut.batch, self._cut.places[index]
        answer = written(self._cut, self._stage, index, value)
        if isinstance(answer, Failure):
            batch.sender.send(Pieces(batch.number, [Piece(place, True, 0, failure=answer)]))
            self._forget([index])
        else:
            batch.sender.send(Pieces(batch.number, [piece(place, False, answer)]), [answer[0]])

    def _end(self, index: int) -> None:
        if index in self._alive:
            batch = self._cut.batch
            batch.sender.send(Pieces(batch.number, [Piece(self._cut.places[index], True, 0)]))
            self._forget([index])

    def _leave_cancelled(self) -> None:
        batch, places = self._cut.batch, self._cut.places
        self._forget([index for index in self._alive if batch.sender.is_gone or places[index] in batch.cancelled])

    def _return(self) -> None:
        self._has_returned = True
        if self._alive:
            self._cut.batch.sender.send(Begun(self._cut.batch.number))
        else:
            self._close()

    def _forget(self, indices: Sequence[int]) -> None:
        for index in indices:
            self._alive.remove(index)
            self._cut.batch.outcomes[self._cut.places[index]] = STREAMED
            self._voices[index].close()
        if indices and not self._alive and self._has_returned:
            self._close()

    def _close(self) -> None:
        cut = self._cut
        try:
            for voice in self._voices:
                voice.settle()
        finally:
            cut.batch.on_cancel.remove(self.look)
            cut.spend(self._stage, perf_counter() - self._started)
            cut.places = ()
            self._leave(cut)

"""Errands: what a worker's model asks of the server it runs in, such as a call of another model, and what comes back.

Whoever waits is woken by the thread that reads the worker's commands. While the model is loaded nobody reads them; then
the one who waits does it.
"""

import threading
from collections.abc import Callable, Sequence
from itertools import count

import msgspec

from shoal.errors import ProtocolError
from shoal.payload import Buffer
from shoal.wire.messages import CallOff, Command, Failure, Told
from shoal.worker.batch import Sender

TICK = 0.1  # s between two looks at whether anybody wants the answer
SMALL = 64 * 1024  # bytes that are copied, so that a long list of answers does not hold what else was read with them
CANCELLED = 499
GONE = "the server does not answer any more"
Heard = tuple[Told, memoryview]
Receive = Callable[[], tuple[Command, memoryview] | None]
Make = Callable[[int], msgspec.Struct]


def nobody() -> None:
    """Who is told of an answer where nobody has to be."""


class Errand:
    """One errand: what has come back, in order."""

    def __init__(self, number: int, errands: "Errands") -> None:
        self.number = number
        self.has_ended = False
        self.on_news: Callable[[], None] = nobody  # called by the thread that reads, for every answer
        self._errands = errands
        self._heard: list[Heard] = []
        self._changed = threading.Condition()

    def hear(self, told: Told, data: memoryview) -> None:
        """Take an answer; nothing after the last."""
        with self._changed:
            if self.has_ended:
                return
            self.has_ended = told.is_last
            self._heard.append((told, data))
            self._changed.notify_all()
        self.on_news()

    def at(self, place: int) -> Heard | None:
        """Give the answer at this place, if it has come."""
        with self._changed:
            return self._heard[place] if place < len(self._heard) else None

    def wait(self, place: int, is_wanted: Callable[[], bool]) -> Heard | None:
        """Give the answer at this place once it has come, None where there are fewer; unwanted ones are called off."""
        while True:
            with self._changed:
                if place < len(self._heard):
                    return self._heard[place]
                if self.has_ended:
                    return None
                if self._errands.is_read:
                    self._changed.wait(TICK)
                    if place < len(self._heard) or self.has_ended:
                        continue
            if not is_wanted():
                self.call_off()
            elif not self._errands.is_read:
                self._errands.read(lambda: self.has_ended or place < len(self._heard))

    def call_off(self) -> None:
        """Wait for nothing more: it ends with a failure that says so, unless it has ended."""
        if not self.has_ended:
            self._errands.send(CallOff(self.number))
            self.fail("the request was cancelled", CANCELLED)

    def fail(self, message: str, status: int = 0) -> None:
        """End it from this side."""
        self._errands.forget(self.number)
        self.hear(Told(self.number, True, failure=Failure("handler", message, status)), memoryview(b""))


class Errands:
    """All errands of a worker's model."""

    def __init__(self) -> None:
        self.is_read = False  # somebody reads the commands, now or after the batch at hand
        self.watch: Callable[[], None] = nobody  # have them read while the model runs, from now on
        self._sender: Sender | None = None
        self._receive: Receive | None = None
        self._open: dict[int, Errand] = {}
        self._numbers = count(1)
        self._reading = threading.Lock()

    @property
    def is_connected(self) -> bool:
        """Whether there is a server to ask."""
        return self._sender is not None and not self._sender.is_gone

    def connect(self, sender: Sender, receive: Receive) -> None:
        """Say how the server is reached."""
        self._sender, self._receive = sender, receive

    def serve(self, watch: Callable[[], None] = nobody) -> None:
        """From now on the caller reads the commands, and tells `hear` what is said; `watch` makes it always do so."""
        with self._reading:
            self.is_read = True
            self.watch = watch

    def begin(self, make: Make, data: Sequence[Buffer] = ()) -> Errand:
        """Send what `make` gives for a number; its answers come to the errand."""
        self.watch()
        errand = Errand(next(self._numbers), self)
        self._open[errand.number] = errand
        try:
            self.send(make(errand.number), data)
        except BaseException:
            self.forget(errand.number)
            raise
        if not self.is_connected:
            errand.fail(GONE)
        return errand

    def send(self, message: msgspec.Struct, data: Sequence[Buffer] = ()) -> None:
        """Send one message."""
        if self._sender is not None:
            self._sender.send(message, data)

    def hear(self, told: Told, data: memoryview) -> None:
        """Hand an answer to the errand that it is for; one that was called off has none any more."""
        errand = self.forget(told.errand) if told.is_last else self._open.get(told.errand)
        if errand is not None:
            errand.hear(told, memoryview(bytes(data)) if len(data) < SMALL else data)

    def forget(self, number: int) -> Errand | None:
        """Take an errand out."""
        return self._open.pop(number, None)

    def read(self, is_enough: Callable[[], bool]) -> None:
        """Read one command, in place of whoever will; unless there is no need any more."""
        with self._reading:
            if self.is_read or is_enough():
                return
            received = self._receive() if self._receive is not None else None
        if received is None:
            self.close()
            return
        command, data = received
        if not isinstance(command, Told):
            raise ProtocolError(f"{type(command).__name__} came while the model was loaded")
        self.hear(command, data)

    def close(self) -> None:
        """Nobody answers any more: end whoever waits, and whoever asks later."""
        self._sender = None
        for errand in list(self._open.values()):
            errand.fail(GONE)


errands = Errands()  # of this process: a worker has one model

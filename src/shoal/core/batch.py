"""Batch: requests executed together, made once, never grown after. It hands each request its own outcome."""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from shoal.core.request import QUEUED, RUNNING, Outcome, Request, State
from shoal.errors import ServingError

MANY: Final = 32  # answers: those of a smaller batch are sent as they are made
TOGETHER: Final = 64  # answers that are made, at most, before they are sent


class Made(Protocol):
    """An answer that is made, and not sent yet."""

    def leave(self) -> None:
        """Send it."""
        ...


class Stages:
    """Seconds a worker spent on a batch, stage by stage."""

    __slots__ = ("inference", "postprocess", "preprocess")

    def __init__(self, preprocess: float = 0.0, inference: float = 0.0, postprocess: float = 0.0) -> None:
        self.preprocess = preprocess
        self.inference = inference
        self.postprocess = postprocess


class Batch:
    """Requests travelling together, why they left, and when."""

    __slots__ = (
        "answered",
        "failed",
        "has_begun",
        "instance",
        "is_closed",
        "left",
        "note",
        "number",
        "reason",
        "requests",
        "rows",
        "slots",
        "stages",
        "together",
    )

    def __init__(self, number: int, requests: Sequence[Request], reason: str, left: float) -> None:
        self.number = number
        self.requests = requests
        self.reason = reason
        self.left = left
        self.instance = ""
        self.stages: Stages | None = None
        self.slots: tuple[int, ...] = ()  # of the requests' sequences, one for each; empty where there are none
        self.note = b""  # what a protocol wants to say about the whole batch, made once and kept here
        self.together: list[Made] | None = None  # answers wait here to be sent; None: each is sent as it is made
        self.has_begun = False  # its instance is free for others; answers may still come
        self.is_closed = False
        self.answered = 0  # counted when it closes
        self.failed = 0
        rows = 0
        for request in requests:
            rows += request.rows
            request.state = RUNNING
            request.batched = left
            request.batch = self
            request.attempts += 1
        self.rows = rows

    def __len__(self) -> int:
        return len(self.requests)

    def hand_out(self, outcomes: Sequence[Outcome], now: float) -> None:
        """Give each request its whole answer; whoever is not among so many fails as the batch closes.

        Of a large batch the small answers are sent some at a time: making and sending each go faster in a row. The
        clients of a small one gain more from reading the first answer while the next is made.
        """
        if len(outcomes) < MANY:
            for place, outcome in enumerate(outcomes):
                self.requests[place].answer(outcome, True, now)
            return
        together = self.together = []
        try:
            for place, outcome in enumerate(outcomes):
                self.requests[place].answer(outcome, True, now)
                if len(together) >= TOGETHER:
                    send(together)
        finally:
            self.together = None
            send(together)

    def deliver(self, index: int, outcome: Outcome, is_last: bool, now: float) -> None:
        """Give request `index` one piece of its answer; whoever left simply ignores it."""
        self.requests[index].answer(outcome, is_last, now)

    def close(
        self, now: float, error: Callable[[], ServingError], *, retry: int = 0, isolate: bool = False
    ) -> list[Request]:
        """No worker holds this batch any more: whoever is still unanswered fails, once, and lent memory comes back.

        With `retry`, requests tried fewer times than that and of which nothing was answered yet are queued again
        instead; they are returned in their order and keep their memory. With `isolate` so are, however often they were
        tried, those that were not alone: one of the others may be to blame.
        """
        assert not self.is_closed, "a batch closes once"
        self.is_closed = True
        again: list[Request] = []
        shares_blame = isolate and len(self.requests) > 1
        for request in self.requests:
            if request.state is RUNNING:
                if (shares_blame or request.attempts < retry) and not request.pieces:
                    request.state = QUEUED
                    request.batch = None
                    again.append(request)
                    continue
                request.answer(error(), True, now)
            if request.state is State.ANSWERED:
                self.answered += 1
            elif request.state is State.FAILED:
                self.failed += 1
            request.payload.release()
        return again

    def let_go(self) -> None:
        """Make the requests of a closed batch forget it: the cycle would wait for the collector."""
        assert self.is_closed, "only a closed batch lets go"
        for request in self.requests:
            request.batch = None


def send(together: list[Made]) -> None:
    """Send the answers that were made."""
    for made in together:
        made.leave()
    together.clear()

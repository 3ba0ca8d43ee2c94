"""Request and how it ends: one call by one client, with the protocol already gone.

A request ends exactly once: answered, failed, expired or withdrawn. Its answer is a stream whose usual length is one,
so plain and streaming models share this path.
"""

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from shoal.errors import DeadlineExceeded, ServingError, Withdrawn
from shoal.payload import Payload, Result

if TYPE_CHECKING:
    from shoal.core.batch import Batch

Outcome = Result | ServingError
OnAnswer = Callable[["Request", Outcome, bool], None]


class State(Enum):
    """Where a request is in its life."""

    QUEUED = "queued"
    RUNNING = "running"
    ANSWERED = "answered"
    FAILED = "failed"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"

    __hash__ = object.__hash__  # Enum's own is written in Python, and a state is looked up for every request


QUEUED: Final = State.QUEUED
RUNNING: Final = State.RUNNING
ANSWERED: Final = State.ANSWERED
ALLOWED: dict[State, frozenset[State]] = {
    State.QUEUED: frozenset({State.RUNNING, State.FAILED, State.EXPIRED, State.WITHDRAWN}),
    State.RUNNING: frozenset({State.QUEUED, State.ANSWERED, State.FAILED, State.EXPIRED, State.WITHDRAWN}),
    State.ANSWERED: frozenset(),
    State.FAILED: frozenset(),
    State.EXPIRED: frozenset(),
    State.WITHDRAWN: frozenset(),
}


@dataclass(frozen=True, slots=True)
class InSequence:
    """Which sequence a request belongs to, and whether it is the first or the last of it."""

    id: int | str  # the correlation id
    start: bool = False
    end: bool = False


class Request:
    """One call: what it carries, what the scheduler may know about it, and who hears its answers.

    `on_answer(request, outcome, is_last)` is called for every piece of the answer, in order, and never after the last.
    """

    __slots__ = (
        "answered",
        "arrived",
        "attempts",
        "batch",
        "batched",
        "client",
        "deadline",
        "group",
        "id",
        "on_answer",
        "payload",
        "pieces",
        "priority",
        "rows",
        "sequence",
        "state",
        "timeout",
    )

    def __init__(
        self,
        payload: Payload,
        on_answer: OnAnswer,
        arrived: float,
        *,
        id: bytes = b"",
        rows: int = 1,
        group: Hashable = None,
        priority: int = 0,
        deadline: float = math.inf,
        client: Hashable = None,
        timeout: float = 0.0,
        sequence: InSequence | None = None,
    ) -> None:
        self.payload = payload
        self.on_answer = on_answer
        self.arrived = arrived
        self.id = id
        self.rows = rows
        self.group = group
        self.priority = priority
        self.deadline = deadline
        self.client = client
        self.timeout = timeout  # seconds the client would wait in the queue, where a queue policy asks; 0: any
        self.sequence = sequence
        self.state = QUEUED
        self.batch: Batch | None = None
        self.batched = math.nan
        self.answered = math.nan
        self.attempts = 0
        self.pieces = 0

    @property
    def has_ended(self) -> bool:
        """Whether its last answer was given."""
        return self.state is not QUEUED and self.state is not RUNNING

    def answer(self, outcome: Outcome, is_last: bool, now: float) -> bool:
        """Hand one piece to whoever asked; False when the request had ended already and nobody listens."""
        state = self.state
        if state is not RUNNING and state is not QUEUED:
            return False
        self.pieces += 1
        on_answer = self.on_answer
        if is_last and state is RUNNING and outcome.__class__ is Result:  # the usual case, without a detour
            self.state = ANSWERED
            self.answered = now
            self.on_answer = _nobody
        elif isinstance(outcome, ServingError):
            is_last = True
            self._end(_state_of(outcome), now)
        elif is_last:
            self._end(State.ANSWERED, now)
        on_answer(self, outcome, is_last)
        return True

    def withdraw(self, now: float) -> bool:
        """The client left: end without telling anybody; False when it had ended already."""
        if self.has_ended:
            return False
        self._end(State.WITHDRAWN, now)
        return True

    def _end(self, state: State, now: float) -> None:
        assert state in ALLOWED[self.state], (self.state, state)
        was_queued = self.state is QUEUED
        self.state = state
        self.answered = now
        self.on_answer = _nobody  # whoever heard the answers refers to us: let go, so that no cycle is left
        if was_queued:  # a worker that still reads it gives it back through its batch
            self.payload.release()


def deadline_passed(request: Request, now: float) -> DeadlineExceeded:
    """Make the error of a request that waited until its deadline."""
    return DeadlineExceeded(f"the deadline passed while the request waited ({1000 * (now - request.arrived):.0f} ms)")


def _nobody(request: Request, outcome: Outcome, is_last: bool) -> None:
    raise AssertionError("a request that has ended has no more answers")


def _state_of(error: ServingError) -> State:
    if isinstance(error, DeadlineExceeded):
        return State.EXPIRED
    return State.WITHDRAWN if isinstance(error, Withdrawn) else State.FAILED

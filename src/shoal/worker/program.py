"""Program: a loaded handler in the one shape that is run, whatever form its user wrote it in.

A backend makes it; the pipeline runs it. One stage, or three that may overlap between batches.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from shoal.wire.messages import Measure
from shoal.worker.handler import Emit
from shoal.worker.home import Home
from shoal.worker.items import Reader
from shoal.worker.requests import Requests

StageName = Literal["preprocess", "inference", "postprocess"]
COLUMNS: dict[StageName, int] = {"preprocess": 0, "inference": 1, "postprocess": 2}


@dataclass(frozen=True, slots=True)
class Stage:
    """One call over a whole batch or micro-batch."""

    name: StageName
    label: str  # for messages, such as Bees.inference
    call: Callable[[Any], Any]
    gives_rows: bool  # its result must have one value per request; it may also be a stream of such
    encode: Callable[[Any], Any] | None = None  # what each piece of a stream goes through
    would_wait: Callable[[Any], bool] | None = None  # whether others have to act before it can return; None: never


class BatchContext(Protocol):
    """What a handler is told, as far as the pipeline cares."""

    def enter(self, requests: Requests, emit: Emit) -> None:
        """Make these the batch at hand."""
        ...

    def leave(self) -> None:
        """Forget the batch at hand."""
        ...


def nothing_measured() -> list[Measure]:
    """What a handler without metrics of its own has to report."""
    return []


def nothing_to_close() -> None:
    """What a handler that is not told of its end has to do."""


@dataclass(frozen=True, slots=True)
class Program:
    """What a worker runs."""

    handler: str
    stages: tuple[Stage, ...]
    read: Reader
    context: BatchContext
    wants_headers: bool
    take_measures: Callable[[], list[Measure]] = nothing_measured  # the handler's metrics since the last time
    close: Callable[[], None] = nothing_to_close  # called once, after the last batch
    home: Home | None = None  # where all of its stages run, unless one would wait; None: anywhere
    is_watched: bool = False  # commands have to be read while it runs, from the beginning

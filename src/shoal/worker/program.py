"""Program: a loaded handler in the one shape that is run, whatever form its user wrote it in.

A backend makes it; the pipeline runs it. One stage, or three that may overlap between batches.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from shoal.worker.handler import Context
from shoal.worker.items import Reader

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


@dataclass(frozen=True, slots=True)
class Program:
    """What a worker runs."""

    handler: str
    stages: tuple[Stage, ...]
    read: Reader
    context: Context
    wants_headers: bool

    @property
    def places(self) -> int:
        """How many batches an instance can hold: stages overlap, a single one does not."""
        return 2 if len(self.stages) > 1 else 1

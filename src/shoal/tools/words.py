"""What a tool and the process that holds a model for it say to each other, whichever tool it is."""

from typing import Any

import msgspec

from shoal.tools.samples import Sample


class Word(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What all of them share: nothing unknown."""


class Load(Word, frozen=True, tag="load"):
    """Load this model and keep these samples. The first word, once."""

    config: dict[str, Any]  # a ModelConfig
    samples: list[Sample]


class Unloadable(Word, frozen=True, tag="unloadable"):
    """The model cannot be loaded."""

    message: str
    traceback: str

"""The messages between `shoal check` and the process that holds the model: two closed unions, unknown is refused."""

from typing import Any, Literal

import msgspec

from shoal.tools.samples import Sample


class Word(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What all of them share: nothing unknown."""


class Load(Word, frozen=True, tag="load"):
    """Load this model and keep these samples. The first word, once."""

    config: dict[str, Any]  # a ModelConfig
    samples: list[Sample]
    relative: float  # how far numbers may be apart
    absolute: float


class RunThese(Word, frozen=True, tag="run"):
    """Run these samples, by number, as one batch; a number may come again."""

    samples: list[int]


class Loaded(Word, frozen=True, tag="loaded"):
    """The model is ready."""

    handler: str


class Unloadable(Word, frozen=True, tag="unloadable"):
    """The model cannot be loaded."""

    message: str
    traceback: str


class Verdict(Word, frozen=True):
    """What became of one place of a batch, against what its sample was told alone."""

    kind: Literal["answered", "refused", "same", "other", "mixed", "failed"]  # the first two: it is the first time
    text: str = ""
    of: int = -1  # whose answer it got, where that is another's


class Verdicts(Word, frozen=True, tag="verdicts"):
    """What became of a batch, place by place."""

    verdicts: list[Verdict]


Order = Load | RunThese
Report = Loaded | Unloadable | Verdicts

decode_order = msgspec.msgpack.Decoder(Order).decode
decode_report = msgspec.msgpack.Decoder(Report).decode

"""The messages between `shoal check` and the process that holds the model: two closed unions, unknown is refused."""

from typing import Literal

import msgspec

from shoal.tools.words import Load, Unloadable, Word


class LoadToJudge(Load, frozen=True, tag="load"):
    """Load this model, and judge its answers by these limits."""

    relative: float  # how far numbers may be apart
    absolute: float


class RunThese(Word, frozen=True, tag="run"):
    """Run these samples, by number, as one batch; a number may come again."""

    samples: list[int]


class Loaded(Word, frozen=True, tag="loaded"):
    """The model is ready."""

    handler: str


class Verdict(Word, frozen=True):
    """What became of one place of a batch, against what its sample was told alone."""

    kind: Literal["answered", "refused", "same", "other", "mixed", "failed"]  # the first two: it is the first time
    text: str = ""
    of: int = -1  # whose answer it got, where that is another's


class Verdicts(Word, frozen=True, tag="verdicts"):
    """What became of a batch, place by place."""

    verdicts: list[Verdict]


Order = LoadToJudge | RunThese
Report = Loaded | Unloadable | Verdicts

decode_order = msgspec.msgpack.Decoder(Order).decode
decode_report = msgspec.msgpack.Decoder(Report).decode

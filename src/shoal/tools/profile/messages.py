"""The messages between `shoal profile` and the process that holds the model: two closed unions, unknown is refused."""

import msgspec

from shoal.tools.words import Load, Unloadable, Word


class RunOnce(Word, frozen=True, tag="run"):
    """Run one batch of so many items, the samples in turn."""

    size: int


class Loaded(Word, frozen=True, tag="loaded"):
    """The model is ready."""

    handler: str
    stages: list[str]
    seconds: float  # that loading took
    memory: int  # bytes resident now


class Ran(Word, frozen=True, tag="ran"):
    """One batch is done."""

    total: float  # s, with everything the device had left to do
    stages: tuple[float, float, float]
    memory: int  # most bytes resident while it ran
    device_memory: int  # most bytes allocated on the GPU; 0 without one
    device: str  # the GPU's name; empty: none was used
    failure: str = ""
    is_out_of_memory: bool = False


Order = Load | RunOnce
Report = Loaded | Unloadable | Ran

decode_order = msgspec.msgpack.Decoder(Order).decode
decode_report = msgspec.msgpack.Decoder(Report).decode

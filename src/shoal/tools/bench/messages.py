"""The messages between `shoal bench` and its load processes: two closed unions, unknown is refused."""

from typing import Literal

import msgspec

from shoal.tools.calls import Site
from shoal.tools.histogram import Histogram

Kind = Literal["closed", "constant", "poisson", "trace"]


class Word(msgspec.Struct, forbid_unknown_fields=True):
    """What all of them share: nothing unknown."""


class Load(Word, tag="load"):
    """Load a server until told to stop, or until a trace has ended."""

    site: Site
    requests: list[bytes]  # whole, ready to be sent; in turn
    kind: Kind
    begin: float  # on the machine's monotonic clock: all load processes start at once
    slice: float  # s after which a report is made
    timeout: float  # s a request may take
    connections: int  # of this process: all used (closed), or at most (open)
    rate: float = 0.0  # requests per second of this process
    burst: int = 1  # requests that come at the same moment
    times: list[float] = []  # of a trace: this process' share, seconds from the beginning
    seed: int = 0
    block: bytes = b""  # of gRPC calls: their header block; requests are messages then


class Halt(Word, tag="halt"):
    """Send no more; the answers that are still out may come for a moment."""


class Split(Word):
    """What the server said of its own work: a sample of the answers."""

    times: dict[str, Histogram] = {}  # queue and stages
    rows: dict[int, int] = {}  # answers by the rows of the batch they rode in
    reasons: dict[str, int] = {}  # answers by why their batch left


class Slice(Word, tag="slice"):
    """What came back in one slice of time."""

    number: int
    answered: int = 0
    latencies: Histogram = msgspec.field(default_factory=Histogram)
    errors: dict[str, int] = {}
    split: Split = msgspec.field(default_factory=Split)
    due: int = 0  # requests whose time came (open loop)
    lag: float = 0.0  # s by which the load process itself was late, at worst
    waiting: int = 0  # requests without an answer at the end of the slice
    cpu: float = 0.0  # s of processor time the load process took


class Ready(Word, tag="ready"):
    """This process has started and hears."""


class Halted(Word, tag="halted"):
    """This process has sent its last report of this load."""

    unanswered: int  # requests it gave up


Order = Load | Halt
Report = Ready | Slice | Halted

decode_order = msgspec.msgpack.Decoder(Order).decode
decode_report = msgspec.msgpack.Decoder(Report).decode

"""The messages between the front process, the template and the workers: two closed unions, unknown is refused.

Both ends come from one install, so the first message compares versions and nothing evolves. Data travels behind the
message, not in it: `size` says how many of the frame's bytes belong to a part or piece, in order; a part with an
`offset` lies in shared memory instead.
"""

from typing import Any, Literal

import msgspec

VERSION = 1


class Wire(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """What all messages share: fields by position, nothing unknown."""


class PartHead(Wire, frozen=True):
    """Where one part of an item lies: `size` bytes behind the message, or at `offset` in shared memory."""

    name: str
    content_type: str
    size: int
    offset: int = -1


class Item(Wire, frozen=True):
    """One request of a batch. Headers are left out for handlers that cannot see them."""

    parts: list[PartHead]
    id: bytes = b""
    headers: list[tuple[bytes, bytes]] = []


class Load(Wire, frozen=True, tag="load"):
    """Load this model. The first command, once."""

    config: dict[str, Any]  # a ModelConfig
    worker: str
    development: bool
    message_limit: int
    can_batch: bool | None = None  # what an earlier worker found out, where it is to be proved; None: nothing yet


class Run(Wire, frozen=True, tag="run"):
    """Run these requests as one batch on one instance of this worker."""

    batch: int
    instance: int
    items: list[Item]
    slots: list[int] = []  # of requests in sequences: the row that each one's sequence has
    freed: list[int] = []  # places of earlier answers that the worker may use again


class Cancel(Wire, frozen=True, tag="cancel"):
    """Nobody waits for this request's answer any more."""

    batch: int
    index: int


class Stop(Wire, frozen=True, tag="stop"):
    """Finish what was sent before this, then leave."""


class Told(Wire, frozen=True, tag="told"):
    """An answer to what the worker's model asked of the server: tensors behind the message, yes or no, or a failure."""

    errand: int
    is_last: bool
    is_true: bool = False
    failure: "Failure | None" = None


Command = Load | Run | Cancel | Stop | Told


class Hello(Wire, frozen=True, tag="hello"):
    """The first words of a worker."""

    version: int
    pid: int


class Loaded(Wire, frozen=True, tag="loaded"):
    """The model is ready; what the front process needs to know about it."""

    handler: str
    places: int  # batches one instance can hold: 2 when its stages overlap
    wants_headers: bool


class Unloadable(Wire, frozen=True, tag="unloadable"):
    """The model cannot be loaded; trying again is pointless unless `is_temporary`."""

    message: str
    traceback: str
    is_temporary: bool = False
    is_out_of_memory: bool = False


class Failure(Wire, frozen=True):
    """An error on its way; `status` is what the handler chose.

    `kind` is 'input' (the client's fault), 'memory' (it ran out), 'device' (whose context is lost) or 'handler'.
    """

    kind: str
    message: str
    status: int = 0
    traceback: str = ""


class Answered(Wire, frozen=True, tag="answered"):
    """The usual end of a batch: a whole answer for each request, in order. One content type stands for all.

    Answers lie behind the message, but for those that have an offset: these lie in the worker's tray.
    """

    batch: int
    sizes: list[int]
    content_types: list[str]
    stages: tuple[float, float, float]
    offsets: list[int] = []  # empty: none is in the tray; else one for each, -1 for those that are not


class Piece(Wire, frozen=True):
    """One piece of one request's answer, or its failure."""

    index: int
    is_last: bool
    size: int
    content_type: str = ""
    status: int = 200
    reason: str = ""
    headers: list[tuple[str, str]] = []
    failure: Failure | None = None


class Pieces(Wire, frozen=True, tag="pieces"):
    """Pieces of answers: streams, failures, statuses and headers of their own."""

    batch: int
    pieces: list[Piece]


class Begun(Wire, frozen=True, tag="begun"):
    """The model's call for this batch has returned; its answers follow from elsewhere, beside other batches."""

    batch: int


class Ended(Wire, frozen=True, tag="ended"):
    """The worker is done with the batch; `failure` goes to whoever it left unanswered."""

    batch: int
    stages: tuple[float, float, float]
    failure: Failure | None = None


class Measure(Wire, frozen=True):
    """One value of a metric that a handler reported."""

    name: str
    unit: str  # as it is written out: Milliseconds, Count, Percent, Megabytes, ...
    kind: str  # COUNTER, GAUGE or HISTOGRAM
    value: float
    dimensions: list[tuple[str, str]]
    request_ids: str = ""  # joined by commas


class Measured(Wire, frozen=True, tag="measured"):
    """Metrics of the handler, at any time between other reports."""

    measures: list[Measure]


class Used(Wire, frozen=True, tag="used"):
    """Bytes of its device's memory that the worker holds; only where somebody wants to know."""

    device_memory: int


class Proved(Wire, frozen=True, tag="proved"):
    """Whether requests that were run together were answered as each alone; `why` says why not."""

    can_batch: bool
    why: str = ""


class Ask(Wire, frozen=True, tag="ask"):
    """A model calls another. The inputs come behind the message."""

    errand: int  # the worker's own number of it
    model: str
    version: str  # empty: the newest
    inputs: list[PartHead]
    outputs: list[str]  # empty: all
    id: str = ""
    sequence: tuple[int | str, bool, bool] | None = None  # its id, and whether this starts and ends it
    timeout: int = 0  # microseconds in the queue; 0: any
    parameters: dict[str, Any] = {}
    may_be_many: bool = False  # any number of answers is fine
    holds: bool = False  # its instance runs nothing else until it is answered


class Order(Wire, frozen=True, tag="order"):
    """A model loads or unloads another, or asks whether it is ready."""

    errand: int
    verb: Literal["load", "unload", "ready"]
    model: str
    version: str = ""
    config: str = ""  # of a load: the configuration to use, in JSON
    files: dict[str, bytes] = {}  # of a load: the files to use
    with_dependents: bool = False


class CallOff(Wire, frozen=True, tag="call_off"):
    """The model does not wait for this answer any more."""

    errand: int


Report = (
    Hello | Loaded | Unloadable | Answered | Pieces | Begun | Ended | Measured | Proved | Ask | Order | CallOff | Used
)


class Fork(Wire, frozen=True, tag="fork"):
    """Front to template: make a worker. Its socket, standard output and standard error come with the message."""

    worker: str


class Forked(Wire, frozen=True, tag="forked"):
    """Template to front: the worker's process."""

    worker: str
    pid: int


class Exited(Wire, frozen=True, tag="exited"):
    """Template to front: a worker's process is gone; `status` as wait() gave it."""

    pid: int
    status: int


class Warmed(Wire, frozen=True, tag="warmed"):
    """Template to front: imports are done; these could not be made and will fail in the worker if it needs them."""

    failed: list[str]


TemplateWord = Fork | Forked | Exited | Warmed

encode = msgspec.msgpack.Encoder().encode
decode_command = msgspec.msgpack.Decoder(Command).decode
decode_report = msgspec.msgpack.Decoder(Report).decode
decode_template_word = msgspec.msgpack.Decoder(TemplateWord).decode

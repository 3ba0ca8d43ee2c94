"""Requests that repeat themselves: a client sends one message again and again, but for the bytes of its tensors.

What a message said is kept with its bytes up to the tensors, by its client and its length. One that begins the same and
has its tensors at the same places says the same: a message is read as its pieces are, joined, so protobuf has nothing
to add.
"""

from collections.abc import Hashable, Sequence
from typing import Final, Protocol

from shoal.frontend.fragments import Fragments
from shoal.frontend.grpc.calls import parse
from shoal.frontend.grpc.kserve_tensors import read_asked
from shoal.frontend.grpc.proto import grpc_service_pb2 as messages
from shoal.frontend.grpc.raw import cut, mark
from shoal.frontend.kserve.asked import Asked, Tensor, Wish
from shoal.frontend.kserve.controls import NO_CONTROLS
from shoal.frontend.kserve.memory import Regions
from shoal.frontend.kserve.plan import Plan
from shoal.payload import Block, Buffer

MOST: Final = 1024  # messages that are remembered
LARGEST: Final = 4096  # bytes of one, without its tensors
SMALL: Final = 4096  # bytes of a tensor that is rather copied than looked at in its message
WASTED: Final = 64  # messages in a row that were remembered for nothing; from then on only one in
SELDOM: Final = 16

Span = tuple[str, str, list[int], int, int]  # an input's name, datatype and shape, and where its bytes begin and end


class Opened(Protocol):
    """A message that was looked at as far as whom it is for."""

    @property
    def model_name(self) -> str:
        """The model's name."""
        ...

    @property
    def model_version(self) -> str:
        """The model's version, or nothing."""
        ...

    @property
    def id(self) -> str:
        """The name its client gave it."""
        ...

    def asked(self, plan: Plan, regions: Regions) -> Asked:
        """Read what is asked for; what is raised leaves nothing lent."""
        ...


class Known:
    """What a message said."""

    __slots__ = ("id", "marks", "model_name", "model_version", "spans", "wishes")

    def __init__(self, request: messages.ModelInferRequest, marks: list[tuple[int, bytes]], spans: list[Span]) -> None:
        self.model_name = request.model_name
        self.model_version = request.model_version
        self.id = request.id
        self.marks = marks  # what stands where, but for the bytes of the tensors
        self.spans = spans
        self.wishes = {output.name: Wish(output.name, is_binary=True) for output in request.outputs} or None


class Repeated:
    """A message that says what a known one said."""

    __slots__ = ("_known", "_message", "id", "model_name", "model_version")

    def __init__(self, known: Known, message: bytes | Fragments) -> None:
        self._known = known
        self._message = message
        self.model_name = known.model_name
        self.model_version = known.model_version
        self.id = known.id

    def asked(self, plan: Plan, regions: Regions) -> Asked:
        """Give what is asked for, with the tensors of this message."""
        known, message = self._known, self._message
        if known.wishes is not None:
            plan.check_wishes(known.wishes, binary=True)
        tensors: list[Tensor] = []
        data: Buffer | Block
        for name, datatype, shape, start, end in known.spans:
            if not isinstance(message, bytes):
                data = regions.gather(message.cut(start, end), end - start)
            elif end - start <= SMALL:
                data = message[start:end]
            else:
                data = regions.keep(memoryview(message)[start:end])
            tensors.append(Tensor(name, datatype, shape, data))
        return Asked(known.id, tensors, known.wishes, NO_CONTROLS)


class Fresh:
    """A message that was read; what it said is remembered once it turned out to be good."""

    __slots__ = ("_key", "_message", "_raw", "_repeats", "_request", "id", "model_name", "model_version")

    def __init__(self, repeats: "Repeats", key: Hashable, message: bytes) -> None:
        self._repeats = repeats
        self._key = key
        self._message = message
        rest, self._raw = cut(message)
        request = self._request = parse(messages.ModelInferRequest, rest)
        self.model_name = request.model_name
        self.model_version = request.model_version
        self.id = request.id

    def asked(self, plan: Plan, regions: Regions) -> Asked:
        """Read the rest."""
        request = self._request
        asked = read_asked(request, plan, regions, self._raw)
        self._repeats.remember(self._key, self._message, request, self._raw or request.raw_input_contents)
        return asked


class Repeats:
    """The messages that clients sent last, one for each of their lengths."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Known] = {}
        self._wasted = 0

    def open(self, message: bytes | Fragments, client: Hashable) -> Opened:
        """Look at a message; Malformed where it is none."""
        key = (client, len(message))
        known = self._known.get(key)
        if known is not None:
            for at, text in known.marks:
                if not message.startswith(text, at):
                    break
            else:
                self._wasted = 0
                return Repeated(known, message)
        return Fresh(self, key, message if isinstance(message, bytes) else message.joined())

    def remember(
        self, key: Hashable, message: bytes, request: messages.ModelInferRequest, raw: Sequence[Buffer]
    ) -> None:
        """Keep what a plain message said; most clients' messages are plain."""
        self._wasted += 1
        if self._wasted > WASTED and self._wasted % SELDOM:
            return
        known = _known(message, request, raw)
        if known is not None:
            if len(self._known) >= MOST:
                self._known.clear()
            self._known[key] = known


def _known(message: bytes, request: messages.ModelInferRequest, raw: Sequence[Buffer]) -> Known | None:
    """Find where the tensors lie; None where they are not all at the end, or the message says more than it should."""
    if not raw or len(raw) != len(request.inputs) or request.parameters:
        return None
    if any(tensor.parameters for tensor in (*request.inputs, *request.outputs)):
        return None
    marks: list[tuple[int, bytes]] = []
    spans: list[Span] = []
    at = len(message)
    for tensor, data in zip(reversed(request.inputs), reversed(raw), strict=True):
        end, text = at, mark(len(data))
        start = end - len(data)
        at = start - len(text)
        if at < 0 or message[at:start] != text:
            return None
        marks.append((at, text))
        spans.append((tensor.name, tensor.datatype, list(tensor.shape), start, end))
    head = message[:at]
    if at > LARGEST or parse(messages.ModelInferRequest, head).raw_input_contents:
        return None
    return Known(request, [(0, head), *marks[::-1]], spans[::-1])

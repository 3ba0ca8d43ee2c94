"""InferenceRequest, a client's or a model's own, and the sender that answers one from anywhere, at any time."""

import json
import threading
from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Protocol

from shoal.tensor import part_type
from shoal.upstream.triton_python_backend_utils.calls import Call, ResponseIterator, later
from shoal.upstream.triton_python_backend_utils.errors import TritonModelException
from shoal.upstream.triton_python_backend_utils.response import InferenceResponse, checked_parameters
from shoal.upstream.triton_python_backend_utils.tensor import Tensor
from shoal.wire.messages import Ask, PartHead

if TYPE_CHECKING:
    from asyncio import Future

TRITONSERVER_REQUEST_FLAG_SEQUENCE_START = 1
TRITONSERVER_REQUEST_FLAG_SEQUENCE_END = 2
TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1
TRITONSERVER_REQUEST_RELEASE_ALL = 1
TRITONSERVER_REQUEST_RELEASE_RESCHEDULE = 2


class MemoryType(IntEnum):
    """Where a tensor lies."""

    TRITONSERVER_MEMORY_GPU = 0
    TRITONSERVER_MEMORY_CPU = 1


TRITONSERVER_MEMORY_GPU = MemoryType.TRITONSERVER_MEMORY_GPU
TRITONSERVER_MEMORY_CPU = MemoryType.TRITONSERVER_MEMORY_CPU


class PreferredMemory:
    """Where the outputs of a call to another model should lie."""

    def __init__(self, preferred_memory_type: MemoryType, preferred_device_id: int = 0) -> None:
        self.preferred_memory_type = preferred_memory_type
        self.preferred_device_id = preferred_device_id


class InferenceTrace:
    """Hands a trace on to the models that a model calls; nothing is traced here."""

    def get_context(self) -> str | None:
        """Give the context that a client's trace came with; there is none."""
        return None


class Reply(Protocol):
    """The way from a sender to whoever waits for the answer."""

    is_decoupled: bool

    def send(self, response: InferenceResponse | None, is_final: bool) -> None:
        """Take a response, the end, or both."""
        ...

    def is_cancelled(self) -> bool:
        """Whether nobody waits any more."""
        ...

    def let_go(self) -> None:
        """Nobody can answer any more."""
        ...


class Line:
    """What a request and its senders share; with the last of them goes the chance to answer."""

    __slots__ = ("count", "is_closed", "lock", "reply")

    def __init__(self, reply: Reply) -> None:
        self.reply = reply
        self.lock = threading.Lock()
        self.count = 0
        self.is_closed = False

    def __del__(self) -> None:
        if not self.is_closed:
            self.reply.let_go()


class InferenceResponseSender:
    """Answers one request."""

    __slots__ = ("_line",)

    def __init__(self, line: Line) -> None:
        self._line = line

    def send(self, response: InferenceResponse | None = None, flags: int = 0) -> None:
        """Send a response, or with the FINAL flag say that it, or the one before, was the last."""
        line, reply = self._line, self._line.reply
        if flags not in (0, TRITONSERVER_RESPONSE_COMPLETE_FINAL):
            raise TritonModelException("Unable to send response. Unsupported flag provided.")
        if response is None and not flags:
            raise TritonModelException(
                "Inference Response object must be provided when the response flags is set to zero."
            )
        if response is not None and not isinstance(response, InferenceResponse):
            raise TypeError(f"send() takes an InferenceResponse, got {type(response).__name__}")
        with line.lock:
            if response is not None and line.count and not reply.is_decoupled:
                raise TritonModelException(
                    "Unable to send response. Non-decoupled model cannot send more than one response."
                )
            if line.is_closed:
                raise TritonModelException("Unable to send response. Response sender has been closed.")
            line.count += response is not None
            line.is_closed = bool(flags)
            reply.send(response, bool(flags))

    def is_cancelled(self) -> bool:
        """Whether nobody waits for the answer any more."""
        return self._line.reply.is_cancelled()


class InferenceRequest:
    """What a client asked, or what a model asks another."""

    def __init__(
        self,
        request_id: str = "",
        correlation_id: int | str = 0,
        inputs: Sequence[Tensor] | None = None,
        requested_output_names: Sequence[str] | None = None,
        model_name: str | None = None,
        model_version: int = -1,
        flags: int = 0,
        timeout: int = 0,
        preferred_memory: PreferredMemory | None = None,
        trace: InferenceTrace | None = None,
        parameters: dict[str, Any] | None = None,
    ) -> None:
        if inputs is None or requested_output_names is None or model_name is None:
            raise TypeError("InferenceRequest needs inputs, requested_output_names and model_name")
        _check(str, request_id=request_id, model_name=model_name)
        _check(int, model_version=model_version, flags=flags, timeout=timeout)
        if not isinstance(correlation_id, str):
            _check(int, correlation_id=correlation_id)
        self._id = request_id
        self._correlation_id = correlation_id
        self._inputs = _checked_inputs(inputs, request_id, model_name)
        self._outputs = set(_checked_names(requested_output_names, request_id, model_name))
        self._model_name = model_name
        self._model_version = model_version
        self._flags = flags
        self._timeout = timeout
        self._preferred_memory = preferred_memory
        self._trace = trace
        self._parameters = checked_parameters(parameters)
        self._line: Line | None = None
        self.release_flags = TRITONSERVER_REQUEST_RELEASE_ALL

    @classmethod
    def of_client(
        cls,
        id: str,
        inputs: list[Tensor],
        outputs: set[str],
        sequence: tuple[int | str, int],
        timeout: int,
        parameters: dict[str, Any],
        line: Line,
    ) -> "InferenceRequest":
        """Make what a client sent, which was checked on its way; `sequence` is its correlation id and flags."""
        made = cls.__new__(cls)
        made._id = id
        made._correlation_id, made._flags = sequence
        made._inputs = inputs
        made._outputs = outputs
        made._model_name = ""
        made._model_version = -1
        made._timeout = timeout
        made._preferred_memory = made._trace = None
        made._parameters = parameters
        made._line = line
        made.release_flags = TRITONSERVER_REQUEST_RELEASE_ALL
        return made

    def inputs(self) -> list[Tensor]:
        """Give the inputs."""
        return self._inputs

    def request_id(self) -> str:
        """Give the client's id of it; empty where it gave none."""
        return self._id

    def correlation_id(self) -> int | str:
        """Give the id of its sequence; 0 where it is of none."""
        return self._correlation_id

    def requested_output_names(self) -> set[str]:
        """Give the names of the outputs that are wanted."""
        return self._outputs

    def model_name(self) -> str:
        """Give the model it is for."""
        return self._model_name

    def flags(self) -> int:
        """Give its flags: whether it begins or ends a sequence."""
        return self._flags

    def set_flags(self, flags: int) -> None:
        """Set its flags."""
        self._flags = flags

    def timeout(self) -> int:
        """Give its time-out in microseconds; 0 where it has none."""
        return self._timeout

    def parameters(self) -> str:
        """Give its parameters as JSON."""
        return json.dumps(self._parameters, separators=(",", ":"))

    def preferred_memory(self) -> PreferredMemory | None:
        """Give where its outputs should lie."""
        return self._preferred_memory

    def trace(self) -> InferenceTrace:
        """Give its trace."""
        return self._trace or InferenceTrace()

    def get_response_sender(self) -> InferenceResponseSender:
        """Give what answers it, from any thread."""
        if self._line is None:
            raise TritonModelException("a request that a model made itself has no response sender")
        return InferenceResponseSender(self._line)

    def is_cancelled(self) -> bool:
        """Whether nobody waits for the answer any more."""
        return self._line is not None and self._line.reply.is_cancelled()

    def set_release_flags(self, flags: int) -> None:
        """Say what becomes of it when execute returns."""
        self.release_flags = flags

    def exec(self, decoupled: bool = False) -> InferenceResponse | ResponseIterator:
        """Call another model and wait for its response; `decoupled`: give an iterator over any number of them."""
        call = self._call(decoupled)
        return ResponseIterator(call) if decoupled else call.only()

    def async_exec(self, decoupled: bool = False) -> "Future[Any]":
        """Call another model; what it gives is awaited."""
        return later(lambda: self._call(decoupled), decoupled)

    def _call(self, decoupled: bool) -> Call:
        heads, data = [], []
        for tensor in self._inputs:
            datatype, shape, content = tensor.bits()
            heads.append(PartHead(tensor.name(), part_type(datatype, shape), len(content)))
            data.append(content)
        start, end = (bool(self._flags & flag) for flag in (1, 2))
        in_sequence = bool(self._correlation_id) or start or end
        memory = self._preferred_memory
        is_gpu = memory is not None and memory.preferred_memory_type == TRITONSERVER_MEMORY_GPU
        return Call(
            lambda number, holds: Ask(
                number,
                self._model_name,
                str(self._model_version) if self._model_version > 0 else "",
                heads,
                sorted(self._outputs),
                self._id,
                (self._correlation_id, start, end) if in_sequence else None,
                self._timeout,
                self._parameters,
                bool(decoupled),
                holds,
            ),
            data,
            memory.preferred_device_id if memory is not None and is_gpu else None,
        )


def _check(kind: type, **fields: Any) -> None:
    for name, value in fields.items():
        if not isinstance(value, kind) or isinstance(value, bool):
            raise TypeError(f"{name} of an InferenceRequest is of type {kind.__name__}, got {value!r}")
        if isinstance(value, int) and value < (-1 if name == "model_version" else 0):
            raise TritonModelException(f"{name} of an InferenceRequest cannot be negative, got {value}")


def _checked_inputs(inputs: Sequence[Tensor], id: str, model: str) -> list[Tensor]:
    for tensor in inputs:
        if tensor is None:
            raise TritonModelException(
                f"Input tensor for request with id '{id}' and model name '{model}' should not be empty."
            )
        if not isinstance(tensor, Tensor):
            raise TypeError(f"the inputs of an InferenceRequest are Tensor objects, got {type(tensor).__name__}")
    return list(inputs)


def _checked_names(names: Sequence[str], id: str, model: str) -> list[str]:
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"requested_output_names of an InferenceRequest are str, got {type(name).__name__}")
        if not name:
            raise TritonModelException(
                f"Requested output name for request with id '{id}' and model name '{model}' should not be empty."
            )
    return list(names)

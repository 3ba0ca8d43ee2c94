"""InferenceRequest, InferenceResponse and the sender that answers a request from anywhere, at any time."""

import json
import threading
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NoReturn, Protocol

from shoal.upstream.triton_python_backend_utils.calls import refuse
from shoal.upstream.triton_python_backend_utils.errors import TritonError, TritonModelException
from shoal.upstream.triton_python_backend_utils.tensor import Tensor

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


class InferenceResponse:
    """Output tensors, or an error in their place."""

    def __init__(
        self,
        output_tensors: Sequence[Tensor] | None = None,
        error: TritonError | None = None,
        parameters: dict[str, Any] | None = None,
    ) -> None:
        tensors = list(output_tensors or ())
        if not all(isinstance(tensor, Tensor) for tensor in tensors):
            raise TypeError("InferenceResponse takes a list of Tensor objects as output_tensors")
        if error is not None and not isinstance(error, TritonError):
            raise TypeError(f"the error of an InferenceResponse is a TritonError, got {type(error).__name__}")
        self._tensors = tensors
        self._error = error
        self._parameters = checked_parameters(parameters)

    def output_tensors(self) -> list[Tensor]:
        """Give the outputs."""
        return self._tensors

    def has_error(self) -> bool:
        """Whether it is an error."""
        return self._error is not None

    def error(self) -> TritonError | None:
        """Give the error; None where there is none."""
        return self._error

    def parameters(self) -> str:
        """Give its parameters as JSON."""
        return json.dumps(self._parameters)

    def parameter_values(self) -> dict[str, Any]:
        """Give its parameters as they are."""
        return self._parameters


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
        inputs: Sequence[Tensor] = (),
        requested_output_names: Sequence[str] = (),
        model_name: str = "",
        model_version: int = -1,
        flags: int = 0,
        timeout: int = 0,
        preferred_memory: PreferredMemory | None = None,
        trace: InferenceTrace | None = None,
        parameters: dict[str, Any] | None = None,
    ) -> None:
        self._id = request_id
        self._correlation_id = correlation_id
        self._inputs = list(inputs)
        self._outputs = set(requested_output_names)
        self._model_name = model_name
        self._model_version = model_version
        self._flags = flags
        self._timeout = timeout
        self._preferred_memory = preferred_memory
        self._trace = trace
        self._parameters = checked_parameters(parameters)
        self._line: Line | None = None
        self.release_flags = TRITONSERVER_REQUEST_RELEASE_ALL

    def answer_by(self, line: Line) -> None:
        """Say how it is answered."""
        self._line = line

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

    def exec(self, decoupled: bool = False) -> NoReturn:
        """Call another model and wait."""
        refuse(f"exec() of model {self._model_name!r}")

    def async_exec(self, decoupled: bool = False) -> NoReturn:
        """Call another model."""
        refuse(f"async_exec() of model {self._model_name!r}")


def checked_parameters(parameters: dict[str, Any] | None) -> dict[str, Any]:
    """Give parameters again where they are what can travel."""
    found = dict(parameters or {})
    for key, value in found.items():
        if not isinstance(key, str):
            raise TritonModelException(f"Expect parameters keys to have type str, found type {type(key)}")
        if not isinstance(value, bool | int | float | str):
            raise TritonModelException(
                f"Expect parameters values to have type bool/int/float/str, found type {type(value)}"
            )
    return found

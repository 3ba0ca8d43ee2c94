"""How the requests of a batch of a TritonPythonModel are answered: by what execute returns, or by senders, later."""

import threading
import weakref
from collections.abc import Mapping
from typing import Any

from shoal.answer import Answer, Head
from shoal.errors import HandlerFailed, InvalidInput
from shoal.upstream.triton_python_backend_utils.errors import ErrorCode, TritonError
from shoal.upstream.triton_python_backend_utils.inference import InferenceRequest, Line
from shoal.upstream.triton_python_backend_utils.response import InferenceResponse
from shoal.upstream.triton_python_backend_utils.tensor import Tensor
from shoal.worker.backends import tensors
from shoal.worker.backends.tensors import Call
from shoal.worker.batch import Batch
from shoal.worker.errands import errands
from shoal.worker.items import Written
from shoal.worker.later import Open

STATUSES = {
    ErrorCode.UNKNOWN: 460,  # those that HTTP has no status for are 400 to clients, and their own code over gRPC
    ErrorCode.INTERNAL: 500,
    ErrorCode.NOT_FOUND: 404,
    ErrorCode.INVALID_ARG: 400,
    ErrorCode.UNAVAILABLE: 503,
    ErrorCode.UNSUPPORTED: 501,
    ErrorCode.ALREADY_EXISTS: 409,
    ErrorCode.CANCELLED: 499,
}
RESERVED = {"sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "binary_data_output"}
TICK = 0.1  # s between two looks at whether a client has left
NO_SEQUENCE: tuple[int | str, int] = (0, 0)
LET_GO = "the model let go of this request without a final response"


class Reply:
    """One request of a batch: its one answer is kept until somebody asks; many leave as they come."""

    def __init__(self, call: Call, batch: Batch | None, place: int, *, is_decoupled: bool) -> None:
        self.call = call
        self.is_decoupled = is_decoupled
        self.is_final = False
        self._batch = batch
        self._place = place
        self._lock = threading.RLock()  # a finalizer may speak too, anywhere
        self._changed: threading.Condition | None = None  # for who waits
        self._answer: Any = None  # or the exception in its place
        self._way: Open | None = None  # of what is said to a decoupled one, and where it is on that way
        self._index = 0
        self._is_deaf = call.is_null  # nobody hears what is said to a row that is no request's
        self._tensors: list[weakref.ref[Tensor]] = []

    def request(self, outputs: list[str]) -> InferenceRequest:
        """Make what the model sees of it; `outputs` is what a request that names none wants."""
        asked = self.call.asked
        inputs = [Tensor.of_request(name, received) for name, received in self.call.inputs.items()]
        self._tensors = [weakref.ref(tensor) for tensor in inputs]
        sequence = asked.sequence
        parameters = asked.parameters
        return InferenceRequest.of_client(
            asked.id,
            inputs,
            set() if self.call.is_null else set(asked.outputs or outputs),
            _member(sequence) if sequence else NO_SEQUENCE,
            asked.timeout,
            {key: value for key, value in parameters.items() if key not in RESERVED} if parameters else {},
            Line(self),
        )

    def send(self, response: InferenceResponse | None, is_final: bool) -> None:
        """Take a response, the end, or both; a response is written at once, so the model may change its arrays."""
        with self._lock:
            if self.is_final or self._is_deaf:
                return
            if response is not None:
                self._put(self._written(response))
            if is_final:
                self._end()

    def fail(self, error: BaseException) -> None:
        """End it with an error, unless it has ended."""
        with self._lock:
            if not self.is_final and not self._is_deaf:
                self._put(error)
                self._end()

    def is_cancelled(self) -> bool:
        """Whether nobody waits for it any more; who asks wants to hear of it while the model runs."""
        errands.watch()
        return self._is_deaf or self.is_left

    @property
    def is_answered(self) -> bool:
        """Whether nobody has to wait for its one answer."""
        return self._answer is not None or self.is_final

    @property
    def is_left(self) -> bool:
        """Whether its client left before it was answered, or there was none."""
        batch = self._batch
        return self.call.is_null or (batch is not None and (self._place in batch.cancelled or batch.sender.is_gone))

    def let_go(self) -> None:
        """Nobody can answer it any more."""
        if not self.is_final and self._answer is None:
            self.fail(HandlerFailed(LET_GO, status=tensors.INTERNAL))

    def wait(self) -> Any:
        """Give its one answer, or the exception in its place; waits for a sender that was kept."""
        if not self.is_answered:
            errands.watch()
            with self._lock:
                self._changed = changed = threading.Condition(self._lock)
                while not (self.is_answered or self._is_deaf or self.is_left):
                    changed.wait(TICK)
        self.settle()
        return self._answer if self._answer is not None else HandlerFailed(LET_GO, status=tensors.INTERNAL)

    def open(self, way: Open, index: int) -> None:
        """Send what is said this way from now on."""
        self._way, self._index = way, index

    def close(self) -> None:
        """Hear nothing more. Takes no lock: whoever is saying something now says it to nobody."""
        self._is_deaf = True
        self._way = None

    def settle(self) -> None:
        """Let tensors that the model has kept outlive the memory of the request."""
        for reference in self._tensors:
            if (tensor := reference()) is not None:
                try:
                    tensor.own()
                except InvalidInput:  # strings that are none: the model meets them when it looks
                    continue
        self._tensors = []

    def _put(self, piece: Any) -> None:
        if not self.is_decoupled:
            self._answer = piece if self._answer is None else self._answer
            self._tell()
        elif (way := self._way) is not None:
            way.say(self._index, piece)

    def _end(self) -> None:
        self.is_final = True
        if not self.is_decoupled:
            self._tell()
        elif (way := self._way) is not None:
            way.end(self._index)

    def _tell(self) -> None:
        if self._changed is not None:
            self._changed.notify_all()

    def _written(self, response: InferenceResponse) -> Any:
        error = response.error()
        if error is not None:
            return in_stream(error) if self.is_decoupled else failed(error)
        try:
            return written(response, self.call)
        except Exception as problem:  # a model's array can be anything
            return HandlerFailed(f"a response cannot be sent: {problem}", status=tensors.INTERNAL)


def _member(sequence: Mapping[str, Any]) -> tuple[int | str, int]:
    """Give the correlation id, and the flags that begin and end a sequence."""
    return sequence.get("id", 0), (1 if sequence.get("start") else 0) | (2 if sequence.get("end") else 0)


def written(response: InferenceResponse, call: Call) -> Written:
    """Give the answer that a response is; outputs that were not asked for are left out."""
    heads, buffers = [], []
    for output in response.output_tensors():
        if call.keep is not None and call.keep(output.name(), *output.bits()):
            continue
        if call.wants(output.name()):
            datatype, shape, data = output.bits()
            heads.append(Head(output.name(), datatype, list(shape), len(data)))
            buffers.append(data)
    return tensors.answered(Answer(heads, response.parameter_values()), buffers)


def failed(error: TritonError) -> HandlerFailed:
    """Give the failure of a request that its response says."""
    return HandlerFailed(error.message(), status=STATUSES[error.code()])


def in_stream(error: TritonError) -> Written:
    """Give the piece of a stream that says an error; the stream goes on."""
    return tensors.answered(Answer([], {}, error.message(), error.code().name), ())

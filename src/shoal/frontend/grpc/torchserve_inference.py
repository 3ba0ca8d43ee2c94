"""TorchServe's inference service: Ping, Predictions, StreamPredictions, StreamPredictions2."""

from collections import deque
from collections.abc import Callable

from google.protobuf.empty_pb2 import Empty

from shoal.core.request import Outcome, Request
from shoal.errors import ServingError
from shoal.frontend.grpc.calls import (
    MOST_BEHIND,
    TOO_SLOW,
    Asked,
    Authorise,
    Desk,
    Pending,
    Prediction,
    encode,
    guarded,
    is_only_the_end,
    one_message,
    parse,
)
from shoal.frontend.grpc.codes import Missing, Refusal, end
from shoal.frontend.grpc.proto.inference_pb2 import PredictionResponse, PredictionsRequest, TorchServeHealthResponse
from shoal.frontend.grpc.proto.status_pb2 import ErrorInfo, Status
from shoal.frontend.rpc import Call, Code, Service
from shoal.frontend.status import json_body
from shoal.payload import Part, Result

PREFIX = "/org.pytorch.serve.grpc.inference.InferenceAPIsService/"
SEQUENCE = b"ts_request_sequence_id"  # the header that tells a handler whose request it is
MOST_WAITING = 1024  # messages of one stream that came before their turn
TOO_FAST = Refusal(
    Code.RESOURCE_EXHAUSTED,
    f"the client is more than {MOST_WAITING} messages or {MOST_BEHIND} bytes ahead of the model's answers",
)


class TorchServeInference:
    """The inference service. `health` gives the word that Ping says."""

    def __init__(self, desk: Desk, *, health: Callable[[], str], authorise: Authorise) -> None:
        self._desk = desk
        self._health = health
        self._authorise = authorise

    def services(self) -> dict[str, Service]:
        """Give each method by its path."""
        methods: dict[str, Service] = {
            "Ping": self._ping,
            "Predictions": lambda call: _predict(call, self._desk, stream=False),
            "StreamPredictions": lambda call: _predict(call, self._desk, stream=True),
            "StreamPredictions2": lambda call: Dialogue(call, self._desk).begin(),
        }
        return {PREFIX + name: guarded(service, self._authorise, "inference") for name, service in methods.items()}

    def _ping(self, call: Call) -> None:
        def hear(message: bytes) -> None:
            try:
                parse(Empty, message)
            except ServingError as error:
                end(call, self._desk.refusal(error))
                return
            health = json_body({"status": self._health()}).decode().rstrip("\n")
            call.send(encode(TorchServeHealthResponse(health=health)))
            call.finish()

        one_message(call, hear)


def _predict(call: Call, desk: Desk, *, stream: bool) -> None:
    Prediction(call, desk, _read, _write, stream=stream)


def _read(message: bytes) -> Asked:
    request = parse(PredictionsRequest, message)
    parts = [Part(name, "", value) for name, value in request.input.items()]
    return Asked(request.model_name, request.model_version, parts)


def _write(result: Result) -> bytes:
    return encode(PredictionResponse(prediction=bytes(result.body)))


class Dialogue:
    """A call of many messages, each a request of a sequence. They run one after the other and are answered in order.

    A request that fails is answered with its error, and the stream goes on until the client ends it.
    """

    __slots__ = (
        "_ahead",
        "_asked",
        "_behind",
        "_call",
        "_deadline",
        "_desk",
        "_has_ended",
        "_pending",
        "_sequence",
        "_waiting",
    )

    def __init__(self, call: Call, desk: Desk) -> None:
        self._call = call
        self._desk = desk
        self._deadline = desk.now() + call.timeout
        self._waiting: deque[bytes] = deque()
        self._ahead = 0  # bytes waiting
        self._behind = 0  # bytes sent to a client that does not read
        self._has_ended = False  # no more will come
        self._pending: Pending | None = None
        self._asked: Asked | None = None  # the request that runs
        self._sequence: str | None = None  # and whose it is

    def begin(self) -> None:
        """Listen."""
        self._call.on_message = self._hear
        self._call.on_end = self._end
        self._call.on_gone = self._gone

    def _hear(self, message: bytes) -> None:
        is_full = len(self._waiting) >= MOST_WAITING or self._ahead + len(message) > MOST_BEHIND
        if self._waiting and is_full:
            self._break(TOO_FAST)
            return
        self._waiting.append(message)
        self._ahead += len(message)
        self._go_on()

    def _end(self) -> None:
        self._has_ended = True
        self._go_on()

    def _gone(self) -> None:
        self._waiting.clear()
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.withdraw()

    def _go_on(self) -> None:
        while self._waiting and self._pending is None:
            message = self._waiting.popleft()
            self._ahead -= len(message)
            self._asked = self._sequence = None
            try:
                asked = self._asked = self._read(message)
                self._pending = self._desk.submit(self._call, asked, self._deadline, self._answer)
            except ServingError as error:
                self._fail(error)
        if self._has_ended and self._pending is None:
            self._call.finish()

    def _read(self, message: bytes) -> Asked:
        asked = parse(PredictionsRequest, message)
        if not asked.sequence_id:
            raise Missing("sequenceId")
        self._sequence = asked.sequence_id
        parts = [Part(name, "", value) for name, value in asked.input.items()]
        return Asked(asked.model_name, asked.model_version, parts, [(SEQUENCE, asked.sequence_id.encode())])

    def _answer(self, request: Request, outcome: Outcome, is_last: bool) -> None:
        if is_last:
            self._pending = None
        if isinstance(outcome, ServingError):
            self._fail(outcome)
        elif not is_only_the_end(request, outcome, is_last):
            self._send(PredictionResponse(prediction=bytes(outcome.body), sequence_id=self._sequence))
        if is_last:
            self._go_on()

    def _fail(self, error: ServingError) -> None:
        code, message, kind = self._desk.refusal(error, self._asked)
        status = Status(code=code, message=message)
        status.details.add().Pack(ErrorInfo(reason=kind))
        self._send(PredictionResponse(sequence_id=self._sequence, status=status))

    def _send(self, response: PredictionResponse) -> None:
        message = encode(response)
        self._behind = 0 if self._call.writable else self._behind + len(message)
        if self._behind > MOST_BEHIND:
            self._break(TOO_SLOW)
        else:
            self._call.send(message)

    def _break(self, why: Refusal) -> None:
        self._gone()
        end(self._call, why)

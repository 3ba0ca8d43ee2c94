"""Inference over gRPC on its way: single calls, and streams that carry many requests."""

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from shoal.core.request import Outcome, Request
from shoal.errors import HandlerFailed, ServingError
from shoal.frontend.fragments import Fragments
from shoal.frontend.grpc.calls import MOST_BEHIND, TOO_SLOW, encode, one_message
from shoal.frontend.grpc.codes import Refusal, end
from shoal.frontend.grpc.kserve_tensors import FINAL, write_answer, write_pieces
from shoal.frontend.grpc.proto import grpc_service_pb2 as messages
from shoal.frontend.grpc.repeats import Repeats
from shoal.frontend.kserve.access import Access
from shoal.frontend.kserve.asked import Asked
from shoal.frontend.kserve.calls import report
from shoal.frontend.kserve.desk import Desk
from shoal.frontend.kserve.plan import Plan
from shoal.frontend.kserve.status import Unsupported, explain
from shoal.frontend.rpc import Call, Code

DECOUPLED: Final = "ModelInfer RPC doesn't support models with decoupled transaction policy"
STRICT: Final = (b"triton_grpc_error", b"true")  # metadata: the first error of a model ends the stream
MOST_OPEN: Final = 65_536  # requests of one stream that are not answered yet
MOST_HELD: Final = 64 * 2**20  # bytes of a stream's answers that wait for an earlier one
TOO_MANY = Refusal(
    Code.RESOURCE_EXHAUSTED,
    f"the stream has more than {MOST_OPEN} requests without an answer, or {MOST_HELD} bytes of answers that wait for "
    "an earlier one",
)
Find = Callable[[str, str], Plan]


class Pending:
    """A request on its way: who hears of it, and what is let go when it has ended."""

    __slots__ = ("_hear", "asked", "plan", "request")

    def __init__(self, plan: Plan, asked: Asked, hear: Callable[["Pending", Outcome, bool], None]) -> None:
        self.plan = plan
        self.asked = asked
        self.request: Request | None = None
        self._hear = hear

    def submit(self, desk: Desk, call: Call) -> None:
        """Give it to its model, or raise why not."""
        deadline = desk.now() + call.timeout
        self.request = desk.submit(self.plan, self.asked, self._answer, client=call.client, deadline=deadline)

    def withdraw(self) -> None:
        """Nobody waits for it any more."""
        request, self.request = self.request, None
        if request is not None:
            self.plan.model.withdraw(request)
            self.asked.let_go()

    def _answer(self, request: Request, outcome: Outcome, is_last: bool) -> None:
        if is_last:
            self.request = None
        if isinstance(outcome, ServingError):
            report(outcome, self.plan, self.asked.id)
        self._hear(self, outcome, is_last)
        if is_last:
            self.asked.let_go()


class Unary:
    """ModelInfer: one request, one answer."""

    __slots__ = ("_access", "_call", "_desk", "_find", "_pending", "_repeats")

    def __init__(self, call: Call, desk: Desk, find: Find, access: Access, repeats: Repeats) -> None:
        self._call = call
        self._repeats = repeats
        self._access = access
        self._desk = desk
        self._find = find
        self._pending: Pending | None = None
        one_message(call, self._ask, self._ask)

    def _ask(self, message: bytes | Fragments) -> None:
        self._call.on_gone = self._gone
        id = None
        try:
            opened = self._repeats.open(message, self._call.client)
            plan = self._find(opened.model_name, opened.model_version)
            if plan.interface.is_decoupled:
                raise Unsupported(DECOUPLED)
            asked = opened.asked(plan, self._desk.regions)
            self._access.forward(asked, self._call.metadata)
            id = asked.id
            pending = self._pending = Pending(plan, asked, self._hear)
            pending.submit(self._desk, self._call)
        except ServingError as error:
            self._pending = None
            self._refuse(error, id)

    def _hear(self, pending: Pending, outcome: Outcome, is_last: bool) -> None:
        self._pending = None
        try:
            if isinstance(outcome, ServingError):
                raise outcome
            message, more = write_pieces(pending.plan, pending.asked, outcome)
        except ServingError as error:
            self._refuse(error, pending.asked.id)
        else:
            self._call.send(message, *more)
            self._call.finish()
        pending.withdraw()  # nothing, unless more answers would come

    def _refuse(self, error: ServingError, id: str | None) -> None:
        _, code, message = explain(error, id)
        self._call.finish(code, message)

    def _gone(self) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.withdraw()


class Slot:
    """The place of a request in the order of its stream, and its answer while an earlier one is missing."""

    __slots__ = ("message",)

    def __init__(self) -> None:
        self.message: bytes | None = None


class Stream:
    """ModelStreamInfer: many requests, answered in their order; those to models of many answers as answers come."""

    def __init__(self, call: Call, desk: Desk, find: Find, access: Access, repeats: Repeats) -> None:
        self._call = call
        self._repeats = repeats
        self._access = access
        self._desk = desk
        self._find = find
        self._is_strict = STRICT in [(name, value.lower()) for name, value in call.metadata]
        self._open: dict[Pending, Slot | None] = {}
        self._order: deque[Slot] = deque()
        self._held = 0  # bytes of answers that wait for an earlier one
        self._behind = 0  # bytes sent to a client that does not read
        self._has_ended = False
        call.on_message = call.on_pieces = self._ask
        call.on_end = self._end
        call.on_gone = self._gone

    def _ask(self, message: bytes | Fragments) -> None:
        if len(self._open) >= MOST_OPEN or self._held > MOST_HELD:
            self._break(TOO_MANY)
            return
        id, slot, pending = "", None, None
        try:
            opened = self._repeats.open(message, self._call.client)
            id = opened.id
            plan = self._find(opened.model_name, opened.model_version)
            slot = None if plan.interface.is_decoupled else self._new_slot()
            asked = opened.asked(plan, self._desk.regions)
            self._access.forward(asked, self._call.metadata)
            pending = Pending(plan, asked, self._hear)
            self._open[pending] = slot
            pending.submit(self._desk, self._call)
        except ServingError as error:
            if pending is not None:
                self._open.pop(pending, None)
            if pending is None and slot is None:
                slot = self._new_slot()
            response = messages.ModelStreamInferResponse(error_message=explain(error, id).message)
            response.infer_response.id = id
            self._put(slot, encode(response))
            self._finish_if_done()

    def _hear(self, pending: Pending, outcome: Outcome, is_last: bool) -> None:
        slot = self._open[pending]
        is_final = is_last or slot is not None
        if is_final:
            del self._open[pending]
        response, error = self._response(pending, outcome, is_final)
        if error is not None and self._is_strict:
            _, code, message = explain(error, pending.asked.id)
            self._break(Refusal(code, message))
            return
        if response is not None:
            self._put(slot, encode(response))
        if is_final and not is_last:
            pending.withdraw()
        self._finish_if_done()

    def _response(
        self, pending: Pending, outcome: Outcome, is_final: bool
    ) -> tuple[messages.ModelStreamInferResponse | None, ServingError | None]:
        """Make the message of one piece; none where it only says that there are no more and nobody asked for that."""
        plan, asked = pending.plan, pending.asked
        inner: Any
        error: ServingError | None = None
        try:
            if isinstance(outcome, ServingError):
                raise outcome
            if outcome.body:
                inner = write_answer(plan, asked, outcome)
            elif not plan.interface.is_decoupled:
                raise HandlerFailed("the model gave no answer to this request")
            elif asked.controls.wants_final:
                inner = messages.ModelInferResponse(model_name=plan.model.name, id=asked.id)
            else:
                return None, None
        except ServingError as raised:
            error = raised
            inner = messages.ModelInferResponse(model_name=plan.model.name, id=asked.id)
        inner.parameters[FINAL].bool_param = is_final
        words = explain(error, asked.id).message if error is not None else ""
        return messages.ModelStreamInferResponse(error_message=words, infer_response=inner), error

    def _new_slot(self) -> Slot:
        slot = Slot()
        self._order.append(slot)
        return slot

    def _put(self, slot: Slot | None, message: bytes) -> None:
        """Send an answer, or keep it until those before it are sent."""
        if slot is None:
            self._send(message)
            return
        slot.message = message
        self._held += len(message)
        order = self._order
        while order and order[0].message is not None:
            first = order.popleft().message
            assert first is not None
            self._held -= len(first)
            self._send(first)

    def _send(self, message: bytes) -> None:
        self._behind = 0 if self._call.writable else self._behind + len(message)
        if self._behind > MOST_BEHIND:
            self._break(TOO_SLOW)
        else:
            self._call.send(message)

    def _end(self) -> None:
        self._has_ended = True
        self._finish_if_done()

    def _finish_if_done(self) -> None:
        if self._has_ended and not self._open:
            self._call.finish()

    def _break(self, why: Refusal) -> None:
        self._gone()
        end(self._call, why)

    def _gone(self) -> None:
        pending, self._open = list(self._open), {}
        self._order.clear()
        for one in pending:
            one.withdraw()

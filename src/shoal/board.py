"""Board: does what models ask of the server they run in: call another model, load one, say whether one is ready."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from itertools import accumulate
from typing import Any

from shoal.core.model import Model
from shoal.core.request import InSequence, Outcome, Request
from shoal.core.stuck import Wait, is_stuck
from shoal.errors import InvalidInput, ServingError, TooLarge, Unavailable, Withdrawn
from shoal.frontend.kserve.asked import Tensor
from shoal.frontend.kserve.control import Control, check_explicit
from shoal.frontend.kserve.controls import Controls
from shoal.frontend.kserve.desk import Desk
from shoal.frontend.kserve.plan import Plan
from shoal.frontend.kserve.status import UnknownModel, Unsupported, explain
from shoal.payload import Buffer
from shoal.pool.errands import Caller, Tell
from shoal.tensor import read_part_type
from shoal.triton.inside import Inside
from shoal.wire.messages import Ask, Failure, Order, Told

log = logging.getLogger("shoal.board")
COPIED_BELOW = 64 * 1024  # bytes that are taken out of what else was received with them
CANCELLED = 499
NOT_READY = "Failed for execute the inference request. Model '{model}' is not ready."
DECOUPLED = (
    "Model {model} is using the decoupled. The current BLS request call doesn't support models using the decoupled "
    "transaction policy. Please use 'decoupled=True' argument to the 'exec' or 'async_exec' calls for decoupled "
    "models.'"
)
CIRCLE = (
    "every instance of model '{model}' waits for this call or for the model that makes it, so nobody would ever answer "
    "it; give one of them more instances, or call from a decoupled model's own thread"
)


class NotTaken(Unavailable):
    """A call that no model hears of."""


class Board:
    """One server's."""

    def __init__(self, desk: Desk, control: Control, *, largest: int) -> None:
        self._desk = desk
        self._inside = Inside(desk)
        self._control = control
        self._largest = largest  # bytes of the inputs of a call
        self._asking: dict[tuple[str, int], Asking] = {}  # those that hold their instance, by worker and errand
        self._orders: set[asyncio.Task[None]] = set()

    def ask(self, ask: Ask, body: memoryview, caller: Caller, tell: Tell) -> Callable[[], None]:
        """Call a model; what it is not called for is told as it would be told by it."""
        asking = Asking(ask, caller, tell, self._forget)
        try:
            plan = self._find(ask)
            asking.model = plan.model
            tensors = tensors_of(ask, body, self._largest)
            if ask.holds:
                self._asking[caller.worker, ask.errand] = asking
                self._check_circle(asking, caller)
            sequence = InSequence(*ask.sequence) if ask.sequence is not None else None
            asking.request = self._inside.ask(
                plan,
                tensors,
                asking.answer,
                outputs=ask.outputs,
                id=ask.id,
                controls=Controls(ask.parameters, sequence, 0, ask.timeout),
                client=caller.worker,
            )
        except ServingError as error:
            self._forget(asking)
            id = None if isinstance(error, NotTaken) else ask.id  # which is said where its model knows of it
            words = f"Model {ask.model} - Error when running inference: {explain(error, id).message}"
            tell(Told(ask.errand, True, failure=Failure("handler", words)), ())
        return asking.call_off

    def order(self, order: Order, caller: Caller, tell: Tell) -> Callable[[], None]:
        """Load or unload a model, or say whether it is ready. A load that was begun goes on, whoever left."""
        task = asyncio.get_running_loop().create_task(_told(self._obey(order), order.errand, tell))
        self._orders.add(task)
        task.add_done_callback(self._orders.discard)
        return _nothing

    def _find(self, ask: Ask) -> Plan:
        try:
            plan = self._inside.find(ask.model, ask.version)
        except UnknownModel:
            raise NotTaken(NOT_READY.format(model=ask.model)) from None
        if plan.interface.is_decoupled and not ask.may_be_many:
            raise Unsupported(DECOUPLED.format(model=ask.model))
        return plan

    def _check_circle(self, asking: "Asking", caller: Caller) -> None:
        every = list(self._asking.values())
        waits = [wait for each in every if (wait := each.wait()) is not None]
        sizes = {each.model.scheduler: each.model.pool.size for each in every if each.model is not None}
        if is_stuck(caller.worker, waits, sizes):
            raise NotTaken(CIRCLE.format(model=asking.name))

    def _forget(self, asking: "Asking") -> None:
        self._asking.pop((asking.caller.worker, asking.errand), None)

    async def _obey(self, order: Order) -> bool:
        if order.verb == "ready":
            return self._desk.is_ready(order.model, checked_version(order.version))
        check_explicit(self._control)
        if order.verb == "unload":
            self._control.unload(order.model, unload_dependents=order.with_dependents)
        else:
            parameters: dict[str, str | bytes] = {"config": order.config} if order.config else {}
            await self._control.load(order.model, {**parameters, **order.files})
        return True


class Asking:
    """One call under way."""

    def __init__(self, ask: Ask, caller: Caller, tell: Tell, forget: Callable[["Asking"], None]) -> None:
        self.errand = ask.errand
        self.name = ask.model
        self.caller = caller
        self.model: Model | None = None
        self.request: Request | None = None
        self._tell = tell
        self._forget = forget

    def wait(self) -> Wait | None:
        """Say who waits for whom; None once nobody does."""
        request, model = self.request, self.model
        if model is None or (request is not None and request.has_ended):
            return None
        batch = request.batch if request is not None else None
        if batch is not None and batch.has_begun:
            return None  # its answers come whatever else its instance waits for
        return Wait(self.caller.worker, self.caller.home, model.scheduler, batch.instance if batch is not None else "")

    def answer(self, request: Request, outcome: Outcome, is_last: bool) -> None:
        """Hear one piece of the answer."""
        if is_last:
            self._forget(self)
        if isinstance(outcome, ServingError):
            status = CANCELLED if isinstance(outcome, Withdrawn) else 0
            failure = Failure("handler", explain(outcome).message, status)
            self._tell(Told(self.errand, True, failure=failure), ())
        else:
            self._tell(Told(self.errand, is_last), (outcome.body,) if outcome.body else ())

    def call_off(self) -> None:
        """Nobody waits for the rest."""
        self._forget(self)
        request, model = self.request, self.model
        if request is not None and model is not None:
            model.withdraw(request)


def tensors_of(ask: Ask, body: memoryview, largest: int) -> list[Tensor]:
    """Give the inputs of a call, which lie one behind the other."""
    if len(body) > largest:
        raise TooLarge(f"the inputs of a call have at most {largest} bytes, got {len(body)}")
    ends = list(accumulate(head.size for head in ask.inputs))
    if any(head.size < 0 for head in ask.inputs) or (ends[-1] if ends else 0) != len(body):
        raise InvalidInput(f"the inputs of a call come with {len(body)} bytes, and their sizes say {ends}")
    data: Buffer = bytes(body) if len(body) < COPIED_BELOW else body
    tensors = []
    for head, end in zip(ask.inputs, ends, strict=True):
        datatype, shape = read_part_type(head.content_type)
        tensors.append(Tensor(head.name, datatype, list(shape), data[end - head.size : end]))
    return tensors


def checked_version(version: str) -> str:
    """Give a version again where it is one."""
    if version and not (version.isdecimal() and version.isascii()):
        raise InvalidInput(
            f"failed to get model version from specified version string '{version}' (details: stol), version should be "
            "an integral value > 0"
        )
    return version


async def _told(work: Coroutine[Any, Any, bool], errand: int, tell: Tell) -> None:
    try:
        tell(Told(errand, True, await work), ())
    except ServingError as error:
        tell(Told(errand, True, failure=Failure("handler", explain(error).message)), ())
    except Exception as error:
        log.exception("what a model asked for could not be done")
        tell(Told(errand, True, failure=Failure("handler", f"{type(error).__name__}: {error}")), ())


def _nothing() -> None:
    """Nothing to call off."""

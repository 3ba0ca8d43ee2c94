"""Calls from inside a model: to other models, and to the repository that holds them."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from shoal import tensor
from shoal.upstream.triton_python_backend_utils.errors import ErrorCode, TritonError, TritonModelException
from shoal.upstream.triton_python_backend_utils.response import InferenceResponse
from shoal.upstream.triton_python_backend_utils.tensor import Tensor
from shoal.wire.messages import Failure, Order
from shoal.worker.backends.received import Received
from shoal.worker.errands import CANCELLED, TICK, Errand, Heard, Make, errands
from shoal.worker.scope import current

ONLY_EXECUTE = "BLS is only supported during the 'execute' function."
NOT_HERE = "there is no server to ask here: a model does that in initialize, in execute and in its own threads"
_EMPTY = InferenceResponse()
_model = ""
_instance = ""
_is_loaded = False


def introduce(model: str, instance: str) -> None:
    """Say whose calls these are; it is not loaded yet."""
    global _model, _instance, _is_loaded
    _model, _instance, _is_loaded = model, instance, False


def loaded() -> None:
    """Let other models be called."""
    global _is_loaded
    _is_loaded = True


class Call:
    """A call of another model, under way."""

    __slots__ = ("_device", "_errand", "_responses", "_scope")

    def __init__(self, make: Callable[[int, bool], Any], inputs: list[Any], device: int | None) -> None:
        if not _is_loaded:
            raise TritonModelException(ONLY_EXECUTE)
        self._scope = current()
        self._device = device  # of a GPU that the outputs should lie on
        self._errand = _begin(lambda number: make(number, self._scope.holds), inputs)
        self._responses: list[InferenceResponse] = []

    @property
    def errand(self) -> Errand:
        """What it is on the way to the server."""
        return self._errand

    def response(self, place: int) -> InferenceResponse | None:
        """Wait for a response; None where there are fewer."""
        while place >= len(self._responses):
            heard = self._errand.wait(len(self._responses), self._scope.is_wanted)
            if heard is None:
                return None
            self._responses.append(self._read(heard))
        return self._responses[place]

    def only(self) -> InferenceResponse:
        """Wait for the one response."""
        return self.response(0) or _EMPTY

    def look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Look now and then whether anybody wants it."""
        if not self._errand.has_ended:
            if self._scope.is_wanted():
                loop.call_later(TICK, self.look, loop)
            else:
                self._errand.call_off()

    def _read(self, heard: Heard) -> InferenceResponse:
        told, data = heard
        if told.failure is not None:
            code = ErrorCode.CANCELLED if told.failure.status == CANCELLED else ErrorCode.INTERNAL
            return InferenceResponse(error=TritonError(told.failure.message, code))
        if not len(data):
            return InferenceResponse()
        answer, pieces = tensor.split(data)
        if answer.error:
            return InferenceResponse(error=TritonError(answer.error))
        outputs = [
            Tensor.of_request(head.name, Received(head.datatype, tuple(head.shape), piece))
            for head, piece in zip(answer.outputs, pieces, strict=True)
        ]
        try:
            if self._device is not None:
                outputs = [output.on_gpu(self._device) for output in outputs]
        except TritonModelException as error:
            return InferenceResponse(error=TritonError(str(error)))
        known = {key: value for key, value in answer.parameters.items() if isinstance(value, bool | int | float | str)}
        return InferenceResponse(outputs, parameters=known)


class ResponseIterator:
    """The responses to a call, as they come; gone through anew, they are the same."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._at = 0
        self._is_through = False

    def __iter__(self) -> "ResponseIterator":
        if self._is_through:
            self._at, self._is_through = 0, False
        return self

    def __next__(self) -> InferenceResponse:
        response = self._call.response(self._at)
        if response is None:
            self._is_through = True
            raise StopIteration
        self._at += 1
        return response

    def cancel(self) -> None:
        """Ask for no more; what follows is one response that says so, unless all had come."""
        self._call.errand.call_off()


def later(begin: Callable[[], Call], decoupled: bool) -> "asyncio.Future[Any]":
    """Begin a call and give what is awaited for its response, or for the first of an iterator's."""
    loop = asyncio.get_running_loop()
    call = begin()
    future: asyncio.Future[Any] = loop.create_future()

    def settle() -> None:
        if not future.done() and call.errand.at(0) is not None:
            future.set_result(ResponseIterator(call) if decoupled else call.only())

    def on_news() -> None:
        with suppress(RuntimeError):  # the loop has ended: nobody waits there
            loop.call_soon_threadsafe(settle)

    call.errand.on_news = on_news
    future.add_done_callback(lambda done: call.errand.call_off() if done.cancelled() else None)
    settle()  # it may have come before anybody listened
    call.look(loop)
    return future


def load_model(model_name: str, config: str = "", files: dict[str, bytes] | None = None) -> None:
    """Load a model of the repository; comes back once it is ready."""
    if model_name == _model and not _is_loaded:
        raise TritonModelException(f"Failed to load model: model '{model_name}' cannot load itself while it is loaded")
    contents = {name: bytes(content) for name, content in (files or {}).items()}
    _order("load model", lambda number: Order(number, "load", model_name, "", config, contents))


def unload_model(model_name: str, unload_dependents: bool = False) -> None:
    """Take a model out; it finishes what it has."""
    _order("unload model", lambda number: Order(number, "unload", model_name, with_dependents=bool(unload_dependents)))


def is_model_ready(model_name: str, model_version: str = "") -> bool:
    """Whether a model can be called."""
    return _order("check model readiness", lambda number: Order(number, "ready", model_name, model_version))


def _order(what: str, make: Make) -> bool:
    heard = _begin(make, []).wait(0, current().is_wanted)
    assert heard is not None, "an errand ends with an answer"
    failure: Failure | None = heard[0].failure
    if failure is not None:
        words = f"Failed to process the request for model '{_instance}', message: {failure.message}"
        raise TritonModelException(f"Failed to {what}: {words}")
    return heard[0].is_true


def _begin(make: Make, inputs: list[Any]) -> Errand:
    if not errands.is_connected:
        raise TritonModelException(NOT_HERE)
    return errands.begin(make, inputs)

"""The four clients of tritonclient behind one face; what they give back is made plain enough for JSON."""

import asyncio
import http.client
import inspect
import json
import math
import queue
import threading
import time
from collections.abc import Mapping
from typing import Any

import grpc
import numpy
import tritonclient.grpc
import tritonclient.grpc.aio
import tritonclient.http
import tritonclient.http.aio
import tritonclient.utils.shared_memory as shared_memory
from google.protobuf import json_format
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import triton_to_np_dtype

from tests.upstream.triton.answers import (
    answer,
    body_of,
    failure,
    is_last,
    tidy,
    told,
    values_of,
)
from tests.upstream.triton.words import Ask, Given, Transport, Wanted

PATIENCE = 30.0  # seconds for an answer
MODULES: dict[Transport, Any] = {
    "http": tritonclient.http,
    "http aio": tritonclient.http.aio,
    "grpc": tritonclient.grpc,
    "grpc aio": tritonclient.grpc.aio,
}
HEADERS = (
    "content-encoding",
    "inference-header-content-length",
    "accept-encoding",
    "content-type",
    "connection",
)


class Plugin(tritonclient.http.InferenceServerClientPlugin):  # type: ignore[misc]
    """Adds headers to every request."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._headers = headers

    def __call__(self, request: Any) -> None:
        request.headers.update(self._headers)


class Clients:
    """One client of one transport, connected to one server."""

    def __init__(
        self,
        transport: Transport,
        http: str,
        grpc: str,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.transport = transport
        self._places = (http, grpc)
        self._loop = loop
        self._regions: dict[str, Any] = {}
        self._used = {"close", "stop_stream"}  # which every client comes to
        self._module = MODULES[transport]
        self._own = self._loop.run_until_complete(self._connect())

    async def _connect(self) -> Any:
        place = self._places[0] if self._is_http else self._places[1]
        if self.transport == "http":
            return self._module.InferenceServerClient(place, concurrency=8, network_timeout=PATIENCE)
        return self._module.InferenceServerClient(place)

    @property
    def _is_http(self) -> bool:
        return self.transport.startswith("http")

    def close(self) -> None:
        """Disconnect, and take the shared memory away."""
        for handle in self._regions.values():
            shared_memory.destroy_shared_memory_region(handle)
        self._finish(self._own.close())

    def ask(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Call a method of the client by its name."""
        called = self._method(method)
        if not self._is_http and "as_json" in inspect.signature(called).parameters:
            options["as_json"] = True
        return tidy(self._finish(called(*arguments, **options)))

    def infer(
        self,
        model: str,
        *tensors: Given,
        wanted: tuple[Wanted, ...] = (),
        reads: bool = True,
        **options: Any,
    ) -> Any:
        """Infer, and give the answer's head and, where they are in it, values."""
        inputs, outputs = (
            [self._input(one) for one in tensors],
            [self._output(one) for one in wanted],
        )
        if not self._is_http:
            options = {_GRPC_NAMES.get(name, name): value for name, value in options.items()}
        return answer(
            self._finish(self._method("infer")(model, inputs, outputs=outputs or None, **options)),
            reads=reads,
        )

    def later(self, model: str, *tensors: Given) -> Any:
        """Infer by the method that does not wait, and then wait."""
        inputs = [self._input(one) for one in tensors]
        if self.transport == "http":
            return answer(self._method("async_infer")(model, inputs, request_id="later").get_result(timeout=PATIENCE))
        heard: queue.Queue[Any] = queue.Queue()
        hear = lambda result, error: heard.put((result, error))  # noqa: E731
        self._method("async_infer")(model, inputs, hear, request_id="later")
        return told(*heard.get(timeout=PATIENCE))

    def by_hand(self, model: str, *tensors: Given) -> Any:
        """Infer with a body that the client only writes and reads."""
        body, size = self._method("generate_request_body")([self._input(one) for one in tensors], request_id="hand")
        link = http.client.HTTPConnection(self._places[0], timeout=PATIENCE)
        link.request(
            "POST",
            f"/v2/models/{model}/infer",
            body,
            {"Inference-Header-Content-Length": str(size)},
        )
        response = link.getresponse()
        length = response.headers.get("Inference-Header-Content-Length")
        data = response.read()
        link.close()
        return answer(self._method("parse_response_body")(data, header_length=int(length) if length else None))

    def plugged(self, headers: Mapping[str, str], method: str, *arguments: Any) -> Any:
        """Call a method while a plugin adds headers to every request."""
        self._method("register_plugin")(Plugin(headers))
        try:
            assert isinstance(self._method("plugin")(), Plugin)
            return self.ask(method, *arguments)
        finally:
            self._method("unregister_plugin")()

    def unused(self) -> list[str]:
        """The public methods of the client that nothing has called."""
        methods = {name for name in dir(self._own) if not name.startswith("_") and callable(getattr(self._own, name))}
        return sorted(methods - self._used)

    def _method(self, name: str) -> Any:
        self._used.add(name)
        return getattr(self._own, name)

    def crowd(self, asks: tuple[tuple[float, str, tuple[Given, ...], dict[str, Any]], ...]) -> Any:
        """Infer several at the same time; each has a client of its own."""
        answers: list[Any] = [None] * len(asks)

        def one(
            index: int,
            after: float,
            model: str,
            tensors: tuple[Given, ...],
            options: dict[str, Any],
        ) -> None:
            time.sleep(after)
            loop = asyncio.new_event_loop()
            client = Clients(self.transport, *self._places, loop)
            try:
                answers[index] = client.infer(model, *tensors, **options)
            except Exception as error:
                answers[index] = failure(error)
            finally:
                client.close()
                loop.close()

        threads = [threading.Thread(target=one, args=(index, *ask)) for index, ask in enumerate(asks)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        return answers

    def cancel(self, model: str, tensor: Given, after: float) -> Any:
        """Infer, and cancel that."""
        inputs = [self._input(tensor)]
        if self.transport == "grpc":
            heard: queue.Queue[Any] = queue.Queue()
            context = self._method("async_infer")(model, inputs, lambda result, error: heard.put((result, error)))
            time.sleep(after)
            context.cancel()
            result, error = heard.get(timeout=PATIENCE)
            return failure(error) if error is not None else answer(result)
        return self._loop.run_until_complete(self._cancel(model, inputs, after))

    async def _cancel(self, model: str, inputs: list[Any], after: float) -> Any:
        task = asyncio.ensure_future(self._own.infer(model, inputs))
        await asyncio.sleep(after)
        task.cancel()
        try:
            return answer(await task)
        except asyncio.CancelledError:
            return {"raised": "CancelledError"}

    def stream(
        self,
        asks: tuple[Ask, ...],
        *,
        stop: float = 0,
        answers: int = 0,
        **options: Any,
    ) -> Any:
        """Send requests on one stream; with `stop`, cancel it after so many seconds."""
        if self.transport == "grpc":
            return self._stream(asks, stop, answers, options)
        work = self._stream_aio(asks, stop, answers, options)
        return self._loop.run_until_complete(asyncio.wait_for(work, PATIENCE))

    def _stream(self, asks: tuple[Ask, ...], stop: float, answers: int, options: dict[str, Any]) -> Any:
        heard: queue.Queue[Any] = queue.Queue()
        self._method("start_stream")(lambda result, error: heard.put((result, error)), **options)
        try:
            for one in asks:
                self._method("async_stream_infer")(
                    one.model,
                    [self._input(one.tensor)],
                    request_id=one.id,
                    **one.options,
                )
            if stop:
                time.sleep(stop)
                self._own.stop_stream(cancel_requests=True)
                return [told(*heard.get()) for _ in range(heard.qsize())][-1:]
            return self._heard(lambda: heard.get(timeout=PATIENCE), asks, answers)
        finally:
            self._own.stop_stream()

    def _heard(self, hear: Any, asks: tuple[Ask, ...], answers: int) -> list[Any]:
        found: list[Any] = []
        left = len(asks)
        while len(found) < answers if answers else left:
            one = told(*hear())
            found.append(one)
            left -= is_last(one)
        return found

    async def _stream_aio(self, asks: tuple[Ask, ...], stop: float, answers: int, options: dict[str, Any]) -> Any:
        done = asyncio.Event()

        async def requests() -> Any:
            for one in asks:
                yield {
                    "model_name": one.model,
                    "inputs": [self._input(one.tensor)],
                    "request_id": one.id,
                    **one.options,
                }
            await done.wait()

        replies = self._method("stream_infer")(requests(), **options)
        found: list[Any] = []
        left = len(asks)
        if stop:
            asyncio.get_running_loop().call_later(stop, replies.cancel)
        try:
            async for result, error in replies:
                found.append(told(result, error))
                left -= is_last(found[-1])
                if len(found) >= answers if answers else not left:
                    done.set()
                    break
        except asyncio.CancelledError:
            return [{"raised": "CancelledError"}]
        done.set()
        replies.cancel()
        return found

    def http(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Ask over a plain connection; a body that is no text and no bytes is written as JSON."""
        if body is not None and not isinstance(body, bytes):
            body = (body if isinstance(body, str) else json.dumps(body)).encode()
        link = http.client.HTTPConnection(self._places[0], timeout=PATIENCE)
        try:
            link.request(method, path, body, dict(headers or {}))
            response = link.getresponse()
            data = response.read()
            kept = {name: response.headers[name] for name in HEADERS if name in response.headers}
            return {
                "status": response.status,
                "headers": kept,
                "body": body_of(data, kept),
            }
        finally:
            link.close()

    def rpc(
        self,
        method: str,
        *messages: dict[str, Any],
        metadata: tuple[tuple[str, str], ...] = (),
    ) -> Any:
        """Call a method of the service with messages as JSON writes them."""
        kind = {
            "ModelInfer": "ModelInferRequest",
            "ModelStreamInfer": "ModelInferRequest",
        }.get(method)
        make = getattr(service_pb2, kind or f"{method}Request")
        asked = [json_format.ParseDict(message, make()) for message in messages]
        with grpc.insecure_channel(self._places[1]) as channel:
            call = getattr(service_pb2_grpc.GRPCInferenceServiceStub(channel), method)
            given = iter(asked) if method == "ModelStreamInfer" else asked[0]
            reply = call(given, timeout=PATIENCE, metadata=metadata)
            replies = list(reply) if method == "ModelStreamInfer" else [reply]
        return tidy([json_format.MessageToDict(one, preserving_proto_field_name=True) for one in replies])

    def region(self, name: str, values: Any, datatype: str, size: int) -> str:
        """Make a shared memory object that begins with some values; its key."""
        key = f"/shoal_upstream_{name}_{self.transport.replace(' ', '_')}"
        handle = shared_memory.create_shared_memory_region(name, key, size)
        self._regions[name] = handle
        shared_memory.set_shared_memory_region(handle, [_array(values, datatype)])
        return key

    def peek(self, name: str, datatype: str, count: int, offset: int) -> list[Any]:
        """Read values from a shared memory object."""
        found = shared_memory.get_contents_as_numpy(
            self._regions[name], triton_to_np_dtype(datatype), [count], offset=offset
        )
        return values_of(found)

    def _finish(self, value: Any) -> Any:
        if inspect.isawaitable(value):
            return self._loop.run_until_complete(asyncio.wait_for(value, PATIENCE))
        return value

    def _input(self, given: Given) -> Any:
        array = _array(given.values, given.datatype)
        if given.shape and array.size == math.prod(given.shape):
            array = array.reshape(given.shape)
        tensor = self._module.InferInput(given.name, list(array.shape), given.datatype)
        if given.place:
            tensor.set_shared_memory(given.place[0], given.place[1], offset=given.place[2])
        elif self._is_http:
            tensor.set_data_from_numpy(array, binary_data=given.is_binary)
        else:
            tensor.set_data_from_numpy(array)
        if given.shape:
            tensor.set_shape(list(given.shape))
        return tensor

    def _output(self, wanted: Wanted) -> Any:
        if self._is_http:
            output = self._module.InferRequestedOutput(
                wanted.name, binary_data=wanted.is_binary, class_count=wanted.classes
            )
        else:
            output = self._module.InferRequestedOutput(wanted.name, class_count=wanted.classes)
        if wanted.place:
            output.set_shared_memory(wanted.place[0], wanted.place[1], offset=wanted.place[2])
        return output


_GRPC_NAMES = {"request_compression_algorithm": "compression_algorithm"}


def _array(values: Any, datatype: str) -> Any:
    if datatype == "BYTES":
        texts = numpy.array(values, dtype=numpy.object_)
        for place, text in numpy.ndenumerate(texts):
            texts[place] = text.encode() if isinstance(text, str) else text
        return texts
    return numpy.array(values, dtype=triton_to_np_dtype(datatype))

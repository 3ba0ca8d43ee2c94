"""A real server with real workers whose gRPC services are on a transport of the test's choice, and a client to it."""

import asyncio
import contextlib
import importlib
import importlib.util
import ssl
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import uvloop

from shoal.app import App
from shoal.frontend.grpc.calls import Api, Authorise, Desk
from shoal.frontend.grpc.open_inference import OpenInference
from shoal.frontend.grpc.proto import inference_pb2, management_pb2
from shoal.frontend.grpc.torchserve_inference import PREFIX as INFERENCE
from shoal.frontend.grpc.torchserve_inference import TorchServeInference
from shoal.frontend.grpc.torchserve_management import PREFIX as MANAGEMENT
from shoal.frontend.grpc.torchserve_management import TorchServeManagement
from shoal.frontend.rpc import Services
from shoal.native import configure
from tests.process.grpcio_transport import GrpcioListener

OWN = "shoal.frontend.http2.server"
TRANSPORTS = ["grpcio", "http2"] if importlib.util.find_spec(OWN) else ["grpcio"]
MAX_MESSAGE = 8 * 2**20

MODEL = '''
import json, os, time

class Deeds:
    """Does what each row says; anything else comes back."""

    def initialize(self, context):
        if context.parameters.get("fail"):
            raise RuntimeError("not in the mood")

    def handle(self, data, context):
        return [act(row, context, index) for index, row in enumerate(data)]

def act(row, context, index):
    data = row.get("data", row.get("body"))
    if isinstance(data, dict):  # an open inference request
        return json.dumps({**data, "outputs": data["inputs"]})
    if not data or data[:1] != b"{":
        return bytes(data or b"nothing")
    item = json.loads(data)
    match item["do"]:
        case "look":
            return {"types": {name: type(value).__name__ for name, value in row.items()},
                    "sequence": context.get_request_header(index, "ts_request_sequence_id"),
                    "end": context.get_request_header(index, "ts_request_sequence_end")}
        case "fail":
            import shoal
            return shoal.HandlerFailed(item["message"], status=item["status"])
        case "raise":
            raise RuntimeError("a bug")
        case "sleep":
            time.sleep(item["seconds"])
            return "slept"
        case "touch":
            open(item["path"], "a").close()
            return "touched"
        case "count":
            return (str(number) for number in range(item["to"]))
        case "wait":
            return waiting(item["path"])
        case "endless":
            return endless(item["path"], item["size"])

def waiting(path):
    yield "before"
    while not os.path.exists(path):
        time.sleep(0.01)
    yield "after"

def endless(path, size):
    try:
        while True:
            yield "x" * size
    finally:
        open(path, "w").close()
'''


@dataclass
class Front:
    """The addresses of a running server."""

    inference: str
    management: str
    app: App
    loop: asyncio.AbstractEventLoop
    stopping: asyncio.Event

    def stop(self) -> None:
        """Let it drain; what runs is finished."""
        with contextlib.suppress(RuntimeError):  # it has drained already
            self.loop.call_soon_threadsafe(self.stopping.set)

    @contextlib.contextmanager
    def channel(self, address: str = "", credentials: Any = None) -> Iterator[Any]:
        options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        target = address or self.inference
        if credentials is None:
            channel = grpc.insecure_channel(target, options)
        else:
            channel = grpc.secure_channel(target, credentials, options)
        with channel:
            yield channel

    def predict(self, data: bytes, model: str = "deeds", *, timeout: float = 30, **options: Any) -> bytes:
        """Make one prediction."""
        with self.channel() as channel:
            request = inference_pb2.PredictionsRequest(model_name=model, input={"data": data}, **options)
            answer: bytes = predictions(channel)(request, timeout=timeout).prediction
            return answer

    def manage(self, method: str, request: Any) -> str:
        """Make one management call."""
        with self.channel(self.management) as channel:
            stub = channel.unary_unary(
                MANAGEMENT + method,
                request_serializer=type(request).SerializeToString,
                response_deserializer=management_pb2.ManagementResponse.FromString,
            )
            words: str = stub(request, timeout=60).msg
            return words


def _messages() -> dict[str, Any]:
    return {
        "request_serializer": inference_pb2.PredictionsRequest.SerializeToString,
        "response_deserializer": inference_pb2.PredictionResponse.FromString,
    }


def predictions(channel: Any) -> Any:
    return channel.unary_unary(INFERENCE + "Predictions", **_messages())


def stream_predictions(channel: Any) -> Any:
    return channel.unary_stream(INFERENCE + "StreamPredictions", **_messages())


def stream_predictions2(channel: Any) -> Any:
    return channel.stream_stream(INFERENCE + "StreamPredictions2", **_messages())


def raw(channel: Any, method: str) -> Any:
    """A stub that sends and receives bytes."""
    return channel.unary_unary(method)


@contextlib.contextmanager
def fronting(
    folder: Path,
    transport: str,
    *,
    authorise: Authorise | None = None,
    model_api: bool = True,
    certificate: tuple[str, str] | None = None,
    **settings: Any,
) -> Iterator[Front]:
    """Serve one model called `deeds` while the block runs; `folder` is also the model store."""
    (folder / "deeds.py").write_text(MODEL)
    quiet = {"port": 0, "management_port": 0, "metrics_port": 0, "drain_timeout": 5.0, "model_store": str(folder)}
    config, model = configure(folder / "deeds.py", {**quiet, **settings}, environment={})
    started: Future[Front] = Future()

    async def serve() -> None:
        app = App(config, [model])
        await app.start()
        listeners = [
            listener(transport, services, certificate) for services in make_services(app, authorise, model_api)
        ]
        for one in listeners:
            await one.start()
        stopping = asyncio.Event()
        inference, management = (one.address for one in listeners)
        started.set_result(Front(inference, management, app, asyncio.get_running_loop(), stopping))
        await stopping.wait()
        for one in listeners:
            await one.drain(5.0)
        await app.drain()

    def run() -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            try:
                runner.run(serve())
            except BaseException as error:
                if started.done():
                    raise
                started.set_exception(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    front = started.result()
    try:
        yield front
    finally:
        front.stop()
        thread.join()


def make_services(app: App, authorise: Authorise | None, model_api: bool) -> tuple[Services, Services]:
    """The services of the inference port and of the management port."""
    let_in = authorise or anyone
    explain = app.apis.dialect.explain
    desk = Desk(app.repository, app.clock, explain)

    def health() -> str:
        return app.apis.dialect.health(app.repository)[1]

    inference = TorchServeInference(desk, health=health, authorise=let_in)
    open_inference = OpenInference(
        desk, describe_error=explain, authorise=let_in, is_ready=lambda model: model.is_ready
    )
    management = TorchServeManagement(app.apis.actions, describe_error=explain, authorise=let_in, model_api=model_api)
    return inference.services() | open_inference.services(), management.services()


def listener(transport: str, services: Services, certificate: tuple[str, str] | None = None, port: int = 0) -> Any:
    """Put services on a free port."""
    if transport == "grpcio":
        pem = (Path(certificate[1]).read_bytes(), Path(certificate[0]).read_bytes()) if certificate else None
        return GrpcioListener(services, host="127.0.0.1", port=port, max_message=MAX_MESSAGE, pem=pem)
    own = importlib.import_module(OWN)
    limits = importlib.import_module("shoal.frontend.http2.limits").Http2Limits(max_message=MAX_MESSAGE)
    context = None
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
    return own.Http2Listener(services, limits, host="127.0.0.1", port=port, ssl_context=context)


def anyone(metadata: Sequence[tuple[bytes, bytes]], api: Api) -> None:
    """Let everybody in."""

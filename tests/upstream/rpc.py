"""gRPC calls written out from the protos beside it, in a descriptor pool of their own."""

import functools
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import grpc_tools
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.message import Message
from grpc_tools import protoc

from tests.upstream.rows import Call
from tests.upstream.servers import Server

PROTOS = Path(__file__).parent / "protos"
PATIENCE = 15.0  # seconds for a call
PACKAGES = {
    "InferenceAPIsService": ("org.pytorch.serve.grpc.inference", "grpc inference"),
    "ManagementAPIsService": ("org.pytorch.serve.grpc.management", "grpc management"),
}


def invoke(server: Server, call: Call) -> dict[str, Any]:
    """Make a call; what came back and how it ended."""
    service, _, name = call.method.partition("/")
    package, port = PACKAGES[service]
    method = _pool().FindServiceByName(f"{package}.{service}").methods_by_name[name]
    request, response = (message_factory.GetMessageClass(kind) for kind in (method.input_type, method.output_type))
    metadata = [(key, server.fill(value)) for key, value in call.metadata]
    messages = [_fill(request(), fields) for fields in call.messages]
    received: list[Any] = []
    with grpc.insecure_channel(f"127.0.0.1:{server.port(port)}") as channel:
        kind = f"{'stream' if method.client_streaming else 'unary'}_{'stream' if method.server_streaming else 'unary'}"
        stub = getattr(channel, kind)(
            f"/{package}.{service}/{name}",
            request_serializer=request.SerializeToString,
            response_deserializer=response.FromString,
        )
        try:
            given = _in_turn(messages, received) if method.client_streaming else messages[0]
            answers = stub(given, timeout=PATIENCE, metadata=metadata)
            for answer in answers if method.server_streaming else [answers]:
                received.append(_seen(answer))  # noqa: PERF401 - what came before an error is kept
        except grpc.RpcError as error:
            return {"code": error.code().name, "details": error.details(), "messages": received}
    return {"code": "OK", "details": "", "messages": received}


def _in_turn(messages: list[Message], received: list[Any]) -> Iterator[Message]:
    """Each message when the one before it was answered, and the end when all were."""
    end = time.monotonic() + PATIENCE
    for number, message in enumerate(messages, 1):
        yield message
        while len(received) < number and time.monotonic() < end:
            time.sleep(0.01)


@functools.cache
def _pool() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "set"
        included = Path(grpc_tools.__file__).parent / "_proto"
        names = ["inference.proto", "management.proto"]
        flags = [f"-I{PROTOS}", f"-I{included}", "--include_imports", f"--descriptor_set_out={output}"]
        if protoc.main(["protoc", *flags, *names]):
            raise RuntimeError(f"{PROTOS} could not be compiled")
        for file in descriptor_pb2.FileDescriptorSet.FromString(output.read_bytes()).file:
            pool.Add(file)
    return pool


def _fill(message: Message, fields: dict[str, Any]) -> Message:
    """Set plain fields; `input` maps names to text."""
    for name, value in fields.items():
        if name == "input":
            for key, item in value.items():
                message.input[key] = item if isinstance(item, bytes) else item.encode()
        else:
            setattr(message, name, value)
    return message


def _seen(message: Message) -> Any:
    """A message as JSON holds it, its bytes as text."""
    fields = json_format.MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=_pool())
    prediction = getattr(message, "prediction", None)
    if prediction is not None:
        fields["prediction"] = prediction.decode("latin-1")
    return {name: parsed(value) if name in ("msg", "health") else value for name, value in fields.items()}


def parsed(text: str, end: str = "") -> Any:
    """JSON taken apart, if it is written as both servers write it: by two blanks a level; else as it is."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    is_usual = isinstance(value, dict | list) and text == json.dumps(value, indent=2, ensure_ascii=False) + end
    return value if is_usual else text

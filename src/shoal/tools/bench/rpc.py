"""gRPC targets: TorchServe's Predictions with any body, KServe's ModelInfer with tensors that are made up."""

import asyncio
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from shoal.errors import InvalidInput
from shoal.frontend.grpc.proto.grpc_service_pb2 import ModelInferRequest, ModelMetadataRequest, ModelMetadataResponse
from shoal.frontend.grpc.proto.inference_pb2 import PredictionsRequest
from shoal.frontend.http2 import hpack
from shoal.tools.bench.rpc_connection import RpcConnection
from shoal.tools.bench.target import Target
from shoal.tools.bench.tensors import make_up, packed
from shoal.tools.calls import ServerFailed, Site, reason, site_of
from shoal.tools.samples import Sample

SCHEMES = {"grpc://": "http://", "grpcs://": "https://"}
PREDICT = "/org.pytorch.serve.grpc.inference.InferenceAPIsService/Predictions"
INFER = "/inference.GRPCInferenceService/ModelInfer"
METADATA = "/inference.GRPCInferenceService/ModelMetadata"


def is_rpc(text: str) -> bool:
    """Whether this is the address of a gRPC server."""
    return text.startswith(tuple(SCHEMES))


def rpc_target(url: str, model: str, headers: Mapping[str, str], *, verifies: bool) -> Target:
    """Read an address; the model is always named beside it."""
    scheme = next(scheme for scheme in SCHEMES if url.startswith(scheme))
    site = site_of(SCHEMES[scheme] + url.removeprefix(scheme), verifies=verifies)
    if site.path:
        raise InvalidInput(f"{url}: a gRPC address has no path; write {scheme}HOST:PORT and --model NAME")
    if not model:
        raise InvalidInput(f"{url} names no model; add --model NAME")
    return Target(site, "", model, dict(headers))


def with_messages(target: Target, samples: Sequence[Sample], timeout: float) -> tuple[Target, list[Sample]]:
    """Turn bodies into calls of TorchServe's Predictions, and see that the first is answered."""
    made = [
        msgspec.structs.replace(
            sample, body=framed(PredictionsRequest(model_name=target.model, input={"data": sample.body}))
        )
        for sample in samples
    ]
    return _checked(target, PREDICT, made, timeout)


def with_made_up(target: Target, shapes: Mapping[str, list[int]], timeout: float) -> tuple[Target, list[Sample]]:
    """Ask the server what the model takes, and make a call of KServe's ModelInfer of that."""
    asked = framed(ModelMetadataRequest(name=target.model))
    found = ModelMetadataResponse.FromString(unary(target.site, METADATA, asked, target.headers, timeout))
    inputs = [{"name": each.name, "datatype": each.datatype, "shape": list(each.shape)} for each in found.inputs]
    message = ModelInferRequest(model_name=target.model)
    for head, values in make_up({"inputs": inputs}, shapes):
        message.inputs.add(name=head["name"], datatype=head["datatype"], shape=head["shape"])
        message.raw_input_contents.append(packed(head["datatype"], values))
    return _checked(target, INFER, [Sample(framed(message), "application/grpc", "tensors")], timeout)


def _checked(target: Target, path: str, samples: list[Sample], timeout: float) -> tuple[Target, list[Sample]]:
    try:
        unary(target.site, path, samples[0].body, target.headers, timeout)
    except ServerFailed as error:
        if not error.status:
            raise
        raise ServerFailed(f"{target.site.authority} answered {error} to the first request", error.status) from None
    block = block_of(target.site, path, target.headers)
    return msgspec.structs.replace(target, path=path, block=block), samples


def framed(message: Any) -> bytes:
    """Write a message as gRPC sends it: not compressed, its length before it."""
    data: bytes = message.SerializeToString()
    return struct.pack(">BI", 0, len(data)) + data


def block_of(site: Site, path: str, headers: Mapping[str, str]) -> bytes:
    """Write the header block of a call; it leaves no trace in the server's table, so it is the same every time."""
    fields = [
        (b":method", b"POST"),
        (b":scheme", site.scheme.encode()),
        (b":path", path.encode()),
        (b":authority", site.authority.encode()),
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
        *((name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()),
    ]
    return hpack.encode(fields)


def unary(site: Site, path: str, request: bytes, headers: Mapping[str, str], timeout: float) -> bytes:
    """Make one call and give its message; ServerFailed with the server's own words for an error."""
    return asyncio.run(_call(site, block_of(site, path, headers), request, timeout))


async def _call(site: Site, block: bytes, request: bytes, timeout: float) -> bytes:
    once = _Once(request)
    tls = site.tls()
    if tls is not None:
        tls.set_alpn_protocols(["h2"])
    try:
        async with asyncio.timeout(timeout):
            made = RpcConnection(once, block, keeps=True)
            await asyncio.get_running_loop().create_connection(lambda: made, site.host, site.port, ssl=tls)
            await once.is_over.wait()
    except TimeoutError:
        raise ServerFailed(f"{site.authority} gave no answer in {timeout:g} s") from None
    except OSError as error:
        raise ServerFailed(f"no server answers at {site.authority}: {reason(error)}") from None
    made.close()
    if not once.status:
        raise ServerFailed(f"{site.authority} does not speak gRPC: {made.problem or 'it closed the connection'}")
    if once.status != "200":
        raise ServerFailed(f"{once.status}{f': {made.message}' if made.message else ''}", 500)
    return bytes(made.body[5:])


class _Once:
    """The desk of a single call."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self.status = ""
        self.is_over = asyncio.Event()

    def ready(self, connection: RpcConnection) -> None:
        """Send it."""
        connection.send(self._request, 0.0, 0.0)

    def answered(self, connection: RpcConnection, status: bytes, head: bytes) -> None:
        """Keep how it ended."""
        self.status = status.decode()
        self.is_over.set()

    def lost(self, connection: RpcConnection, error: BaseException | None) -> None:
        """It is over, answered or not."""
        self.is_over.set()

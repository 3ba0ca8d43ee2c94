"""A client of gRPC: one message or a stream of them back, told in HTTP's statuses."""

from typing import Any

import grpc

from shoal.frontend.grpc.proto.inference_pb2 import PredictionResponse, PredictionsRequest
from shoal.frontend.grpc.torchserve_inference import PREFIX
from tests.chaos.requests import CUT, NO_ANSWER, Ask, End
from tests.chaos.wire import WITHIN

UNAVAILABLE = "ServiceUnavailableException"
NOT_FOUND = ("ModelNotFoundException", "ModelVersionNotFoundException")


class Rpc:
    """One channel."""

    def __init__(self, port: int) -> None:
        options = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
        self._channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options)
        kinds = {
            "request_serializer": PredictionsRequest.SerializeToString,
            "response_deserializer": PredictionResponse.FromString,
        }
        self._predict = self._channel.unary_unary(PREFIX + "Predictions", **kinds)
        self._stream = self._channel.unary_stream(PREFIX + "StreamPredictions", **kinds)

    async def ask(self, ask: Ask) -> End:
        """Send the request and take its answer."""
        try:
            answer = await self._predict(_message(ask), timeout=_seconds(ask))
        except grpc.aio.AioRpcError as error:
            return _end(ask, error)
        return End(200, answer.prediction)

    async def stream(self, ask: Ask, leave_after: int = -1) -> End | None:
        """Send the request and take all pieces; None where it was left after so many."""
        body, count = b"", 0
        call = self._stream(_message(ask), timeout=_seconds(ask))
        try:
            async for piece in call:
                body += piece.prediction
                count += 1
                if count == leave_after:
                    call.cancel()
                    return None
        except grpc.aio.AioRpcError as error:
            return _end(ask, error)
        return End(200, body)

    async def close(self) -> None:
        """Let the channel go."""
        await self._channel.close()


def _message(ask: Ask) -> Any:
    return PredictionsRequest(model_name=ask.model, model_version=ask.version, input={"data": ask.body})


def _seconds(ask: Ask) -> float:
    return ask.timeout_ms / 1000 if ask.timeout_ms else WITHIN


def _end(ask: Ask, error: "grpc.aio.AioRpcError") -> End:
    """Say in HTTP's words how the call ended."""
    code, words = error.code(), error.details() or ""
    body = f"{code.name}: {words}".encode()
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return End(504 if ask.timeout_ms or "Deadline Exceeded" not in words else NO_ANSWER, body)
    if code is grpc.StatusCode.INTERNAL:
        name = words.rpartition("\n")[2].rpartition(".")[2]
        if name == UNAVAILABLE:
            return End(503, body)
        return End(404 if name in NOT_FOUND else 500, body)
    return End({grpc.StatusCode.NOT_FOUND: 404, grpc.StatusCode.INVALID_ARGUMENT: 400}.get(code, CUT), body)

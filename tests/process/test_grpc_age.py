"""Connections that grow old: their clients come back on new ones, and no call is lost by it."""

import re
import time
from pathlib import Path

import grpc
import pytest

from shoal.frontend.grpc.proto import inference_pb2
from tests.serving import MODELS, serving

METHOD = "/org.pytorch.serve.grpc.inference.InferenceAPIsService/Predictions"


@pytest.mark.parametrize(("age", "renews"), [(0.2, True), (0.0, False)])
def test_an_old_connection_is_replaced_and_no_call_is_lost(age: float, renews: bool, tmp_path: Path) -> None:
    settings = f"grpc_port = 0\ngrpc_max_connection_age = {age}\n"
    with serving(tmp_path, str(MODELS / "echo.py"), config=settings) as server:
        found = re.search(r"grpc://(127\.0\.0\.1:\d+)", server.log.read_text())
        assert found is not None
        states: list[grpc.ChannelConnectivity] = []
        with grpc.insecure_channel(found[1]) as channel:
            channel.subscribe(states.append)
            predict = channel.unary_unary(
                METHOD,
                request_serializer=inference_pb2.PredictionsRequest.SerializeToString,
                response_deserializer=inference_pb2.PredictionResponse.FromString,
            )
            for number in range(60):
                body = b"%d" % number
                asked = inference_pb2.PredictionsRequest(model_name="echo", input={"body": body})
                assert predict(asked, timeout=20).prediction == body
                time.sleep(0.02)  # the load itself: calls that go on over several ages

    assert (states.count(grpc.ChannelConnectivity.READY) > 1) is renews

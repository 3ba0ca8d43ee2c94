"""Bytes that no client would send, over real sockets to a real server: each is answered in time, none with a 500."""

import http.client
from collections.abc import Iterator

import grpc
import pytest
from hypothesis import given, settings

from shoal.frontend.grpc.kserve import PREFIX
from tests.process.kserve_front import Front, fronting
from tests.properties.test_v2_properties import EXAMPLES, bodies, messages

PATIENCE = 60.0  # seconds for an answer
FUZZ = settings(max_examples=EXAMPLES, deadline=None)
MODELS = ("plain", "strs", "nobatch", "two")


@pytest.fixture(scope="module")
def front() -> Iterator[Front]:
    with fronting() as front:
        yield front


def test_any_body_is_answered_on_a_connection_that_stays(front: Front) -> None:
    link = http.client.HTTPConnection("127.0.0.1", front.http, timeout=PATIENCE)

    @FUZZ
    @given(bodies())
    def answered(sent: tuple[bytes, dict[str, str]]) -> None:
        body, headers = sent
        shown = {name: value for name, value in headers.items() if value.isprintable()}
        for model in MODELS:
            for verb in ("infer", "generate_stream"):
                link.request("POST", f"/v2/models/{model}/{verb}", body, shown)
                answer = link.getresponse()
                text = answer.read()
                assert answer.status in (200, 400, 404, 501), text

    answered()
    link.close()


def test_any_message_is_answered_on_a_channel_that_stays(front: Front) -> None:
    with grpc.insecure_channel(front.grpc) as channel:
        unary = channel.unary_unary(PREFIX + "ModelInfer")
        stream = channel.stream_stream(PREFIX + "ModelStreamInfer")

        @FUZZ
        @given(messages(("plain", "strs", "nobatch", "deco", "nobody")))
        def answered(message: bytes) -> None:
            try:
                unary(message, timeout=PATIENCE)
            except grpc.RpcError as error:
                refused = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.UNIMPLEMENTED)
                assert error.code() in refused, error
            list(stream(iter([message, message]), timeout=PATIENCE))

        answered()

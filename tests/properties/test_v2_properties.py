"""Bytes that no client would send, given to both doors of KServe v2: each is answered, and none of them breaks a thing.

FUZZ_EXAMPLES makes the run longer: `FUZZ_EXAMPLES=20000 pytest tests/properties/test_v2_properties.py`.
"""

import asyncio
import gzip
import json
import os
import struct
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.frontend.grpc.kserve import PREFIX
from shoal.frontend.grpc.proto import grpc_service_pb2 as pb
from shoal.frontend.rpc import Code
from tests.unit.frontend.grpc.calling import FakeCall
from tests.unit.frontend.kserve.bed import Bed, spec, tensors

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "200"))
FOUR = struct.pack("<4f", 1, 2, 3, 4)
RIGHT = {"name": "IN", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}
NUMBERS = st.one_of(
    st.integers(-3, 9), st.integers(-(2**70), 2**70), st.floats(), st.sampled_from([2**31, 2**32, 2**63, 2**64, 0.5])
)
WORDS = st.one_of(
    st.text(max_size=5),
    st.sampled_from(["IN", "OUT", "FP32", "FP16", "BYTES", "INT8", "BOOL", "UINT64", "m", "1", "s", "\ud800"]),
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, WORDS),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(WORDS, inner, max_size=3)),
    max_leaves=8,
)
PARAMETERS = st.dictionaries(
    st.one_of(
        WORDS,
        st.sampled_from(
            [
                *("binary_data_size", "binary_data", "classification", "shared_memory_region", "shared_memory_offset"),
                *("shared_memory_byte_size", "sequence_id", "sequence_start", "sequence_end", "priority", "timeout"),
                *("binary_data_output", "triton_x"),
            ]
        ),
    ),
    VALUES,
    max_size=3,
)
SHAPES = st.one_of(st.lists(st.integers(0, 5), max_size=4), VALUES)
TENSORS = st.fixed_dictionaries(
    {"name": st.one_of(st.just("IN"), WORDS), "shape": SHAPES, "datatype": st.one_of(st.just("FP32"), WORDS)},
    optional={"data": VALUES, "parameters": st.one_of(PARAMETERS, VALUES)},
)
HEADS = st.one_of(
    VALUES,
    st.fixed_dictionaries(
        {"inputs": st.one_of(st.lists(st.one_of(st.just(RIGHT), TENSORS), max_size=3), VALUES)},
        optional={
            "id": VALUES,
            "parameters": st.one_of(PARAMETERS, VALUES),
            "outputs": st.one_of(
                st.lists(st.fixed_dictionaries({"name": WORDS}, optional={"parameters": PARAMETERS}), max_size=2),
                VALUES,
            ),
        },
    ),
)
TARGETS = st.sampled_from(
    [
        *("/v2/models/m/infer", "/v2/models/m/versions/1/infer", "/v2/models/s/infer", "/v2/models/many/infer"),
        *("/v2/models/m/generate", "/v2/models/s/generate_stream", "/v2/models/many/generate", "/v2/trace/setting"),
        *("/v2/logging", "/v2/repository/models/m/unload", "/v2/models/m/trace/setting"),
        *("/v2/systemsharedmemory/region/r/unregister", "/v2/cudasharedmemory/region/r/register"),
    ]
)
FUZZ = settings(max_examples=EXAMPLES, deadline=None)


def bed() -> Bed:
    made = Bed()
    made.add("m")
    made.add("s", spec("IN", "BYTES", [-1]), rows=4)
    made.add("many", is_decoupled=True)
    return made


@st.composite
def bodies(draw: st.DrawFn) -> tuple[bytes, dict[str, str]]:
    """A body with some of what belongs to one, and headers that may lie about it."""
    text = draw(st.one_of(HEADS.map(_json), st.binary(max_size=40)))
    at = draw(st.integers(0, len(text)))
    if draw(st.booleans()):
        text = text[:at] + draw(st.binary(max_size=3)) + text[at + draw(st.integers(0, 3)) :]
    body = text + draw(st.sampled_from([b"", FOUR, FOUR[:5], b"\0" * 40, struct.pack("<I", 2**32 - 1)]))
    headers = {}
    if draw(st.booleans()):
        size = st.sampled_from([str(len(text)), "0", "-1", "many", "99999999999999999999", str(len(body)), " 7", ""])
        headers["Inference-Header-Content-Length"] = draw(size)
    packing = draw(st.sampled_from(["", "", "", "gzip", "deflate", "identity", "br", "\x7f"]))
    if packing:
        headers["Content-Encoding"] = packing
        body = gzip.compress(body) if packing == "gzip" and draw(st.booleans()) else body
    if draw(st.booleans()):
        headers["Accept-Encoding"] = draw(st.sampled_from(["gzip", "deflate;q=x", "*", ",;q=", "gzip;q=9"]))
    return body, headers


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


@FUZZ
@given(TARGETS, bodies())
def test_any_body_over_http_is_answered_and_never_with_a_500(target: str, sent: tuple[bytes, dict[str, str]]) -> None:
    made = bed()

    answer = made.ask(target, sent[0], sent[1], "POST")

    running = [request for name in ("m", "s", "many") for request in made.running(name)]
    if running:
        assert not answer.exchange.is_answered and len(running) == 1
    else:
        assert answer.exchange.is_answered and answer.status != 500 and answer.status < 504, answer.body
        assert made.lent == [] or all(block.released for block in made.lent)
    if not running:
        made.infer({"inputs": [RIGHT], "id": "after"})
        assert [request.id for request in made.running("m")] == [b"after"], "the model still answers"


MODELS = ("m", "s", "many", "nobody", "")
MESSAGES = st.builds(
    pb.ModelInferRequest,
    model_version=st.sampled_from(["", "1", "x", "0", "99999999999999999999999"]),
    id=st.text(st.characters(codec="utf-8"), max_size=4),
    parameters=st.dictionaries(
        st.sampled_from(["sequence_id", "sequence_start", "priority", "timeout", "own", "triton_x"]),
        st.one_of(
            st.just(pb.InferParameter()),
            st.builds(pb.InferParameter, int64_param=st.integers(-(2**63), 2**63 - 1)),
            st.builds(pb.InferParameter, string_param=st.text(st.characters(codec="utf-8"), max_size=4)),
            st.builds(pb.InferParameter, double_param=st.floats()),
        ),
        max_size=2,
    ),
    inputs=st.lists(
        st.builds(
            pb.ModelInferRequest.InferInputTensor,
            name=st.sampled_from(["IN", "X", ""]),
            datatype=st.sampled_from(["FP32", "BYTES", "FP16", "INT8", "", "x"]),
            shape=st.lists(st.one_of(st.integers(-2, 5), st.integers(-(2**63), 2**63 - 1)), max_size=4),
            contents=st.one_of(
                st.none(),
                st.builds(
                    pb.InferTensorContents,
                    fp32_contents=st.lists(st.floats(width=32), max_size=5),
                    int_contents=st.lists(st.integers(-(2**31), 2**31 - 1), max_size=2),
                    bytes_contents=st.lists(st.binary(max_size=4), max_size=2),
                ),
            ),
        ),
        max_size=3,
    ),
    raw_input_contents=st.lists(st.one_of(st.just(FOUR), st.binary(max_size=20)), max_size=3),
    outputs=st.lists(
        st.builds(pb.ModelInferRequest.InferRequestedOutputTensor, name=st.sampled_from(["OUT", "X", ""])), max_size=2
    ),
)


@st.composite
def messages(draw: st.DrawFn, models: tuple[str, ...] = MODELS) -> bytes:
    """A message with some of what belongs to one, and now and then a byte that does not."""
    message = draw(MESSAGES)
    message.model_name = draw(st.sampled_from(models))
    data = bytearray(message.SerializeToString())
    for _ in range(draw(st.sampled_from([0, 0, 1, 3]))):
        at = draw(st.integers(0, len(data)))
        data[at : at + 1] = draw(st.binary(max_size=2))
    return bytes(data)


@FUZZ
@given(messages())
def test_any_message_over_grpc_is_answered_and_never_with_an_error_of_the_server(message: bytes) -> None:
    made = bed()

    call = FakeCall(PREFIX + "ModelInfer").begin(made.services, message)

    running = [request for name in ("m", "s", "many") for request in made.running(name)]
    if running:
        assert call.code is None and len(running) == 1
    else:
        assert call.code not in (None, Code.OK, Code.UNKNOWN, Code.INTERNAL), call.words


@FUZZ
@given(st.lists(messages(), min_size=1, max_size=4))
def test_any_messages_on_a_stream_are_answered_one_by_one(sent: list[bytes]) -> None:
    made = bed()

    call = FakeCall(PREFIX + "ModelStreamInfer").begin(made.services, *sent)

    answered = 0
    for name in ("m", "s", "many"):
        while made.running(name):
            made.reply(tensors(("OUT", "FP32", [1, 4], FOUR)), name=name)
            answered += 1
    replies = [pb.ModelStreamInferResponse.FromString(data) for data in call.sent]
    assert call.code == Code.OK and len(replies) == len(sent), call.status
    assert sum(not reply.error_message for reply in replies) == answered


@FUZZ
@given(st.sampled_from(sorted(Bed().services)), st.binary(max_size=60))
def test_any_bytes_to_any_method_are_answered(method: str, message: bytes) -> None:
    made = bed()

    async def go() -> FakeCall:
        call = FakeCall(method).begin(made.services, message)
        for _ in range(5):
            await asyncio.sleep(0)
        return call

    call = asyncio.run(go())
    is_known = "shared memory region" in call.words  # what cannot be opened is an error of the server, as tabled
    assert call.code is not None and (call.code not in (Code.UNKNOWN, Code.INTERNAL) or is_known), call.words

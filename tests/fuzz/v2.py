"""KServe v2: JSON and binary bodies over HTTP, messages over gRPC, to the real routes with models that answer."""

import json
import struct
from collections.abc import Hashable
from random import Random

from shoal.frontend.grpc.kserve import PREFIX
from shoal.frontend.grpc.proto import grpc_service_pb2 as pb
from shoal.frontend.rpc import Code
from tests.fuzz.target import Witness, expect
from tests.unit.frontend.grpc.calling import FakeCall
from tests.unit.frontend.kserve.bed import Bed, spec, tensors

FOUR = struct.pack("<4f", 1, 2, 3, 4)
MODELS = ("m", "s", "many")
FRESH = 2000  # inputs after which the models are made anew
MARK = b"\xff\xfe"  # in an input: here ends the JSON and begin the tensors
TARGETS = (
    *("/v2/models/m/infer", "/v2/models/s/infer", "/v2/models/many/infer", "/v2/models/m/versions/1/infer"),
    *("/v2/models/m/generate", "/v2/models/s/generate_stream", "/v2/logging", "/v2/trace/setting"),
    *("/v2/models/s/generate", "/v2/models/m/trace/setting", "/v2/systemsharedmemory/region/r/register"),
)
RIGHT = {"name": "IN", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}
BEHIND = {"name": "IN", "shape": [1, 4], "datatype": "FP32", "parameters": {"binary_data_size": 16}}
SHARED = {"shared_memory_region": "r", "shared_memory_byte_size": 16, "shared_memory_offset": 0}
TEXTS = {"name": "IN", "shape": [1, 2], "datatype": "BYTES", "data": ["a", "é"]}
WANTED = [{"name": "OUT", "parameters": {"binary_data": True, "classification": 2}}]


def _seed(target: int, head: object, data: bytes = b"") -> bytes:
    return bytes([target]) + json.dumps(head).encode() + (MARK + data if data else b"")


BODIES = (
    _seed(0, {"inputs": [RIGHT]}),
    _seed(0, {"id": "7", "inputs": [RIGHT], "outputs": WANTED, "parameters": {"sequence_id": 3, "priority": 1}}),
    _seed(0, {"inputs": [BEHIND], "outputs": [{"name": "OUT"}], "parameters": {"binary_data_output": True}}, FOUR),
    _seed(0, {"inputs": [{**BEHIND, "parameters": SHARED}]}),
    _seed(1, {"inputs": [TEXTS]}),
    _seed(1, {"inputs": [{**TEXTS, "data": [], "parameters": {"binary_data_size": 8}}]}, b"\2\0\0\0ab\0\0"),
    _seed(2, {"inputs": [{**RIGHT, "data": [[1, 2], [3, 4.5e3]]}], "parameters": {"timeout": 5}}),
    _seed(4, {"IN": [1, 2, 3, 4], "id": "x"}),
    _seed(5, {"IN": "text", "parameters": {"a": 1}}),
    _seed(6, {"log_info": True, "log_verbose_level": 1}),
    _seed(7, {"trace_rate": "5", "trace_level": ["OFF"]}),
    _seed(10, {"key": "/r", "offset": 0, "byte_size": 64}),
)
WORDS = (
    *(b'"inputs":', b'"shape":', b'"data":', b'"datatype":', b'"parameters":', b'"outputs":', b'"name":', b'"id":'),
    *(
        b'"FP32"',
        b'"BYTES"',
        b'"FP16"',
        b'"BOOL"',
        b'"INT8"',
        b'"UINT64"',
        b'"FP64"',
        b"null",
        b"true",
        b"NaN",
        b"-Infinity",
    ),
    *(
        b'"binary_data_size":',
        b'"shared_memory_region":',
        b'"classification":',
        b'"sequence_id":',
        b'"sequence_start":true,',
    ),
    *(
        b'"priority":',
        b'"timeout":',
        b'"binary_data_output":true',
        b"[",
        b"]",
        b"{",
        b"}",
        b",",
        b'"',
        b"\\u0000",
        b"\\ud800",
    ),
    *(
        b"[[[[[[",
        b"{}",
        b"[]",
        b"1e999",
        b"-0",
        b"18446744073709551616",
        b"0.1",
        b"\xc3\x28",
        MARK,
        FOUR,
        b"\xff\xff\xff\xff",
    ),
)


class Models:
    """A bed of models that answer what they get, made anew now and then."""

    def __init__(self) -> None:
        self._uses = 0
        self.bed = Bed()

    def fresh(self) -> Bed:
        """Give the bed, empty."""
        if self._uses % FRESH == 0:
            self.bed = Bed()
            self.bed.add("m")
            self.bed.add("s", spec("IN", "BYTES", [-1]), rows=4)
            self.bed.add("many", is_decoupled=True)
        self._uses += 1
        self.bed.lent.clear()
        return self.bed

    def answer(self) -> int:
        """Answer what runs; how many requests that were."""
        answered = 0
        for name in MODELS:
            while self.bed.running(name):
                self.bed.reply(tensors(("OUT", "FP32", [1, 4], FOUR)), name=name)
                answered += 1
        return answered


class Bodies:
    """Bodies of every call that takes one."""

    name = "v2-http"
    share = 150
    seeds = BODIES
    words = WORDS

    def __init__(self) -> None:
        self._models = Models()
        self._witness = Witness("shoal.http", "shoal.triton", "shoal.kserve")

    def attempt(self, data: bytes, random: Random) -> Hashable:
        """Send it; it is answered, never with a 500, and no memory stays lent."""
        bed = self._models.fresh()
        target = TARGETS[(data[0] if data else 0) % len(TARGETS)]
        head, mark, rest = data[1:].partition(MARK)
        headers = {"Inference-Header-Content-Length": str(len(head))} if mark else {}
        if random.random() < 0.02:
            headers["Inference-Header-Content-Length"] = random.choice(("-1", "99999999999", "x", "", str(len(data))))
        answer = bed.ask(target, head + rest, headers, "POST")
        ran = self._models.answer()
        self._witness.check()
        expect(answer.exchange.is_answered, "no answer")
        expect(ran <= 1, f"one request became {ran}")
        is_known = b"Unable to open shared memory" in answer.body  # as Triton has it
        expect(answer.status < 500 or answer.status in (501, 503) or is_known, f"{answer.status}: {answer.body!r}")
        expect(all(block.released for block in bed.lent), "memory stays lent")
        return target, answer.status, answer.body[:24] if answer.status >= 400 else b""


class Messages:
    """Messages of ModelInfer and its stream."""

    name = "v2-grpc"
    share = 60
    words = (
        FOUR,
        b"IN",
        b"OUT",
        b"FP32",
        b"BYTES",
        b"\x0a\x01m",
        b"\x2a\x00",
        b"\x3a\x10",
        b"\xff" * 9 + b"\x01",
        b"sequence_id",
    )

    def __init__(self) -> None:
        self._models = Models()
        self._witness = Witness("shoal.http2", "shoal.grpc", "shoal.kserve")
        tensor = pb.ModelInferRequest.InferInputTensor(name="IN", datatype="FP32", shape=[1, 4])
        typed = pb.ModelInferRequest.InferInputTensor(name="IN", datatype="FP32", shape=[1, 4])
        typed.contents.fp32_contents.extend([1, 2, 3, 4])
        asked = pb.ModelInferRequest(model_name="m", id="7", inputs=[tensor], raw_input_contents=[FOUR])
        asked.parameters["sequence_id"].int64_param = 3
        texts = pb.ModelInferRequest.InferInputTensor(name="IN", datatype="BYTES", shape=[1, 1])
        self.seeds = (
            pb.ModelInferRequest(model_name="m", inputs=[tensor], raw_input_contents=[FOUR]).SerializeToString(),
            pb.ModelInferRequest(model_name="m", model_version="1", inputs=[typed]).SerializeToString(),
            pb.ModelInferRequest(model_name="s", inputs=[texts], raw_input_contents=[b"\1\0\0\0a"]).SerializeToString(),
            asked.SerializeToString(),
        )

    def attempt(self, data: bytes, random: Random) -> Hashable:
        """Call; it ends, and never by the server's mistake."""
        bed = self._models.fresh()
        is_stream = random.random() < 0.3
        method = "ModelStreamInfer" if is_stream else "ModelInfer"
        call = FakeCall(PREFIX + method).begin(bed.services, data)
        ran = self._models.answer()
        self._witness.check()
        expect(call.code is not None, "the call is not over")
        expect(call.code not in (Code.UNKNOWN, Code.INTERNAL), f"{call.code}: {call.words}")
        expect(ran <= 1 and all(block.released for block in bed.lent), "memory stays lent")
        return method, call.code, call.words[:24]

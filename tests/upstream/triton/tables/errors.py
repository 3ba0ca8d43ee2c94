"""Requests that are wrong: what a client's own methods can get wrong, and what only plain bytes can."""

import json
import struct

from tests.upstream.triton.tables.inference import FOUR, A, do
from tests.upstream.triton.words import EVERY, GRPC, HTTP, Case, Given, Wanted, infer, plain, rpc

FLOATS = Given("IN", [[1.0, 2.0, 3.0, 4.0]])
INFER = "/v2/models/echo/infer"
HEAD = {"inputs": [{"name": "IN", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}]}


def head(**fields: object) -> dict[str, object]:
    """A right request with some fields of its input changed; None takes one away."""
    changed = {**HEAD["inputs"][0], **fields}
    return {"inputs": [{name: value for name, value in changed.items() if value is not None}]}


def binary(size: int, sent: int, length: int | None = None) -> tuple[bytes, dict[str, str]]:
    """A body that announces some bytes and has others."""
    text = json.dumps(head(data=None, parameters={"binary_data_size": size})).encode()
    shown = len(text) if length is None else length
    return text + b"\0" * sent, {"Inference-Header-Content-Length": str(shown)}


def with_parameters(**parameters: object) -> dict[str, object]:
    return {**HEAD, "parameters": parameters}


CLIENTS = (
    infer("an unknown model", "nobody", FOUR),
    infer("an unknown version", "echo", FOUR, model_version="7"),
    infer("a version that is none", "echo", FOUR, model_version="one", on=GRPC),
    infer("an unknown input", "echo", Given("WRONG", FOUR.values)),
    infer("an input too many", "echo", FOUR, Given("MORE", FOUR.values)),
    infer("an input too few", "pair", A),
    infer("no input", "echo"),
    infer("an unknown output", "echo", FOUR, wanted=(Wanted("WRONG"),)),
    infer("another datatype", "echo", Given("IN", [[1, 2]], "INT32")),
    infer("a dimension too many", "echo", Given("IN", [[[1.0]]])),
    infer("a dimension too few", "echo", Given("IN", [1.0])),
    infer("another fixed dimension", "pair", A, Given("B", [[1, 2, 3]], "INT32")),
    infer("too many rows", "echo", Given("IN", [[1.0]] * 5)),
    infer("rows that disagree", "pair", A, Given("B", [[1, 2], [3, 4]], "INT32")),
    infer("no rows", "echo", Given("IN", [], shape=(0, 4))),
    infer("fewer bytes than the shape has", "echo", Given("IN", FOUR.values, shape=(1, 5))),
    infer("more bytes than the shape has", "echo", Given("IN", FOUR.values, shape=(1, 3))),
    infer("fewer words than the shape has", "strings", Given("IN", [["a", "b"]], "BYTES", shape=(1, 3))),
    infer("a model of many answers", "many", Given("IN", [[2]], "INT32")),
    infer("an input given twice", "pair", A, A, on=EVERY),
    infer("a region that is not there", "echo", Given("IN", FOUR.values, place=("nowhere", 16, 0))),
    infer("a window that is not there", "echo", FOUR, wanted=(Wanted("OUT", place=("nowhere", 16, 0)),)),
    infer("classes below one", "echo", FOUR, wanted=(Wanted("OUT", classes=-1),), on=GRPC),
    infer("half numbers as json", "typed", Given("IN_FP16", [0.5], "FP16", is_binary=False), on=HTTP),
    infer(
        "half numbers back as json",
        "typed",
        Given("IN_FP16", [0.5], "FP16"),
        wanted=(Wanted("OUT_FP16", is_binary=False),),
        on=HTTP,
    ),
    infer("a time limit that is too short", "behave", do("sleep", "1.5"), client_timeout=0.2, on=GRPC),
)
FORM = (
    plain("no json", "POST", INFER, "{"),
    plain("json of another kind", "POST", INFER, "[]"),
    plain("no inputs", "POST", INFER, {}),
    plain("inputs that are no list", "POST", INFER, {"inputs": 3}),
    plain("an input without a name", "POST", INFER, head(name=None)),
    plain("an input without a shape", "POST", INFER, head(shape=None)),
    plain("an input without a datatype", "POST", INFER, head(datatype=None)),
    plain("an input without data", "POST", INFER, head(data=None)),
    plain("data twice", "POST", INFER, head(parameters={"binary_data_size": 8})),
    plain("a shape below nothing", "POST", INFER, head(shape=[1, -2])),
    plain("a shape of words", "POST", INFER, head(shape=["1", "2"])),
    plain("an unknown datatype", "POST", INFER, head(datatype="FP31")),
    plain("too few values", "POST", INFER, head(data=[1])),
    plain("too many values", "POST", INFER, head(data=[1, 2, 3])),
    plain("nested values", "POST", INFER, head(data=[[1, 2]])),
    plain("words for numbers", "POST", INFER, head(data=["1", "2"])),
    plain(
        "numbers for truths",
        "POST",
        "/v2/models/typed/infer",
        {"inputs": [{"name": "IN_BOOL", "shape": [1], "datatype": "BOOL", "data": [1]}]},
    ),
    plain(
        "broken numbers for whole ones",
        "POST",
        "/v2/models/typed/infer",
        {"inputs": [{"name": "IN_INT8", "shape": [1], "datatype": "INT8", "data": [1.5]}]},
    ),
    plain(
        "numbers below nothing",
        "POST",
        "/v2/models/typed/infer",
        {"inputs": [{"name": "IN_UINT8", "shape": [1], "datatype": "UINT8", "data": [-1]}]},
    ),
    plain(
        "numbers that are too large",
        "POST",
        "/v2/models/typed/infer",
        {
            "inputs": [{"name": "IN_UINT8", "shape": [2], "datatype": "UINT8", "data": [300, 7]}],
            "outputs": [{"name": "OUT_UINT8"}],
        },
    ),
    plain("an id that is a number", "POST", INFER, {**HEAD, "id": 7}),
    plain("parameters that are a list", "POST", INFER, {**HEAD, "parameters": []}),
    plain("a parameter that is a list", "POST", INFER, with_parameters(own=[1])),
    plain("a parameter that is nothing", "POST", INFER, with_parameters(own=None)),
    plain("a reserved parameter by hand", "POST", INFER, with_parameters(triton_x=1)),
    plain(
        "a broken number as a parameter",
        "POST",
        "/v2/models/behave/infer",
        {
            "parameters": {"own": 1.5},
            "inputs": [{"name": "IN", "shape": [1, 1], "datatype": "BYTES", "data": ["told"]}],
        },
    ),
    plain("a sequence that is a truth", "POST", INFER, with_parameters(sequence_id=True)),
    plain("a sequence below nothing", "POST", INFER, with_parameters(sequence_id=-1)),
    plain("a sequence with a long name", "POST", INFER, with_parameters(sequence_id="x" * 129)),
    plain("a start that is a number", "POST", INFER, with_parameters(sequence_start=1)),
    plain("a priority that is a word", "POST", INFER, with_parameters(priority="high")),
    plain("a timeout below nothing", "POST", INFER, with_parameters(timeout=-1)),
    plain("an output without a name", "POST", INFER, {**HEAD, "outputs": [{}]}),
    plain("an output twice", "POST", INFER, {**HEAD, "outputs": [{"name": "OUT"}, {"name": "OUT"}]}),
    plain(
        "classes that are a word",
        "POST",
        INFER,
        {**HEAD, "outputs": [{"name": "OUT", "parameters": {"classification": "x"}}]},
    ),
    plain("zero classes", "POST", INFER, {**HEAD, "outputs": [{"name": "OUT", "parameters": {"classification": 0}}]}),
    plain(
        "not a number",
        "POST",
        INFER,
        '{"inputs":[{"name":"IN","shape":[1,3],"datatype":"FP32","data":[NaN,Infinity,-Infinity]}]}',
    ),
)
BYTES = (
    plain("too few bytes", "POST", INFER, *binary(8, 5)),
    plain("too many bytes", "POST", INFER, *binary(8, 11)),
    plain("another number of bytes than the shape has", "POST", INFER, *binary(12, 12)),
    plain("a head that is longer than the body", "POST", INFER, *binary(8, 8, 4000)),
    plain("a head below nothing", "POST", INFER, *binary(8, 8, -1)),
    plain("a head that is no number", "POST", INFER, b"{}", {"Inference-Header-Content-Length": "many"}),
    plain("bytes right", "POST", INFER, *binary(8, 8)),
    plain(
        "bytes both ways",
        "POST",
        INFER,
        json.dumps(
            {
                **head(data=None, parameters={"binary_data_size": 8}),
                "outputs": [{"name": "OUT", "parameters": {"binary_data": True}}],
            }
        ).encode()
        + struct.pack("<2f", 1, 2),
        {
            "Inference-Header-Content-Length": str(
                len(
                    json.dumps(
                        {
                            **head(data=None, parameters={"binary_data_size": 8}),
                            "outputs": [{"name": "OUT", "parameters": {"binary_data": True}}],
                        }
                    )
                )
            )
        },
    ),
    plain("bytes for all outputs", "POST", INFER, {**HEAD, "parameters": {"binary_data_output": True}}),
    plain(
        "bytes for all outputs but those listed",
        "POST",
        INFER,
        {**HEAD, "parameters": {"binary_data_output": True}, "outputs": [{"name": "OUT"}]},
    ),
    plain(
        "bytes for no element",
        "POST",
        INFER,
        {**head(shape=[1, 0], data=[]), "parameters": {"binary_data_output": True}},
    ),
    plain(
        "one tensor and nothing else", "POST", INFER, struct.pack("<2f", 1, 2), {"Inference-Header-Content-Length": "0"}
    ),
    plain(
        "one word and nothing else", "POST", "/v2/models/word/infer", b"word", {"Inference-Header-Content-Length": "0"}
    ),
    plain(
        "one tensor for two inputs", "POST", "/v2/models/pair/infer", b"word", {"Inference-Header-Content-Length": "0"}
    ),
    plain("one tensor of half an element", "POST", INFER, b"123456", {"Inference-Header-Content-Length": "0"}),
    plain("an empty body", "POST", INFER, b""),
)
PACKING = (
    plain("an unknown packing", "POST", INFER, b"{}", {"Content-Encoding": "br"}),
    plain("packed with identity", "POST", INFER, HEAD, {"Content-Encoding": "identity"}),
    plain("gzip that is none", "POST", INFER, b"this is no gzip", {"Content-Encoding": "gzip"}),
    plain(
        "an answer packed as the client likes it best",
        "POST",
        INFER,
        HEAD,
        {"Accept-Encoding": "gzip;q=0.5, deflate;q=0.8, br"},
    ),
    plain("an answer packed in no known way", "POST", INFER, HEAD, {"Accept-Encoding": "br, *"}),
    plain("an error is not packed", "POST", "/v2/models/nobody/infer", HEAD, {"Accept-Encoding": "gzip"}),
    plain("metadata is not packed", "GET", "/v2", None, {"Accept-Encoding": "gzip"}),
)
ROUTES = (
    plain("an unknown path", "GET", "/v2/nothing"),
    plain("a path that goes on", "GET", "/v2/models/echo/ready/"),
    plain("another method", "GET", INFER),
    plain("another method on metadata", "POST", "/v2", b""),
    plain("words behind the path", "GET", "/v2/models/echo?x=1"),
    plain("live", "GET", "/v2/health/live"),
    plain("ready", "GET", "/v2/health/ready"),
    plain("a model that is ready", "GET", "/v2/models/echo/ready"),
    plain("a version that is ready", "GET", "/v2/models/echo/versions/1/ready"),
    plain("a version that is not", "GET", "/v2/models/echo/versions/9/ready"),
    plain("a model that is not", "GET", "/v2/models/nobody/ready"),
    plain("a version that is no number", "GET", "/v2/models/echo/versions/one"),
    plain("the root", "GET", "/"),
)
MESSAGES = (
    rpc("no message", "ModelInfer", {}),
    rpc("a version that is no number over grpc", "ModelInfer", {"model_name": "echo", "model_version": "one"}),
    rpc("a message without inputs", "ModelInfer", {"model_name": "echo"}),
    rpc(
        "values as they are",
        "ModelInfer",
        {
            "model_name": "echo",
            "inputs": [{"name": "IN", "datatype": "FP32", "shape": [1, 2], "contents": {"fp32_contents": [1, 2]}}],
        },
    ),
    rpc(
        "whole numbers as they are",
        "ModelInfer",
        {
            "model_name": "typed",
            "inputs": [
                {"name": "IN_INT8", "datatype": "INT8", "shape": [2], "contents": {"int_contents": [1, -2]}},
                {"name": "IN_BOOL", "datatype": "BOOL", "shape": [2], "contents": {"bool_contents": [True, False]}},
            ],
        },
    ),
    rpc(
        "words as they are",
        "ModelInfer",
        {
            "model_name": "strings",
            "inputs": [
                {"name": "IN", "datatype": "BYTES", "shape": [1, 2], "contents": {"bytes_contents": ["YQ==", ""]}}
            ],
        },
    ),
    rpc(
        "values in another list",
        "ModelInfer",
        {
            "model_name": "echo",
            "inputs": [{"name": "IN", "datatype": "FP32", "shape": [1, 2], "contents": {"int_contents": [1, 2]}}],
        },
    ),
    rpc(
        "half numbers as they are",
        "ModelInfer",
        {
            "model_name": "typed",
            "inputs": [{"name": "IN_FP16", "datatype": "FP16", "shape": [1], "contents": {"fp32_contents": [1]}}],
        },
    ),
    rpc(
        "values and bytes",
        "ModelInfer",
        {
            "model_name": "echo",
            "inputs": [{"name": "IN", "datatype": "FP32", "shape": [1, 1], "contents": {"fp32_contents": [1]}}],
            "raw_input_contents": ["AAAAAA=="],
        },
    ),
    rpc(
        "values too few",
        "ModelInfer",
        {
            "model_name": "echo",
            "inputs": [{"name": "IN", "datatype": "FP32", "shape": [1, 2], "contents": {"fp32_contents": [1]}}],
        },
    ),
    rpc(
        "no data", "ModelInfer", {"model_name": "echo", "inputs": [{"name": "IN", "datatype": "FP32", "shape": [1, 1]}]}
    ),
    rpc(
        "too few bytes over grpc",
        "ModelInfer",
        {
            "model_name": "echo",
            "inputs": [{"name": "IN", "datatype": "FP32", "shape": [1, 1]}],
            "raw_input_contents": ["AAA="],
        },
    ),
    rpc(
        "bytes for nobody",
        "ModelInfer",
        {
            "model_name": "echo",
            "inputs": [{"name": "IN", "datatype": "FP32", "shape": [1, 1]}],
            "raw_input_contents": ["AACAPw==", "AACAPw=="],
        },
    ),
    rpc(
        "an unknown datatype over grpc",
        "ModelInfer",
        {
            "model_name": "echo",
            "inputs": [{"name": "IN", "datatype": "FP31", "shape": [1, 1]}],
            "raw_input_contents": ["AACAPw=="],
        },
    ),
    rpc(
        "a shape below nothing over grpc",
        "ModelInfer",
        {
            "model_name": "echo",
            "inputs": [{"name": "IN", "datatype": "FP32", "shape": [1, -1]}],
            "raw_input_contents": ["AACAPw=="],
        },
    ),
    *[
        rpc(
            f"a {name} of another kind",
            "ModelInfer",
            {
                "model_name": "echo",
                "parameters": {name: value},
                "inputs": [{"name": "IN", "datatype": "FP32", "shape": [1, 1]}],
                "raw_input_contents": ["AACAPw=="],
            },
        )
        for name, value in (
            ("sequence_id", {"bool_param": True}),
            ("sequence_start", {"int64_param": 1}),
            ("sequence_end", {"string_param": "x"}),
            ("priority", {"string_param": "x"}),
            ("timeout", {"bool_param": True}),
            ("triton_x", {"int64_param": 1}),
            ("triton_enable_empty_final_response", {"int64_param": 1}),
            ("own", {}),
        )
    ],
    rpc("a model that is ready over grpc", "ModelReady", {"name": "echo", "version": "1"}),
    rpc("a model that is not over grpc", "ModelReady", {"name": "nobody"}),
    rpc("a ready version that is no number", "ModelReady", {"name": "echo", "version": "one"}),
)
GENERATE = (
    plain("generate", "POST", "/v2/models/echo/generate", {"IN": [1.0, 2.0], "id": "7"}),
    plain("generate one", "POST", "/v2/models/echo/generate", {"IN": 1.5}),
    plain(
        "generate with parameters",
        "POST",
        "/v2/models/behave/generate",
        {"IN": "told", "own": 3, "parameters": {"more": "x"}},
    ),
    plain("generate without its input", "POST", "/v2/models/echo/generate", {}),
    plain("generate of no json", "POST", "/v2/models/echo/generate", "{"),
    plain("generate of an object", "POST", "/v2/models/echo/generate", {"IN": {"x": 1}}),
    plain("generate that does not fit", "POST", "/v2/models/pair/generate", {"A": [1, 2, 3], "B": [1, 2]}),
    plain("generate from an unknown model", "POST", "/v2/models/nobody/generate", {}),
    plain("generate that fails", "POST", "/v2/models/behave/generate", {"IN": "error:UNAVAILABLE"}),
    plain("generate once of many", "POST", "/v2/models/many/generate", {"IN": 1}),
    plain("generate thrice of many", "POST", "/v2/models/many/generate", {"IN": 3}),
    plain("generate packed", "POST", "/v2/models/echo/generate", b"x", {"Content-Encoding": "gzip"}),
    plain("generate a stream", "POST", "/v2/models/many/generate_stream", {"IN": 3, "id": "s"}),
    plain("generate a stream of one", "POST", "/v2/models/echo/generate_stream", {"IN": [1, 2]}),
    plain("generate a stream of nothing", "POST", "/v2/models/many/generate_stream", {"IN": 0}),
    plain("generate a stream that fails later", "POST", "/v2/models/many/generate_stream", {"IN": 3, "fail": 1}),
    plain("generate a stream that fails at once", "POST", "/v2/models/many/generate_stream", {"IN": 2, "fail": 0}),
    plain("generate a stream from a version", "POST", "/v2/models/many/versions/1/generate_stream", {"IN": 1}),
)
ALL: tuple[Case, ...] = (*CLIENTS, *FORM, *BYTES, *PACKING, *ROUTES, *MESSAGES, *GENERATE)

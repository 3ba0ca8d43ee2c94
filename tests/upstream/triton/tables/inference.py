"""Inference that works: every datatype and form, classification, compression, parameters, many at once."""

from tests.upstream.triton.repository import DATATYPES
from tests.upstream.triton.words import (
    GRPC,
    HTTP,
    Act,
    Case,
    Client,
    Given,
    Wanted,
    infer,
)

FOUR = Given("IN", [[0.5, -1.0, 2.25, 8.0]])
TWO_ROWS = Given("IN", [[1.0, 5.0, 3.0], [9.0, 7.0, 8.0]])
WORDS = Given("IN", [["", "a", "ü ber", "x" * 300]], "BYTES")
A, B = Given("A", [[1, 2]], "INT32"), Given("B", [[30, -4]], "INT32")
SAMPLES = {
    "BOOL": [True, False],
    "UINT8": [0, 255],
    "UINT16": [0, 65535],
    "UINT32": [0, 2**32 - 1],
    "UINT64": [0, 2**63],
    "INT8": [-128, 127],
    "INT16": [-32768, 32767],
    "INT32": [-(2**31), 2**31 - 1],
    "INT64": [-(2**63), 2**63 - 1],
    "FP16": [0.5, -65504.0],
    "FP32": [1.5, float("inf")],
    "FP64": [0.1, -1e300],
}


def do(*words: str) -> Given:
    """What the model `behave` is to do."""
    return Given("IN", [[":".join(words)]], "BYTES")


def one_of(datatype: str, *, is_binary: bool = True) -> Given:
    """Two values of a datatype for the model `typed`."""
    return Given(f"IN_{datatype}", SAMPLES[datatype], datatype, is_binary=is_binary)


def many_at_once(count: int) -> Act:
    """Requests that may share batches; each must get its own answer."""

    def act(client: Client) -> list[object]:
        asks = [
            (
                0.0,
                "pair",
                (Given("A", [[n, n]], "INT32"), Given("B", [[n, 1]], "INT32")),
                {"request_id": str(n)},
            )
            for n in range(count)
        ]
        return [answer["outputs"][0]["values"] for answer in client.crowd(tuple(asks))]

    return act


ORDINARY = (
    infer("four numbers", "echo", FOUR),
    infer("four numbers of version 1", "echo", FOUR, model_version="1"),
    infer("an id", "echo", FOUR, request_id="a 7/ü"),
    infer("two rows", "echo", TWO_ROWS),
    infer("no element", "echo", Given("IN", [[]])),
    infer("words", "strings", WORDS),
    infer("words that are no text", "strings", Given("IN", [[b"\xff\x00", b""]], "BYTES")),
    infer("no words", "strings", Given("IN", [[]], "BYTES", shape=(1, 0)), on=GRPC),
    infer("without rows", "image", Given("IN", [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])),
    infer("reshaped", "reshaped", Given("IN", [[1], [2]], "INT32")),
    infer("two inputs and two outputs", "pair", A, B),
    infer("inputs in the other order", "pair", B, A),
    infer("one output of two", "pair", A, B, wanted=(Wanted("DIFFERENCE"),)),
    infer(
        "outputs in the other order",
        "pair",
        A,
        B,
        wanted=(Wanted("DIFFERENCE"), Wanted("SUM")),
    ),
    *[infer(f"values of {name}", "typed", one_of(name), wanted=(Wanted(f"OUT_{name}"),)) for name in DATATYPES],
    infer("several optional inputs", "typed", one_of("INT8"), one_of("FP64")),
    Case("twelve at once", many_at_once(12)),
    Case(
        "four numbers, later",
        lambda client: client.later("echo", FOUR),
        ("http", "grpc"),
    ),
    Case(
        "an unknown model, later",
        lambda client: client.later("nobody", FOUR),
        ("http", "grpc"),
    ),
    Case("a body by hand", lambda client: client.by_hand("echo", TWO_ROWS), HTTP),
    Case(
        "with a plugin",
        lambda client: client.plugged({"x-colour": "red"}, "is_server_live"),
    ),
)
JSON_FORMS = (
    *[
        infer(
            f"values of {name} as json",
            "typed",
            one_of(name, is_binary=False),
            wanted=(Wanted(f"OUT_{name}", is_binary=False),),
            on=HTTP,
        )
        for name in DATATYPES
        if name != "FP16"
    ],
    infer("json in", "echo", Given("IN", TWO_ROWS.values, is_binary=False), on=HTTP),
    infer("json out", "echo", FOUR, wanted=(Wanted("OUT", is_binary=False),), on=HTTP),
    infer(
        "words as json",
        "strings",
        Given("IN", [["a", "ü"]], "BYTES", is_binary=False),
        on=HTTP,
    ),
    infer(
        "json and bytes in",
        "pair",
        Given("A", [[1, 2]], "INT32", is_binary=False),
        B,
        on=HTTP,
    ),
    infer(
        "json and bytes out",
        "pair",
        A,
        B,
        wanted=(Wanted("SUM"), Wanted("DIFFERENCE", is_binary=False)),
        on=HTTP,
    ),
)
CLASSES = (
    infer("the best two of four", "echo", FOUR, wanted=(Wanted("OUT", classes=2),)),
    infer("the best of two rows", "echo", TWO_ROWS, wanted=(Wanted("OUT", classes=1),)),
    infer("more classes than there are", "echo", FOUR, wanted=(Wanted("OUT", classes=9),)),
    infer(
        "classes as json",
        "echo",
        FOUR,
        wanted=(Wanted("OUT", is_binary=False, classes=3),),
        on=HTTP,
    ),
    infer("classes of whole numbers", "pair", A, B, wanted=(Wanted("SUM", classes=1),)),
)
PACKED = (
    *[infer(f"packed with {name}", "echo", FOUR, request_compression_algorithm=name) for name in ("gzip", "deflate")],
    *[
        infer(
            f"answers packed with {name}",
            "echo",
            TWO_ROWS,
            response_compression_algorithm=name,
            on=HTTP,
        )
        for name in ("gzip", "deflate")
    ],
    infer(
        "much, packed",
        "image",
        Given("IN", [[float(n % 7) for n in range(5000)]] * 3),
        request_compression_algorithm="gzip",
        response_compression_algorithm="deflate",
        on=HTTP,
    ),
)
TOLD = (
    infer("what the model is told", "behave", do("told"), request_id="9"),
    infer(
        "parameters for the model",
        "behave",
        do("told"),
        parameters={"text": "ü", "flag": True, "number": -3},
    ),
    infer("priority and timeout", "behave", do("told"), priority=2, timeout=5_000_000),
    infer(
        "a sequence of a model without any",
        "behave",
        do("told"),
        sequence_id=77,
        sequence_start=True,
        sequence_end=True,
    ),
    infer("a reserved parameter", "behave", do("told"), parameters={"triton_x": 1}),
    infer(
        "headers mean nothing",
        "behave",
        do("told"),
        headers={"x-colour": "red"},
        on=HTTP,
    ),
    infer("outputs by name", "behave", do("told"), wanted=(Wanted("OUT"),)),
    infer("a time limit that is kept", "behave", do("word"), client_timeout=20.0, on=GRPC),
)
FAILURES = (
    infer("the model raises", "behave", do("raise")),
    *[
        infer(f"the model says {code}", "behave", do("error", code))
        for code in (
            "UNKNOWN",
            "INTERNAL",
            "NOT_FOUND",
            "INVALID_ARG",
            "UNAVAILABLE",
            "UNSUPPORTED",
            "ALREADY_EXISTS",
        )
    ],
    infer("the model gives nothing", "behave", do("none")),
    infer("the model gives another datatype", "behave", do("half")),
    infer("the model gives too few answers", "behave", do("few")),
    infer("it still answers", "behave", do("word")),
)
ALL = (*ORDINARY, *JSON_FORMS, *CLASSES, *PACKED, *TOLD, *FAILURES)

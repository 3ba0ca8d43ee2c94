"""Streams, sequences, cancellation, queues: what takes more than one request."""

from typing import Any

from tests.upstream.triton.tables.inference import do
from tests.upstream.triton.words import GRPC, Ask, Case, Client, Given, Transport, infer, stream


def count(number: int) -> Given:
    """Let the model `many` answer so often."""
    return Given("IN", [[number]], "INT32")


def finals(id: str = "", **options: Any) -> dict[str, Any]:
    """Ask for an empty answer behind the last."""
    return {"enable_empty_final_response": True, **options}


def echo(*numbers: float) -> Given:
    """Numbers for the model `echo`."""
    return Given("IN", [list(numbers)])


SYNC: tuple[Transport, ...] = ("grpc",)  # the other client has no word for the empty answer
STREAMS = (
    stream("one on a stream", Ask("echo", echo(1, 2), "a")),
    stream("in their order", *[Ask("echo", echo(n), str(n)) for n in range(20)]),
    stream(
        "in their order from slow and fast models",
        Ask("behave", do("sleep", "0.3"), "slow"),
        Ask("echo", echo(1), "fast"),
    ),
    stream("three answers and an empty one", Ask("many", count(3), "m", finals()), on=SYNC),
    stream("no answer but the empty one", Ask("many", count(0), "m", finals()), on=SYNC),
    stream("three answers", Ask("many", count(3), "m"), answers=3),
    stream(
        "a failure among the answers", Ask("many", count(3), "m", finals(parameters={"fail": 1})), answers=4, on=SYNC
    ),
    stream("a failure among three", Ask("many", count(3), "m", {"parameters": {"fail": 1}}), answers=3),
    stream("an empty one of a model with one answer", Ask("echo", echo(1), "e", finals()), on=SYNC),
    stream("an unknown model on a stream", Ask("nobody", echo(1), "n"), Ask("echo", echo(2), "y")),
    stream("a wrong input on a stream", Ask("echo", count(1), "n"), Ask("echo", echo(2), "y")),
    stream("a failure on a stream", Ask("behave", do("error", "NOT_FOUND"), "n"), Ask("echo", echo(2), "y")),
    stream("a stream that is cancelled", Ask("behave", do("sleep", "2"), "c"), stop=0.3, on=SYNC),
    stream("a stream packed with gzip", Ask("echo", echo(1), "z"), compression_algorithm="gzip"),
    Case("a request that is cancelled", lambda client: client.cancel("behave", do("sleep", "1"), 0.2), GRPC),
    infer("after what was cancelled", "behave", do("word")),
)


def member(id: int | str, *, start: bool = False, end: bool = False) -> dict[str, Any]:
    """Which sequence a request belongs to."""
    return {"sequence_id": id, "sequence_start": start, "sequence_end": end}


def sums(client: Client) -> list[Any]:
    """Two sequences, interleaved."""
    steps = ((5, 1), (6, 10), (5, 2), (6, 20), (5, 3), (6, 30))
    return [
        client.infer("counter", count(value), **member(id, start=place < 2, end=place > 3))["outputs"][0]["values"]
        for place, (id, value) in enumerate(steps)
    ]


SEQUENCES = (
    Case("two sequences", sums),
    infer("a sequence of one", "counter", count(4), **member(9, start=True, end=True)),
    infer("no sequence", "counter", count(4)),
    infer("a sequence that was not begun", "counter", count(4), **member(11)),
    infer("a sequence that is over", "counter", count(4), **member(9)),
    infer("two rows of a sequence", "counter", Given("IN", [[1], [2]], "INT32"), **member(12, start=True)),
    stream(
        "a sequence on a stream",
        Ask("counter", count(1), "1", member(21, start=True)),
        Ask("counter", count(2), "2", member(21)),
        Ask("counter", count(3), "3", member(21, end=True)),
    ),
    infer("a sequence begun again", "counter", count(1), **member(31, start=True)),
    infer("a sequence begun again, anew", "counter", count(5), **member(31, start=True)),
    infer("a sequence begun again, ended", "counter", count(6), **member(31, end=True)),
)
ONCE: tuple[Transport, ...] = ("http", "grpc")
QUEUES = (
    Case(
        "a queue that is full",
        lambda client: client.crowd(
            (
                (0.0, "queued", (do("sleep", "2"),), {}),
                (0.7, "queued", (do("word"),), {}),
                (1.2, "queued", (do("word"),), {"request_id": "late"}),
            )
        ),
        ONCE,
    ),
    Case(
        "a wait that is too long",
        lambda client: client.crowd(
            (
                (0.0, "queued", (do("sleep", "1.5"),), {}),
                (0.5, "queued", (do("word"),), {"timeout": 100_000, "request_id": "short"}),
            )
        ),
        ONCE,
    ),
    infer("a priority that is too low", "queued", do("word"), priority=7),
)
ALL = (*STREAMS, *SEQUENCES, *QUEUES)

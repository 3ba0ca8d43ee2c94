"""Handlers written for TorchServe in real workers: batches are proved before they are run, or joined while they run."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from shoal.wire.messages import (
    Answered,
    Ended,
    Failure,
    Hello,
    Item,
    Load,
    Loaded,
    Measured,
    PartHead,
    Piece,
    Pieces,
    Proved,
    Run,
    Stop,
    Unloadable,
)
from tests.process.worker_front import Front, cut, worker
from tests.serving import MODELS

FOLDER = MODELS / "upstream" / "batching"


class Talk:
    """Sends batches to a worker and keeps apart what it says of each, and of itself."""

    def __init__(self, front: Front) -> None:
        self.front = front
        self.told: dict[int, list[Any]] = {}  # by batch: pieces of (bytes, header) and failures, for each request
        self.ended: list[int] = []
        self.proved: list[Proved] = []
        self.measures: list[Any] = []

    def run(self, number: int, *bodies: bytes) -> None:
        items = [
            Item([PartHead("body", "text/plain", len(body))], f"{number}-{index}".encode())
            for index, body in enumerate(bodies)
        ]
        self.told[number] = [[] for _ in bodies]
        self.front.send(Run(number, 0, items), bodies)

    def hear(self) -> Any:
        """Take one report."""
        report, data = self.front.receive()
        match report:
            case Answered(number, sizes, _, _):
                for pieces, body in zip(self.told[number], cut(data, sizes), strict=True):
                    pieces.append((body, ""))
                self.ended.append(number)
            case Pieces(number, pieces):
                for piece, body in zip(pieces, cut(data, [piece.size for piece in pieces]), strict=True):
                    self.told[number][piece.index].append(piece.failure or (body, _next(piece)))
            case Ended(number, _, failure):
                for pieces in self.told[number]:
                    if failure is not None and not pieces:
                        pieces.append(failure)
                self.ended.append(number)
            case Proved():
                self.proved.append(report)
            case Measured(measures):
                self.measures += measures
        return report

    def until_ended(self, *numbers: int) -> None:
        while not set(numbers) <= set(self.ended):
            assert self.hear() is not None, "the worker is gone"

    def ask(self, number: int, *bodies: bytes) -> list[Any]:
        """Run a batch to its end: the whole answer of each request, or its failure."""
        self.run(number, *bodies)
        self.until_ended(number)
        return [self.whole(number, index) for index in range(len(bodies))]

    def stop(self) -> int:
        """Tell the worker to stop, and hear what it says until it is gone; its exit code."""
        self.front.send(Stop())
        while self.hear() is not None:
            pass
        return self.front.exit_code()

    def whole(self, number: int, index: int = 0) -> Any:
        pieces = self.told[number][index]
        last = pieces[-1]
        return last if isinstance(last, Failure) else b"".join(body for body, _ in pieces)


def _next(piece: Piece) -> str:
    return dict(piece.headers).get("ts_stream_next", "")


@contextmanager
def talking(handler: str, can_batch: bool | None = None, **config: Any) -> Iterator[Talk]:
    with worker() as front:
        assert front.receive()[0] == Hello(1, front.process.pid)
        values = {"name": "m", "path": str(FOLDER), "handler": f"batching.py:{handler}", "flavour": "torchserve"}
        front.send(Load({**values, **config}, "w", False, 0, can_batch))
        loaded, _ = front.receive()
        assert isinstance(loaded, Loaded), loaded
        assert loaded.places == config.get("batching", {}).get("batch_size", 1)
        yield Talk(front)


@contextmanager
def proving(handler: str, can_batch: bool | None = None, **config: Any) -> Iterator[Talk]:
    with talking(handler, can_batch, prove_batching=True, **config) as talk:
        yield talk


def rows_in(talk: Talk) -> list[int]:
    """How many rows each call had; ends the worker."""
    assert talk.stop() == 0
    assert talk.front.process.stdout is not None
    return [int(line.split()[1]) for line in talk.front.process.stdout if line.startswith("rows ")]


# -- proof ---------------------------------------------------------------------------------------------------------


def test_a_handler_that_can_batch_is_batched_after_two_proofs() -> None:
    with proving("honest") as talk:
        for number in (1, 2, 3):
            told = talk.ask(number, b"bee", b"wasp", b"ant")
            assert [b'"bee"' in told[0], b'"wasp"' in told[1], b'"ant"' in told[2]] == [True] * 3
        assert talk.proved == [Proved(True)]
        assert rows_in(talk) == [1, 1, 1, 3, 1, 1, 1, 3, 3]
        counts = sum(measure.value for measure in talk.measures if measure.name == "Rows")
        assert counts == 9, "what ran twice is counted once"
        assert talk.front.process.stderr is not None
        said = talk.front.process.stderr.read()
        assert said.count("checking that honest can batch: 3 requests are run alone and together\n") == 2


@pytest.mark.parametrize(
    ("handler", "why"),
    [
        (
            "first_only",
            "2 requests that were answered alone failed together: the handler gave 1 results for 2 requests",
        ),
        ("repeated", "of 2 requests together, number 2 was not answered as alone"),
        ("moody", "of 2 requests together, number 1 was not answered as alone"),
        (
            "alone_only",
            "2 requests that were answered alone failed together: ValueError: too many values to unpack (expected 1)",
        ),
    ],
)
def test_a_handler_that_cannot_is_run_request_by_request(handler: str, why: str) -> None:
    with proving(handler) as talk:
        for number in (1, 2):
            bee, wasp = talk.ask(number, b"bee", b"wasp")
            assert (b"bee" in bee.lower(), b"wasp" in wasp.lower()) == (True, True)
        assert talk.proved == [Proved(False, why)]


def test_a_failure_is_the_failing_requests_own() -> None:
    with proving("honest") as talk:
        good, bad, fine = talk.ask(1, b"bee", b"bad", b"ant")

        assert b"bee" in good and b"ant" in fine
        assert (bad.status, bad.message) == (503, "Prediction failed")
        assert talk.proved == []


def test_a_streaming_handler_is_run_request_by_request() -> None:
    with proving("talkative") as talk:
        assert talk.ask(1, b"bee", b"ant") == [b"so bee", b"so ant"]
        assert talk.proved == [Proved(False, "it answers in pieces")]
        assert rows_in(talk) == [1, 1]


def test_side_effects_are_told_of_at_once() -> None:
    with proving("honest", side_effects=True) as talk:
        assert isinstance(talk.hear(), Proved)
        assert not talk.proved[0].can_batch
        talk.ask(1, b"bee", b"ant")
        assert rows_in(talk) == [1, 1]


@pytest.mark.parametrize(("known", "rows"), [(True, [2]), (False, [1, 1])])
def test_a_later_worker_is_told_what_is_known(known: bool, rows: list[int]) -> None:
    with proving("honest", known) as talk:
        talk.ask(1, b"bee", b"ant")
        assert talk.proved == []
        assert rows_in(talk) == rows


def test_a_batch_size_that_was_asked_for_needs_no_proof() -> None:
    with talking("honest", prove_batching=False) as talk:
        talk.ask(1, b"bee", b"ant")
        assert rows_in(talk) == [2]


def test_a_check_that_ends_the_process_comes_after_the_answers() -> None:
    with proving("mortal") as talk:
        talk.run(1, b"bee", b"ant")
        assert isinstance(talk.hear(), Pieces) and isinstance(talk.hear(), Pieces)
        assert (talk.whole(1, 0), talk.whole(1, 1)) == (b"BEE", b"ANT")
        while talk.hear() is not None:
            pass
        assert talk.front.exit_code() == 3


@pytest.mark.parametrize("config", [{"continuous": True}, {"prove_batching": True}])
def test_modes_that_do_not_suit_a_handler_of_stages_are_refused(config: dict[str, bool]) -> None:
    with worker() as front:
        word = front.load(MODELS / "staged.py", **config)
        assert isinstance(word, Unloadable)
        assert ("continuous" if "continuous" in config else "prove_batching") in word.message


def test_continuous_batching_has_one_instance_in_each_worker() -> None:
    with worker() as front:
        word = front.load(FOLDER, handler="batching.py:letters", flavour="torchserve", continuous=True, instances=2)
        assert isinstance(word, Unloadable) and "one instance" in word.message


# -- continuous batching ---------------------------------------------------------------------------------------------


@contextmanager
def joining(handler: str = "letters") -> Iterator[Talk]:
    with talking(handler, continuous=True, batching={"batch_size": 4}) as talk:
        yield talk


def letters(told: Sequence[tuple[bytes, str]]) -> str:
    return "".join(body.decode()[0] for body, _ in told)


def test_a_request_is_answered_step_by_step() -> None:
    with joining() as talk:
        assert talk.ask(1, b"bee") == [b"b1 e1 e1 "]
        assert talk.told[1] == [[(b"b1 ", "true"), (b"e1 ", "true"), (b"e1 ", "false")]]
        talk.hear()
        assert {measure.name for measure in talk.measures} >= {"Steps", "PredictionTime"}


def test_a_request_of_one_step_is_one_answer() -> None:
    with joining() as talk:
        talk.ask(1, b"b")
        assert talk.told[1] == [[(b"b1 ", "false")]]
        talk.ask(2, b"?rest is not asked for")
        assert talk.told[2] == [[(b"?1 ", "")]]


def test_requests_join_and_leave_while_others_run() -> None:
    """Each is long enough that it still runs when the next has come; nobody's letters are mixed up."""
    long = bytes(range(97, 123)) * 400
    with joining() as talk:
        talk.run(1, long)
        while len(talk.told[1][0]) < 5:
            talk.hear()
        talk.run(2, b"wasp")
        talk.run(3, b"ant")
        talk.until_ended(2, 3)
        assert 1 not in talk.ended
        talk.run(4, b"fly")
        talk.until_ended(1, 4)

        assert letters(talk.told[1][0]) == long.decode()
        assert [letters(talk.told[number][0]) for number in (2, 3, 4)] == ["wasp", "ant", "fly"]
        together = [int(body.split()[0][1:]) for body, _ in talk.told[1][0]]
        assert together[:5] == [1] * 5
        assert {1, 2} <= set(together) and max(together) <= 3
        assert [word for _, word in talk.told[2][0]] == ["true"] * 3 + ["false"]
        assert all(int(body.split()[0][1:]) > 1 for body, _ in talk.told[2][0])


def test_a_client_that_leaves_takes_its_row_along() -> None:
    with joining() as talk:
        talk.run(1, b"a" * 100_000)
        talk.hear()
        talk.front.cancel(1, 0)
        talk.until_ended(1)
        assert len(talk.told[1][0]) < 100_000
        assert talk.ask(2, b"ok") == [b"o1 k1 "]


def test_an_error_fails_all_that_are_alive_and_nobody_after() -> None:
    with joining() as talk:
        talk.run(1, b"b" * 100_000)
        talk.hear()
        talk.run(2, b"xy!")
        talk.until_ended(1, 2)
        for number in (1, 2):
            last = talk.told[number][0][-1]
            assert (last.status, last.message) == (503, "Prediction failed")
        assert letters(talk.told[2][0][:-1]) == "xy"
        assert talk.ask(3, b"ok") == [b"o1 k1 "]


def test_without_criteria_a_request_is_over_after_one_step() -> None:
    with joining("plain") as talk:
        assert talk.ask(1, b"bee") == [b'["bee", 1]']
        talk.ask(2, b"header")
        assert talk.told[2] == [[(b'["header", 1]', "false")]]


def test_the_requests_of_one_batch_each_end_on_their_own() -> None:
    with joining() as talk:
        assert talk.ask(1, b"ab", b"x") == [b"a2 b1 ", b"x2 "]


def test_a_worker_finishes_what_it_was_given_before_it_stops() -> None:
    with joining() as talk:
        talk.run(1, b"bees")
        talk.run(2, b"ants and wasps")
        assert talk.stop() == 0
        assert sorted(talk.ended) == [1, 2]
        assert letters(talk.told[2][0]) == "ants and wasps"


def test_nobody_left_to_serve_ends_the_worker() -> None:
    with joining() as talk:
        talk.run(1, b"a" * 1_000_000)
        talk.hear()
        talk.front.socket.close()
        assert talk.front.exit_code() == 0

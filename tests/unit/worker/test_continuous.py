from collections.abc import Callable
from typing import Any

import pytest

from shoal.errors import HandlerFailed, InvalidInput
from shoal.wire.messages import Answered, Ended, Failure, Pieces
from shoal.worker.batch import Batch
from shoal.worker.continuous import Continuous, judge
from shoal.worker.handler import Context
from shoal.worker.program import Program, Stage
from tests.unit.worker.making import Listener, batch, program


class Bed:
    """A handler called step by step; what comes between two steps is for the test to say."""

    def __init__(self, handler: Callable[[list[Any], Context], Any], limit: int = 0) -> None:
        self.heard = Listener()
        self.limit = limit
        self.done: list[int] = []
        self.steps: list[list[Any]] = []
        self.coming: dict[int, Callable[[], list[Batch]]] = {}  # by the number of steps before it

        def counted(rows: list[Any], context: Context) -> Any:
            self.steps.append([dict(row) if isinstance(row, dict) else row for row in rows])
            return handler(rows, context)

        self.program = program(counted)
        self.pipeline = Continuous(self.program, None, self._done, self._arrivals)

    def _done(self, made: Batch) -> None:
        self.done.append(made.number)

    def _arrivals(self) -> list[Batch]:
        return self.coming.pop(len(self.steps), lambda: [])()

    def batch(self, number: int, *bodies: bytes) -> Batch:
        return batch(number, bodies, self.heard, "text/plain", self.limit)

    def pieces(self, number: int) -> list[tuple[bool, bytes | str]]:
        told: list[tuple[bool, bytes | str]] = []
        for message, data in self.heard.frames:
            if isinstance(message, Pieces) and message.batch == number:
                (piece,) = message.pieces
                told.append((piece.is_last, piece.failure.message if piece.failure else data[0]))
        return told


def counting(rows: list[Any], context: Context) -> list[str]:
    """As many pieces as the number that the request sent, kept by its id."""
    left: dict[str, int] = context.__dict__.setdefault("left", {})
    told = []
    for index, row in enumerate(rows):
        id = context.get_request_id(index)
        left[id] = (int(row) if row else left[id]) - 1
        context.set_response_header(index, "ts_stream_next", "true" if left[id] else "false")
        told.append(f"{left[id]};")
    return told


def test_a_request_is_in_every_step_until_its_header_says_that_it_is_over() -> None:
    bed = Bed(counting)
    bed.pipeline.submit(bed.batch(1, b"3"))

    assert bed.steps == [["3"], [{}], [{}]]
    assert bed.pieces(1) == [(False, b"2;"), (False, b"1;"), (True, b"0;")]
    assert isinstance(bed.heard.frames[-1][0], Ended)
    assert bed.done == [1]


def test_requests_join_between_steps_in_the_order_they_came() -> None:
    bed = Bed(counting)
    bed.coming = {1: lambda: [bed.batch(2, b"2"), bed.batch(3, b"1")], 3: lambda: [bed.batch(4, b"1")]}
    bed.pipeline.submit(bed.batch(1, b"4"))

    assert bed.steps == [["4"], [{}, "2", "1"], [{}, {}], [{}, "1"]]
    assert bed.done == [3, 2, 1, 4]
    assert bed.pieces(2) == [(False, b"1;"), (True, b"0;")]


def test_a_whole_answer_is_sent_as_one() -> None:
    bed = Bed(lambda rows, _: [row.upper() for row in rows])
    bed.pipeline.submit(bed.batch(1, b"bee"))

    ((message, data),) = bed.heard.frames
    assert isinstance(message, Answered)
    assert data == [b"BEE"]
    assert sum(message.stages) > 0


def test_headers_of_one_step_are_not_those_of_the_next() -> None:
    seen = []

    def handler(rows: list[Any], context: Context) -> list[str]:
        seen.append(dict(context.get_response_headers(0)))
        return counting(rows, context)

    bed = Bed(handler)
    bed.pipeline.submit(bed.batch(1, b"2"))

    assert seen == [{}, {}]


def test_cancelled_requests_leave_before_the_next_step() -> None:
    bed = Bed(counting)
    first = bed.batch(1, b"100")

    def cancel() -> list[Batch]:
        first.cancelled.add(0)
        return [bed.batch(2, b"1")]

    bed.coming = {2: cancel}
    bed.pipeline.submit(first)

    assert bed.steps == [["100"], [{}], ["1"]]
    assert bed.done == [1, 2]
    assert not any(is_last for is_last, _ in bed.pieces(1))


def test_nobody_is_kept_alive_for_a_front_process_that_is_gone() -> None:
    bed = Bed(counting)

    def leave() -> list[Batch]:
        bed.heard.is_gone = True
        return []

    bed.coming = {1: leave}
    bed.pipeline.submit(bed.batch(1, b"1000000"))

    assert len(bed.steps) == 1


def test_an_error_is_that_of_all_who_are_alive() -> None:
    def handler(rows: list[Any], context: Context) -> list[str]:
        if "0" in rows:
            raise ValueError("nothing left")
        return counting(rows, context)

    bed = Bed(handler)
    bed.coming = {1: lambda: [bed.batch(2, b"0")]}
    bed.pipeline.submit(bed.batch(1, b"9"))

    assert [told[0] for told in bed.pieces(1)] == [False, True]
    assert all("nothing left" in str(bed.pieces(number)[-1][1]) for number in (1, 2))
    assert sorted(bed.done) == [1, 2]
    assert len(bed.program.context.requests) == 0  # type: ignore[attr-defined]  # a Context
    bed.pipeline.submit(bed.batch(3, b"1"))
    assert bed.pieces(3) == [(True, b"0;")]


def test_too_few_results_fail_all() -> None:
    bed = Bed(lambda rows, _: ["one"])
    bed.coming = {0: lambda: [bed.batch(2, b"b")]}
    bed.pipeline.submit(bed.batch(1, b"a"))

    assert bed.heard.results(1, 1) == bed.heard.results(2, 1)
    (failure,) = bed.heard.results(1, 1)
    assert isinstance(failure, Failure) and "gave 1 results for 2 requests" in failure.message


def test_an_answer_over_the_limit_fails_alone() -> None:
    bed = Bed(lambda rows, _: ["x" * int(row) for row in rows], limit=10)
    bed.coming = {0: lambda: [bed.batch(2, b"5")]}
    bed.pipeline.submit(bed.batch(1, b"50"))

    (failure,) = bed.heard.results(1, 1)
    assert isinstance(failure, Failure) and "over the limit of 10" in failure.message
    assert bed.heard.results(2, 1) == [b"xxxxx"]


def test_a_value_that_is_an_exception_fails_alone() -> None:
    bed = Bed(lambda rows, _: [InvalidInput("not this") if row == "bad" else "fine" for row in rows])
    bed.coming = {0: lambda: [bed.batch(2, b"good")]}
    bed.pipeline.submit(bed.batch(1, b"bad"))

    assert [type(result) for result in bed.heard.results(1, 1)] == [Failure]
    assert bed.heard.results(2, 1) == [b"fine"]


def test_what_cannot_be_read_fails_alone() -> None:
    bed = Bed(lambda rows, _: [str(row) for row in rows])
    bed.coming = {0: lambda: [batch(2, [b"[1]"], bed.heard, "application/json")]}
    bed.pipeline.submit(batch(1, [b"[", b"3"], bed.heard, "application/json"))

    broken, whole = bed.heard.results(1, 2)
    assert isinstance(broken, Failure) and broken.kind == "input"
    assert whole == b"3"
    assert bed.heard.results(2, 1) == [b"[1]"]


def test_what_cannot_be_read_for_a_reason_of_ours_hurts_nobody_else() -> None:
    bed = Bed(counting)
    broken = bed.batch(2, b"1")
    bed.coming = {1: lambda: [broken, bed.batch(3, b"1")]}
    read = bed.program.read

    def reading(items: Any, data: Any, arena: Any) -> list[Any]:
        if data is broken.data:
            raise OSError("no memory there")
        return read(items, data, arena)

    made = Program("m", bed.program.stages, reading, bed.program.context, False)
    Continuous(made, None, bed._done, bed._arrivals).submit(bed.batch(1, b"3"))

    (failure,) = bed.heard.results(2, 1)
    assert isinstance(failure, Failure) and "no memory there" in failure.message
    assert bed.pieces(1)[-1] == (True, b"0;")
    assert bed.pieces(3) == [(True, b"0;")]


def test_pieces_may_be_sent_in_the_middle_of_a_step() -> None:
    def handler(rows: list[Any], context: Context) -> list[str]:
        context.send(["so " if row == "a" else None for row in rows])
        return [row.upper() for row in rows]

    bed = Bed(handler)
    bed.coming = {0: lambda: [bed.batch(2, b"b")]}
    bed.pipeline.submit(bed.batch(1, b"a"))

    assert bed.pieces(1) == [(False, b"so "), (True, b"A")]
    assert bed.heard.results(2, 1) == [b"B"]


def test_a_batch_ends_with_the_last_of_its_requests() -> None:
    bed = Bed(counting)
    bed.pipeline.submit(bed.batch(1, b"1", b"3", b"2"))

    assert bed.steps == [["1", "3", "2"], [{}, {}], [{}]]
    assert bed.done == [1]
    assert [message for message, _ in bed.heard.frames if isinstance(message, Ended)] == bed.heard.ends


# -- criteria ----------------------------------------------------------------------------------------------------------


class Answer:
    def __init__(self) -> None:
        self.headers: dict[str, str] = {}

    def add_response_property(self, key: str, value: str) -> None:
        self.headers[key] = value


@pytest.mark.parametrize(
    ("said", "headers"),
    [
        (True, {"ts_stream_next": "false"}),
        (1, {"ts_stream_next": "false"}),
        (False, {"ts_stream_next": "true"}),
        (0, {"ts_stream_next": "true"}),
        (None, {}),
    ],
)
def test_a_criterion_says_whether_a_piece_is_the_last(said: Any, headers: dict[str, str]) -> None:
    answer = Answer()

    assert judge([lambda result: said], ["piece"], [answer])
    assert answer.headers == headers


def test_each_criterion_is_given_the_result_of_its_row() -> None:
    rows = [Answer(), Answer()]
    judge([lambda result: result == "end"] * 2, ["end", "more"], rows)

    assert [row.headers["ts_stream_next"] for row in rows] == ["false", "true"]


@pytest.mark.parametrize(("criteria", "results"), [(None, ["a"]), ([], ["a"]), ([lambda _: True], "a")])
def test_without_criteria_or_results_nothing_is_judged(criteria: Any, results: Any) -> None:
    assert not judge(criteria, results, [Answer()])


def test_too_few_criteria_are_an_error() -> None:
    with pytest.raises(HandlerFailed) as raised:
        judge([lambda _: True], ["a", "b"], [Answer(), Answer()])

    assert "1 entries for 2 requests" in raised.value.traceback


def test_a_program_of_several_stages_cannot_be_joined() -> None:
    stage = Stage("inference", "m", list, gives_rows=True)
    base = program(lambda items: items)

    with pytest.raises(ValueError):
        Continuous(Program("m", (stage, stage), base.read, base.context, False), None, lambda _: None, list)

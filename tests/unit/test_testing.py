import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.core.adaptive import Adaptive
from shoal.core.batcher import Batcher
from shoal.core.policy import Fixed, Policy
from shoal.core.queue import RequestQueue
from shoal.core.request import Request, State
from shoal.core.scheduler import Scheduler
from shoal.errors import ConfigError, HandlerFailed, InvalidInput, LoadFailed
from shoal.payload import Payload, Result
from shoal.telemetry import ModelStats
from shoal.testing import Answers, FakeAlarm, FakeClock, StubInstance, run_handler

ECHO = Path(__file__).parents[2] / "examples" / "echo.py"


class Upper(shoal.Handler):
    def decode(self, item: Any) -> str:
        return str(item.upper())

    def inference(self, data: list[str]) -> list[str]:
        return data


class Bench:
    """A scheduler with one stub and time that stands still."""

    def __init__(self, policy: Policy, places: int = 1) -> None:
        self.clock = FakeClock()
        self.alarm = FakeAlarm(self.clock)
        self.answers = Answers()
        self.scheduler = Scheduler(Batcher(RequestQueue("m", 10), policy), self.alarm, ModelStats("m", "1"))
        self.alarm.connect(self.scheduler.feed)
        self.stub = StubInstance(self.scheduler, self.clock, places=places)
        self.scheduler.join(self.stub)

    def offer(self, **facts: Any) -> Request:
        request = Request(Payload(()), self.answers, self.clock.now(), **facts)
        self.scheduler.offer(request, self.clock.now())
        self.alarm.settle()
        return request


# -- fakes ---------------------------------------------------------------------------------------------------------


def test_time_stands_still_until_it_is_told_and_never_goes_back() -> None:
    clock = FakeClock(5.0)
    assert clock.now() == clock.now() == 5.0
    clock.advance(1.5)
    assert clock.now() == 6.5
    with pytest.raises(ValueError, match="time does not go back"):
        clock.advance(-1)


def test_a_hold_can_be_watched_without_waiting() -> None:
    bench = Bench(Fixed(8, 0.005))
    request = bench.offer()
    assert (bench.stub.held, bench.alarm.time) == ([], 0.005)
    bench.clock.advance(0.004)
    bench.alarm.settle()
    assert not bench.stub.held
    bench.clock.advance(0.001)
    bench.alarm.settle()
    (batch,) = bench.stub.held
    assert (list(batch.requests), batch.reason, bench.alarm.is_due) == ([request], "delay", False)


def test_a_stub_gives_each_request_what_the_test_says() -> None:
    bench = Bench(Adaptive())
    first = bench.offer()
    second, third = bench.offer(), bench.offer()
    bench.stub.finish()
    bench.stub.finish([b"two", HandlerFailed("three")], seconds=0.5)
    ((one,), (two,), (three,)) = map(bench.answers.of, (first, second, third))
    assert isinstance(one, Result) and one.body == b""
    assert isinstance(two, Result) and two.body == b"two"
    assert isinstance(three, HandlerFailed)
    assert (second.state, third.state) == (State.ANSWERED, State.FAILED)


def test_a_stub_that_says_too_little_fails_the_rest() -> None:
    bench = Bench(Adaptive())
    request = bench.offer()
    batch = bench.stub.finish([], seconds=0.25)
    assert batch.stages is not None and batch.stages.inference == 0.25
    assert "no outcome" in str(bench.answers.of(request)[0])


def test_a_stub_remembers_who_left() -> None:
    bench = Bench(Adaptive())
    request = bench.offer()
    bench.scheduler.withdraw(request, bench.clock.now())
    assert bench.stub.cancelled == [(bench.stub.held[0], 0)]
    assert bench.answers.of(request) == []


def test_a_stub_can_die_and_another_runs_what_it_held() -> None:
    bench = Bench(Adaptive())
    request = bench.offer()
    bench.stub.die()
    other = StubInstance(bench.scheduler, bench.clock, "other")
    bench.scheduler.join(other)
    bench.alarm.settle()
    other.finish([b"again"])
    (answer,) = bench.answers.of(request)
    assert isinstance(answer, Result) and answer.body == b"again"


# -- run_handler ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [Upper, Upper(), Path(__file__).parents[1] / "models" / "staged.py"])
def test_a_handler_runs_whatever_form_it_has(target: object) -> None:
    results = run_handler(target, ["a", "b"])
    assert [result.upper() for result in results] == ["A", "B"]


@pytest.mark.parametrize("item", [b"\x00\xff", "text", {"a": [1, None]}, [], 1.5, None, ""])
def test_items_and_results_travel_as_they_would_to_a_client(item: object) -> None:
    assert run_handler(ECHO, [item]) == [item]


def test_an_item_that_fails_has_its_error_in_its_place() -> None:
    first, second, third = run_handler(Upper, ["a", 7, "c"])
    assert (first, third) == ("A", "C")
    assert isinstance(second, HandlerFailed) and "no attribute 'upper'" in str(second)
    assert "in decode" in second.traceback


def test_an_input_that_the_handler_refuses_is_an_invalid_input() -> None:
    def check(items: list[Any]) -> list[Any]:
        return [InvalidInput("too small") if item < 3 else item for item in items]

    results = run_handler(check, [1, 5])
    assert isinstance(results[0], InvalidInput) and results[1] == 5


def test_a_batch_that_fails_is_every_items_error() -> None:
    results = run_handler(lambda items: [], [1, 2])
    assert [str(result) for result in results] == ["handler <lambda> gave 0 results for 2 requests"] * 2


def test_a_stream_is_the_list_of_its_pieces() -> None:
    def count(items: list[int]) -> Iterator[list[int]]:
        yield items
        yield [item + 1 for item in items]

    def spell(items: list[str]) -> list[Any]:
        return [iter_letters(item) for item in items]

    def iter_letters(word: str) -> Iterator[str]:
        yield from word

    assert run_handler(count, [1, 10]) == [[1, 2], [10, 11]]
    assert run_handler(spell, ["ab", "", "c"]) == [["a", "b"], [], ["c"]]


def test_no_items_are_no_results() -> None:
    assert run_handler(ECHO, []) == []


def test_settings_reach_the_handler_and_unknown_ones_are_refused() -> None:
    class Named:
        def initialize(self, context: shoal.Context) -> None:
            self.word = context.parameters["word"] + os.environ["SHOAL_TEST_MARK"]

        def inference(self, data: list[Any]) -> list[str]:
            return [self.word for _ in data]

    assert run_handler(Named, [1], parameters={"word": "x"}, environment={"SHOAL_TEST_MARK": "y"}) == ["xy"]
    assert "SHOAL_TEST_MARK" not in os.environ
    with pytest.raises(ConfigError, match="did you mean 'parameters'"):
        run_handler(Named, [1], parameter={})


def test_a_folder_is_loaded_and_this_process_is_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("hello")
    (tmp_path / "helper.py").write_text("from pathlib import Path\nWORDS = Path('words.txt').read_text()\n")
    (tmp_path / "model.py").write_text("import helper\ndef predict(items): return [helper.WORDS for _ in items]\n")
    before = (os.getcwd(), list(sys.path), dict(os.environ), {name for name in sys.modules if "shoal_model" in name})
    assert run_handler(tmp_path, [1, 2]) == ["hello", "hello"]
    assert (
        os.getcwd(),
        list(sys.path),
        dict(os.environ),
        {name for name in sys.modules if "shoal_model" in name},
    ) == before
    sys.modules.pop("helper", None)


def test_a_handler_that_cannot_be_loaded_says_why(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def predict(items:\n")
    with pytest.raises(LoadFailed, match=r"broken.py line 1"):
        run_handler(tmp_path / "broken.py", [1])

import signal
import threading
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from shoal.embedded.batched import Batched, batched
from shoal.errors import ConfigError, DeadlineExceeded, HandlerFailed, QueueFull
from tests.unit.embedded.gates import PATIENCE, Caller, Gated, eventually, wait_for_queue

Numbers = Batched[int, int]


@pytest.fixture
def gated() -> Gated:
    return Gated()


def start(gated: Gated, **settings: Any) -> tuple[Numbers, Caller]:
    """A function whose only worker is busy with item 0."""
    double: Numbers = batched(**settings)(gated.double)
    first = Caller(double, 0)
    gated.wait_inside()
    return double, first


def fail_on(function: Callable[[list[int]], Any], *items: int) -> list[Any]:
    """How calls end that are all in one batch."""
    together = batched(batch_size=len(items), max_batch_delay=PATIENCE * 1000)(function)
    callers = [Caller(together, item) for item in items]
    ended = [caller.result() for caller in callers]
    assert [caller.has_raised for caller in callers] == [isinstance(result, BaseException) for result in ended]
    together.close()
    return ended


def test_each_of_many_threads_gets_its_own_result() -> None:
    sizes = []

    @batched
    def double(items: list[int]) -> list[int]:
        sizes.append(len(items))
        return [2 * item for item in items]

    def call_often(first: int) -> list[int]:
        return [double(item) for item in range(first, first + 50)]

    callers = [Caller(call_often, 1000 * number) for number in range(32)]
    assert [caller.result() for caller in callers] == [
        [2 * item for item in range(1000 * number, 1000 * number + 50)] for number in range(32)
    ]
    assert sum(sizes) == 32 * 50
    assert double.describe()["answered"] == 32 * 50
    double.close()


def test_calls_that_come_while_a_batch_runs_leave_together(gated: Gated) -> None:
    double, first = start(gated)
    later = [Caller(double, item) for item in (1, 2, 3)]
    wait_for_queue(double, 3)
    gated.let(2)
    assert first.result() == 0
    assert [caller.result() for caller in later] == [2, 4, 6]
    assert gated.batches[0] == [0] and sorted(gated.batches[1]) == [1, 2, 3]
    double.close()


def test_two_workers_run_two_batches_at_once(gated: Gated) -> None:
    double, first = start(gated, workers=2)
    second = Caller(double, 1)
    gated.wait_inside()
    gated.let(2)
    assert (first.result(), second.result()) == (0, 2)
    double.close()


def test_what_the_function_raises_is_raised_for_every_caller_of_the_batch() -> None:
    raised = KeyError("no such bee")

    def look_up(items: list[int]) -> list[int]:
        raise raised

    ended = fail_on(look_up, 1, 2, 3)
    assert [error is raised for error in ended] == [True] * 3
    lines = "".join(traceback.format_exception(raised))
    assert lines.count("in look_up") == 1
    assert lines.count("in __call__") == 1, "the traceback of one caller, not of all before it"


def test_an_exception_in_an_items_place_is_that_callers_alone() -> None:
    def check(items: list[int]) -> list[int | Exception]:
        return [ValueError(f"{item} is odd") if item % 2 else item for item in items]

    first, second, third = fail_on(check, 2, 3, 4)
    assert (first, third) == (2, 4)
    assert isinstance(second, ValueError) and str(second) == "3 is odd"


@pytest.mark.parametrize("size", [1, 3])
def test_a_wrong_number_of_results_names_both_numbers(size: int) -> None:
    def lose(items: list[int]) -> list[int]:
        return [0] * size

    for ended in fail_on(lose, 1, 2):
        assert isinstance(ended, HandlerFailed)
        assert str(ended) == f"lose gave {size} results for 2 items"


@pytest.mark.parametrize(
    ("result", "what"),
    [(None, "None"), (7, "a value of type int"), ("ab", "a value of type str"), ({1: 2}, "a value of type dict")],
)
def test_what_is_no_list_is_refused_by_its_type(result: object, what: str) -> None:
    def confuse(items: list[int]) -> Any:
        return result

    (ended,) = fail_on(confuse, 1)
    assert isinstance(ended, HandlerFailed)
    assert str(ended) == f"confuse gave {what}; it must give a list with one result per item"


@pytest.mark.parametrize("kind", [tuple, iter])
def test_results_may_be_any_iterable(kind: Callable[[list[int]], Any]) -> None:
    assert sorted(fail_on(lambda items: kind(items), 1, 2)) == [1, 2]


def test_a_failing_batch_leaves_the_worker_alive() -> None:
    @batched
    def divide(items: list[int]) -> list[float]:
        return [1 / item for item in items]

    with pytest.raises(ZeroDivisionError):
        divide(0)
    with pytest.raises(SystemExit):
        fail = batched(lambda items: exit(3))
        fail(0)
    assert divide(2) == 0.5
    assert divide.describe()["failed"] == 1
    divide.close()


def test_a_full_queue_refuses_at_once(gated: Gated) -> None:
    double, first = start(gated, queue_size=1)
    second = Caller(double, 1)
    wait_for_queue(double, 1)
    with pytest.raises(QueueFull, match="'double' already has 1 requests waiting"):
        double(2)
    gated.let(2)
    assert (first.result(), second.result()) == (0, 2)
    assert double.describe()["refused"] == 1
    double.close()


def test_a_call_whose_time_is_over_while_it_waits_is_never_computed(gated: Gated) -> None:
    double, first = start(gated)
    with pytest.raises(DeadlineExceeded):
        double(1, timeout=0.01)
    assert double.describe()["waiting"] == 0
    gated.let()
    assert first.result() == 0
    double.close()
    assert gated.batches == [[0]]


def test_a_call_whose_time_is_over_while_it_runs_does_not_wait_on(gated: Gated) -> None:
    double: Numbers = batched(gated.double)
    with pytest.raises(DeadlineExceeded):
        double(1, timeout=0.05)
    gated.let()
    double.close()
    assert gated.batches in ([[1]], [])  # a slow machine may not have begun
    assert double.describe()["answered"] == 0, "a result that nobody waits for is discarded"


def test_an_interrupted_call_takes_its_item_out_of_the_queue(gated: Gated) -> None:
    double, first = start(gated)
    main = threading.main_thread().ident
    assert main is not None and main == threading.get_ident()

    def interrupt() -> None:
        wait_for_queue(double, 1)
        signal.pthread_kill(main, signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        double(1)
    assert (double.describe()["waiting"], double.describe()["withdrawn"]) == (0, 1)
    gated.let()
    assert first.result() == 0
    double.close()
    assert gated.batches == [[0]]


def test_a_fixed_batch_leaves_when_it_is_full(gated: Gated) -> None:
    double: Numbers = batched(batch_size=2, max_batch_delay=PATIENCE * 1000)(gated.double)
    callers = [Caller(double, item) for item in (1, 2)]
    gated.let()
    assert sorted(caller.result() for caller in callers) == [2, 4]
    assert double.describe()["reasons"] == {"full": 1}
    double.close()


def test_a_fixed_batch_leaves_when_its_delay_is_over() -> None:
    @batched(batch_size=100, max_batch_delay=1)
    def double(items: list[int]) -> list[int]:
        return [2 * item for item in items]

    assert [double(item) for item in range(5)] == [0, 2, 4, 6, 8]
    assert double.describe()["reasons"] == {"delay": 5}
    double.close()


def test_single_takes_one_item_at_a_time(gated: Gated) -> None:
    double, first = start(gated, policy="single")
    later = [Caller(double, item) for item in (1, 2)]
    wait_for_queue(double, 2)
    gated.let(3)
    assert [caller.result() for caller in (first, *later)] == [0, 2, 4]
    assert [len(batch) for batch in gated.batches] == [1, 1, 1]
    double.close()


def test_items_and_results_are_let_go_with_the_call() -> None:
    alive = threading.Semaphore(0)

    class Thing:
        def __del__(self) -> None:
            alive.release()

    @batched
    def swap(items: list[Thing]) -> list[Thing]:
        return [Thing() for _ in items]

    for _ in range(10):
        swap(Thing())
    eventually(lambda: alive._value == 20)
    swap.close()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"policy": "magic"}, "policy must be 'adaptive', 'fixed' or 'single', got 'magic'"),
        ({"max_batch_delay": 5}, "max_batch_delay means nothing without batch_size"),
        ({"batch_size": 8, "policy": "adaptive", "max_batch_delay": 5}, "max_batch_delay means nothing"),
        ({"batch_size": 8, "max_batch_delay": -1}, "max_batch_delay is in milliseconds"),
        ({"batch_size": -1}, "batch_size must be 0 or more, got -1"),
        ({"queue_size": 0}, "queue_size must be 1 or more, got 0"),
        ({"workers": 0}, "workers must be 1 or more, got 0"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        batched(**settings)


def test_a_batch_size_with_adaptive_is_its_limit() -> None:
    double: Numbers = batched(batch_size=7, policy="adaptive")(lambda items: items)
    policy = double.describe()["policy"]
    assert isinstance(policy, dict) and (policy["rule"], policy["batch_size_limit"]) == ("adaptive", 7)
    double.close()

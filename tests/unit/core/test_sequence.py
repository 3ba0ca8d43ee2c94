"""Sequences: who gets which slot of which instance, what runs together, and how a sequence ends."""

import math
from typing import Any

import pytest

from shoal.core.request import State
from shoal.core.slots import Slots
from shoal.errors import (
    DeadlineExceeded,
    InvalidInput,
    QueueFull,
    QueueTimeout,
    SequenceLost,
    Unavailable,
    Withdrawn,
    WorkerDied,
)
from shoal.payload import Result
from tests.support import Asked, ask
from tests.unit.core.executions import Server

START, END, ONLY = "s", "e", "se"


def direct(rows: int = 4, *, idle: float = 1.0, **settings: Any) -> dict[str, Any]:
    strategy = {"direct": settings} if settings else {}
    return {
        "max_batch_size": rows,
        "sequence_batching": {"max_sequence_idle_microseconds": int(idle * 1e6), **strategy},
    }


def oldest(rows: int = 4, **settings: Any) -> dict[str, Any]:
    return {"max_batch_size": rows, "sequence_batching": {"oldest": settings}}


def what(server: Server) -> list[tuple[str, list[tuple[int | str, int]]]]:
    """Of every execution its instance, and the id and slot of each request."""
    return [
        (execution.instance, [(_id(request), slot) for request, slot in zip(batch.requests, batch.slots, strict=True)])
        for execution, batch in zip(server.executions, server.batches, strict=True)
    ]


def _id(request: Any) -> int | str:
    assert request.sequence is not None
    id: int | str = request.sequence.id
    return id


def answered(*requests: Asked) -> bool:
    return all(request.ear.has_ended and isinstance(request.ear.last, Result) for request in requests)


# -- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("id", [0, ""])
def test_a_sequence_needs_an_id(id: int | str) -> None:
    server = Server(direct())
    with pytest.raises(InvalidInput, match="to model 'm' must specify a non-zero or non-empty correlation ID"):
        server.follow(id, START)
    with pytest.raises(InvalidInput, match="non-zero"):
        server.arrive()


def test_the_first_request_needs_the_start_flag() -> None:
    server = Server(direct())
    with pytest.raises(InvalidInput) as refused:
        server.follow(5)

    wanted = "must specify the START flag on the first request of the sequence"
    assert str(refused.value) == f"inference request for sequence 5 to model 'm' {wanted}"


def test_a_request_has_one_row() -> None:
    server = Server(direct())
    with pytest.raises(InvalidInput, match="must specify batch-size 1 due to requirements of sequence batcher"):
        server.arrive(2)


@pytest.mark.parametrize(("kind", "good", "bad"), [("TYPE_STRING", "a", 1), ("TYPE_UINT64", 1, "a")])
def test_ids_have_the_type_that_the_model_takes(kind: str, good: int | str, bad: int | str) -> None:
    control = {"name": "ID", "control": [{"kind": "CONTROL_SEQUENCE_CORRID", "data_type": kind}]}
    server = Server({"sequence_batching": {"control_input": [control]}})
    server.follow(good, START)
    with pytest.raises(InvalidInput, match="correlation ID"):
        server.follow(bad, START)


def test_the_models_queue_is_bounded() -> None:
    server = Server(direct(1))
    server.batcher.queue.limit = 2
    server.follow(1, START)
    server.follow(1)
    server.follow(2, START)
    with pytest.raises(QueueFull):
        server.follow(1)
    with pytest.raises(QueueFull):
        server.follow(3, START)
    server.finish()
    with pytest.raises(InvalidInput):
        server.follow(3)  # what was refused left nothing behind


# -- slots and rows --------------------------------------------------------------------------------------------------


def test_sequences_spread_over_the_instances_before_any_has_two() -> None:
    server = Server(direct(2), 2)
    for id in "abcd":
        server.follow(id, START)
    server.finish()

    assert what(server) == [("i0", [("a", 0)]), ("i1", [("b", 0)]), ("i0", [("c", 1)]), ("i1", [("d", 1)])]


def test_a_sequence_keeps_its_row_and_empty_rows_below_are_told() -> None:
    server = Server(direct(4))
    server.follow(1, START)
    server.follow(2, START)
    server.follow(3, START)
    server.finish()
    server.follow(3)
    server.finish()
    server.follow(3)
    server.follow(1)
    server.finish()

    slots = [batch.slots for batch in server.batches]
    assert slots == [(0,), (1, 2), (2,), (2,), (0,)]
    assert [batch.rows for batch in server.batches] == [1, 3, 3, 3, 1]


def test_rows_that_are_ready_run_together_in_the_order_of_their_slots() -> None:
    server = Server(direct(4))
    for id in (1, 2, 3):
        server.follow(id, START)
    for id in (3, 1, 2):
        server.follow(id)
    server.finish()

    assert [ids for _, ids in what(server)] == [[(1, 0)], [(1, 0), (2, 1), (3, 2)], [(2, 1), (3, 2)]]


def test_one_request_of_a_sequence_at_a_time_in_its_order() -> None:
    server = Server(direct(4))
    requests = [server.follow(7, START), server.follow(7), server.follow(7, END)]
    server.finish()

    assert [list(batch.requests) for batch in server.batches] == [[request] for request in requests]
    assert server.starts == [0.0, 0.2, 0.4]
    assert answered(*requests)


def test_the_end_gives_the_slot_to_the_first_of_the_backlog_with_all_it_has() -> None:
    server = Server(direct(1))
    server.follow("a", START)
    waiting = [server.follow("b", START), server.follow("b"), server.follow("c", START), server.follow("b", END)]
    server.until(0.5)
    assert not any(request.ear.heard for request in waiting)

    server.follow("a", END)
    server.finish()
    assert [ids for _, ids in what(server)] == [[(id, 0)] for id in "aabbbc"]
    assert answered(*waiting)


def test_an_instance_that_joins_takes_from_the_backlog() -> None:
    server = Server(direct(1), 0)
    server.follow("a", START)
    server.follow("b", START)
    assert server.executions == []
    server.join("i0")
    server.join("i1")

    assert what(server) == [("i0", [("a", 0)]), ("i1", [("b", 0)])]


def test_another_shape_runs_in_a_round_of_its_own() -> None:
    server = Server(direct(4))
    server.follow(9, START)
    server.follow(1, START, group="x")
    server.follow(2, START, group="y")
    server.follow(3, START, group="x")
    server.finish()

    assert [batch.slots for batch in server.batches] == [(0,), (1, 3), (2,)]


def test_the_oldest_says_which_shape_runs_so_nobody_waits_for_ever() -> None:
    server = Server(direct(2))
    server.follow(1, START, group="x")
    server.follow(2, START, group="y")
    server.until(0.1)
    for _ in range(3):
        server.follow(1, group="x")
    server.finish()

    assert [_id(batch.requests[0]) for batch in server.batches] == [1, 2, 1, 1, 1]


def test_a_start_within_a_live_sequence_goes_on_in_the_same_slot() -> None:
    server = Server(direct(4))
    server.follow(1, START)
    server.follow(2, START)
    server.follow(2)
    server.follow(2, START)
    server.follow(2, END)
    server.finish()

    assert [batch.slots for batch in server.batches] == [(0,), (1,), (1,), (1,), (1,)]


def test_a_start_behind_an_end_waits_for_the_sequence_before_it() -> None:
    server = Server(direct(2))
    server.follow(1, ONLY)
    again = server.follow(1, START)
    other = server.follow(2, START)
    assert [ids for _, ids in what(server)] == [[(1, 0)]]
    server.finish()

    assert [ids for _, ids in what(server)[1:]] == [[(1, 0), (2, 1)]]
    assert answered(again, other)


def test_an_id_is_not_used_twice_at_once_when_one_in_between_leaves() -> None:
    server = Server(direct(1), 2)
    server.follow(1, ONLY)
    between, last = server.follow(1, ONLY), server.follow(1, ONLY)
    server.scheduler.withdraw(between, server.now)
    server.settle()
    assert len(server.executions) == 1, "the other instance is free, but the first still runs"
    server.finish()
    assert answered(last)


def test_an_instance_that_waits_keeps_no_other_from_running() -> None:
    server = Server(direct(4, max_queue_delay_microseconds=500_000, minimum_slot_utilization=0.5), 2)
    for id in "abcd":
        server.follow(id, START)
    server.until(0.3)
    server.follow("a")
    server.follow("b")
    server.follow("d")

    assert what(server)[2:] == [("i1", [("b", 0), ("d", 1)])]
    assert server.starts[2:] == [0.3]


def test_with_utilization_and_delay_an_execution_waits_for_enough_rows() -> None:
    settings = direct(4, max_queue_delay_microseconds=300_000, minimum_slot_utilization=0.5)
    server = Server(settings)
    server.follow(1, START)
    server.until(0.1)
    assert server.executions == []
    server.follow(2, START)
    assert server.starts == [0.1]

    server.until(0.4)
    server.follow(1)
    server.finish()
    assert server.starts == [0.1, 0.7]


@pytest.mark.parametrize("settings", [{"max_queue_delay_microseconds": 300_000}, {"minimum_slot_utilization": 1.0}])
def test_one_of_the_two_alone_makes_nothing_wait(settings: dict[str, Any]) -> None:
    server = Server(direct(4, **settings))
    server.follow(1, START)

    assert server.starts == [0.0]


# -- oldest ------------------------------------------------------------------------------------------------------------


def test_oldest_merges_by_age_and_says_where_state_is() -> None:
    server = Server(oldest(2, max_candidate_sequences=3))
    server.follow("a", START)
    for id in ("b", "c"):
        server.follow(id, START)
    server.follow("d", START)  # no candidate: in the backlog
    server.until(0.1)
    server.follow("c", END)
    server.until(0.11)
    server.follow("a")
    server.finish()

    assert [ids for _, ids in what(server)] == [[("a", 0)], [("b", 1), ("c", 2)], [("c", 2), ("a", 0)], [("d", 2)]]
    assert [batch.rows for batch in server.batches] == [1, 2, 2, 1]


def test_oldest_has_preferred_sizes_and_a_delay() -> None:
    settings = oldest(4, max_candidate_sequences=8, preferred_batch_size=[2], max_queue_delay_microseconds=500_000)
    server = Server(settings)
    for id in (1, 2, 3):
        server.follow(id, START)
    server.finish()

    assert [(began, len(rows)) for began, rows, _ in server.executions] == [(0.0, 2), (0.5, 1)]


def test_oldest_has_as_many_candidates_as_rows_unless_told() -> None:
    server = Server(oldest(2))
    for id in (1, 2, 3):
        server.follow(id, START)
    server.until(5.0)

    assert sorted(request.sequence.id for batch in server.batches for request in batch.requests) == [1, 2, 3]  # type: ignore[union-attr]
    assert server.starts == [0.0, 0.2, 1.2]  # the first was idle for a second


# -- how sequences end -----------------------------------------------------------------------------------------------


def test_an_idle_sequence_loses_its_slot_to_the_backlog() -> None:
    server = Server(direct(1, idle=0.7), took=0.2)
    server.follow("a", START)
    server.until(0.1)
    waits = server.follow("b", START)
    server.until(0.89)
    assert not waits.ear.heard
    server.until(2.0)

    assert server.starts == [0.0, 0.9]
    with pytest.raises(InvalidInput, match="START"):
        server.follow("a")


def test_a_request_in_time_keeps_the_sequence_alive() -> None:
    server = Server(direct(1, idle=0.7), took=0.2)
    server.follow("a", START)
    for time in (0.8, 1.6, 2.4):
        server.until(time)
        server.follow("a")
    server.until(3.31)
    with pytest.raises(InvalidInput, match="START"):
        server.follow("a")


def test_one_that_is_being_run_is_not_idle() -> None:
    server = Server(direct(1, idle=0.1), took=5.0)
    server.follow("a", START)
    server.until(3.0)
    server.follow("a", END)
    server.until(20.0)

    assert len(server.executions) == 2


def test_the_backlog_is_not_reaped_but_has_the_clients_time_out() -> None:
    server = Server(direct(1, idle=10.0))
    server.follow("a", START)
    patient = server.follow("b", START)
    hasty = [server.follow("c", START), server.follow("c", timeout=3.0), server.follow("c", timeout=4.0)]
    server.until(2.99)
    assert not any(request.ear.heard for request in hasty)
    server.until(3.0)
    for request in hasty:
        assert isinstance(request.ear.last, QueueTimeout)
        assert str(request.ear.last) == "timeout of the corresponding sequence has been expired"
    assert server.stats.expired == 3
    assert not patient.ear.heard
    with pytest.raises(InvalidInput, match="START"):
        server.follow("c")


def test_a_sequence_with_a_slot_has_no_time_out() -> None:
    server = Server(direct(1), took=1.0)
    requests = [server.follow("a", START, timeout=0.1), server.follow("a", timeout=0.1)]
    server.finish()

    assert answered(*requests)


def test_a_deadline_that_passes_breaks_the_sequence() -> None:
    server = Server(direct(1), took=1.0)
    running = server.follow("a", START)
    late = ask(arrived=0.0, deadline=0.5)
    late.sequence = running.sequence
    server.send(late)
    behind = server.follow("a", END)
    waits = server.follow("b", START)
    server.until(0.5)

    assert isinstance(late.ear.last, DeadlineExceeded)
    assert isinstance(behind.ear.last, SequenceLost)
    assert (server.stats.expired, server.stats.failed) == (1, 1)
    server.finish()
    assert answered(running, waits)


def test_a_request_that_is_withdrawn_cancels_its_sequence() -> None:
    server = Server(direct(1))
    running, second, third = server.follow("a", START), server.follow("a"), server.follow("a")
    other = server.follow("b", START)
    server.scheduler.withdraw(second, server.now)

    assert isinstance(third.ear.last, Withdrawn)
    assert (second.state, third.state, server.stats.withdrawn) == (State.WITHDRAWN, State.WITHDRAWN, 2)
    assert second.block.released == third.block.released == 1
    with pytest.raises(InvalidInput, match="START"):
        server.follow("a")
    server.finish()
    assert answered(running, other)


def test_withdrawing_the_one_that_runs_cancels_it_there_and_frees_the_slot_when_it_is_done() -> None:
    server = Server(direct(1))
    running = server.follow("a", START)
    again = server.follow("b", START)
    server.scheduler.withdraw(running, server.now)
    assert server.cancelled == [("i0", 0)]
    restarted = server.follow("a", START)
    assert len(server.executions) == 1
    server.until(0.3)
    assert len(server.executions) == 2
    server.follow("b", END)
    server.finish()

    assert answered(again, restarted)


def test_withdrawing_one_in_the_backlog_lets_the_next_one_go() -> None:
    server = Server(direct(4, max_queue_delay_microseconds=900_000, minimum_slot_utilization=1.0))
    server.batcher._slots.each = 1  # type: ignore[union-attr]
    server.kill("i0")
    server.join("i9")
    held = server.follow("a", START)
    behind = server.follow("b", START)
    server.scheduler.withdraw(held, server.now)
    server.settle()

    assert server.alarm.time == 0.9
    server.finish()
    assert answered(behind)


def test_a_dead_instance_takes_its_sequences_along_and_no_others() -> None:
    server = Server(direct(1), 2)
    lost = [server.follow("a", START), server.follow("a"), server.follow("a", END)]
    kept = [server.follow("b", START), server.follow("b", END)]
    waits = server.follow("c", ONLY)
    server.kill("i0")

    assert isinstance(lost[0].ear.last, WorkerDied)
    for request in lost[1:]:
        assert isinstance(request.ear.last, SequenceLost)
        assert "begin it again with the START flag" in str(request.ear.last)
    assert server.stats.failed == 3
    with pytest.raises(InvalidInput, match="START"):
        server.follow("a")
    again = server.follow("a", ONLY)
    server.finish()
    assert answered(*kept, waits, again)
    assert {execution.instance for execution in server.executions[2:]} == {"i1"}


def test_a_retired_instance_finishes_what_it_runs_and_loses_its_sequences() -> None:
    server = Server(direct(1), 2)
    running, behind = server.follow("a", START), server.follow("a")
    emptied: list[bool] = []
    server.scheduler.retire(server.runners["i0"], lambda: emptied.append(True))
    server.settle()
    again = server.follow("a", ONLY)
    assert isinstance(behind.ear.last, SequenceLost)
    assert len(server.executions) == 1, "the one before it still runs"
    server.finish()

    assert emptied == [True]
    assert answered(running, again)
    assert server.executions[1].instance == "i1"


def test_a_lost_request_can_be_withdrawn_before_it_is_told() -> None:
    server = Server(direct(1))
    server.follow("a", START)
    behind = server.follow("a")
    server.scheduler.leave(server.runners["i0"], 0.0, lambda batch: WorkerDied("gone"))
    server.running.clear()
    server.scheduler.withdraw(behind, server.now)
    server.feed()

    assert behind.state is State.WITHDRAWN
    assert server.scheduler.is_idle


def test_what_waits_can_be_failed_as_a_whole() -> None:
    server = Server(direct(1))
    running, behind = server.follow("a", START), server.follow("a")
    backlog = server.follow("b", START)
    server.scheduler.fail_waiting(lambda: Unavailable("no workers"), 0.0)

    assert isinstance(behind.ear.last, Unavailable)
    assert isinstance(backlog.ear.last, Unavailable)
    assert len(server.batcher.queue) == 0
    with pytest.raises(InvalidInput, match="START"):
        server.follow("b")
    server.finish()
    assert answered(running)
    assert answered_now(server)


def answered_now(server: Server) -> bool:
    request = server.follow("c", ONLY)
    server.finish()
    return answered(request)


def test_an_error_of_the_model_does_not_end_the_sequence() -> None:
    server = Server(direct(1))
    server.follow("a", START)
    run = server.running.pop()
    server.now = 0.2
    run[2].stages = None
    server.scheduler.freed(run[1], run[2], server.now, server.now)
    server.scheduler.closed(run[2], server.now, lambda: WorkerDied("bad"))
    second = server.follow("a", END)
    server.finish()

    assert answered(second)


def test_it_tells_how_it_was_set() -> None:
    told = Server(direct(4, minimum_slot_utilization=0.5)).batcher.policy.describe()
    assert (told["strategy"], told["batch_size"], told["minimum_slot_utilization"]) == ("direct", 4, 0.5)
    assert Server(oldest(3)).batcher.policy.describe()["strategy"] == "oldest"
    assert Server(oldest(3)).batcher.policy.limit == 3


def test_no_request_of_a_sequence_is_ever_run_again() -> None:
    server = Server(direct(1))
    assert (server.scheduler.max_attempts, server.scheduler.isolates) == (1, False)
    with pytest.raises(AssertionError):
        server.batcher.give_back([ask()])


# -- slots ---------------------------------------------------------------------------------------------------------


def test_the_lowest_slot_goes_first_and_those_of_the_gone_are_forgotten() -> None:
    slots = Slots(2)
    assert slots.take() is None
    slots.join("a")
    slots.join("b")
    first, second, third = slots.take(), slots.take(), slots.take()
    assert first is not None and second is not None and third is not None
    assert [slot[::2] for slot in (first, second, third)] == [(0, "a"), (0, "b"), (1, "a")]
    slots.give_back(second)
    slots.leave("a")
    slots.give_back(first)
    slots.join("a")
    slots.give_back(third)

    assert [slot[::2] for slot in iter(slots.take, None)] == [(0, "b"), (0, "a"), (1, "b"), (1, "a")]
    assert math.isinf(Server(direct()).batcher.queue.next_deadline())

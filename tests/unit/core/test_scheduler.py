import math

import pytest

from shoal.core.batch import Batch
from shoal.core.policy import Fixed, Hold, Leave, Refuse, Single
from shoal.core.request import Outcome, Request, State
from shoal.errors import DeadlineExceeded, HandlerFailed, QueueFull, ResponseTimeout, Unavailable, WorkerDied
from shoal.payload import Result
from tests.support import Bench, Scripted, ask

# -- feeding -------------------------------------------------------------------------------------------------------


def test_offers_of_one_turn_leave_together_at_its_end() -> None:
    bench = Bench()
    instance = bench.join()
    bench.feed()
    bench.offer(*(requests := [ask(), ask(), ask()]))
    assert instance.batches == []
    assert bench.alarm.is_due
    bench.feed()

    assert list(instance.batches[0].requests) == requests
    assert instance.batches[0].instance == "a"


def test_a_batch_is_on_its_way_before_its_policy_hears_of_it() -> None:
    policy = Scripted()
    bench = Bench(policy)
    instance = bench.join()
    told_at_run: list[str] = []
    run = instance.run

    def watched(batch: Batch) -> None:
        told_at_run.extend(word for word, _ in policy.told)
        run(batch)

    instance.run = watched  # type: ignore[method-assign]
    bench.offer(ask())
    bench.feed()

    assert told_at_run == ["arrived"]
    assert [word for word, _ in policy.told] == ["arrived", "sent"]


def test_a_full_batch_does_not_wait_for_the_end_of_a_long_turn() -> None:
    bench = Bench(Fixed(2, 1.0))
    instance = bench.join()
    bench.feed()
    bench.offer(first := ask(), second := ask())
    assert instance.batches == []
    bench.offer(third := ask())

    assert [list(batch.requests) for batch in instance.batches] == [[first, second]]
    assert not third.has_ended
    assert len(bench.batcher.queue) == 1


def test_a_hold_that_ends_in_a_long_turn_ends_then() -> None:
    bench = Bench(Scripted(Hold(0.5, "scripted")))
    instance = bench.join()
    bench.offer(first := ask())
    bench.feed()
    bench.now = 0.4
    bench.offer(second := ask())
    assert instance.batches == []
    bench.now = 0.6
    bench.offer(third := ask())
    assert instance.batches == [], "whoever comes as it ends rides along"
    bench.offer(fourth := ask())

    assert [list(batch.requests) for batch in instance.batches] == [[first, second, third]]
    assert fourth.batch is None


def test_a_hold_that_is_over_makes_room_in_a_full_queue() -> None:
    bench = Bench(Scripted(Hold(0.5, "scripted")), limit=2)
    instance = bench.join()
    bench.offer(first := ask(), second := ask())
    bench.feed()
    with pytest.raises(QueueFull):
        bench.offer(ask())
    bench.now = 0.6
    bench.offer(third := ask())

    assert [list(batch.requests) for batch in instance.batches] == [[first, second]]
    assert third.batch is None
    assert not third.has_ended
    assert bench.alarm.is_due


def test_what_is_full_while_no_instance_is_free_is_looked_at_once() -> None:
    policy = Scripted(Leave(2, "scripted"))
    policy.enough = 2
    bench = Bench(policy)
    bench.join()
    bench.offer(ask(), ask())
    bench.feed()
    looks = []
    bench.scheduler.feed = lambda now: looks.append(now)  # type: ignore[method-assign]
    bench.offer(*(ask() for _ in range(20)))

    assert len(looks) == 1


def test_offers_keep_joining_while_no_instance_is_free() -> None:
    bench = Bench()
    instance = bench.join()
    bench.offer(ask())
    bench.feed()
    for _ in range(5):
        bench.offer(ask())
        bench.feed()
    assert len(instance.batches) == 1
    bench.finish(instance, b"first")

    assert len(instance.batches[0]) == 5


def test_an_instance_gets_its_next_batch_before_the_answers_of_the_last_are_heard() -> None:
    bench = Bench(Single())
    instance = bench.join()
    first, second = ask(), ask()
    order: list[str] = []

    def hear(request: Request, outcome: Outcome, is_last: bool) -> None:
        order.append("answered" if instance.batches else "answered before the next was sent")

    first.on_answer = hear
    bench.offer(first, second)
    bench.feed()
    bench.finish(instance, b"yes")

    assert order == ["answered"]


def test_every_idle_instance_gets_a_batch() -> None:
    bench = Bench(Single())
    instances = [bench.join(id) for id in "abc"]
    bench.offer(*(ask() for _ in range(4)))
    bench.feed()

    assert [len(instance.batches) for instance in instances] == [1, 1, 1]
    assert len(bench.batcher.queue) == 1
    assert bench.fleet.idle == 0


def test_requests_wait_for_the_first_instance() -> None:
    bench = Bench()
    bench.offer(request := ask())
    bench.feed()
    assert not request.has_ended
    instance = bench.join()
    assert bench.alarm.is_due
    bench.feed()

    assert list(instance.batches[0].requests) == [request]


def test_a_hold_is_looked_at_again_when_it_is_over() -> None:
    bench = Bench(Fixed(8, 0.5))
    instance = bench.join()
    bench.offer(ask())
    bench.feed(1.0)
    assert bench.alarm.time == 1.5
    bench.feed(1.5)

    assert len(instance.batches) == 1
    assert bench.alarm.time == math.inf


def test_a_deadline_is_looked_at_when_it_comes_even_with_nobody_free() -> None:
    bench = Bench()
    bench.offer(ask(), late := ask(deadline=3.0))
    bench.feed(1.0)
    assert bench.alarm.time == 3.0
    bench.feed(3.0)

    assert isinstance(late.ear.last, DeadlineExceeded)
    assert len(bench.batcher.queue) == 1
    assert bench.alarm.time == math.inf


def test_the_sooner_of_a_hold_and_a_deadline_wakes_it() -> None:
    bench = Bench(Scripted(Hold(9.0, "company"), Hold(2.0, "company")))
    bench.join()
    bench.offer(ask(deadline=3.0))
    bench.feed(1.0)
    assert bench.alarm.time == 3.0
    bench.feed(1.5)

    assert bench.alarm.time == 2.0


def test_a_request_past_its_deadline_never_reaches_a_worker() -> None:
    bench = Bench()
    instance = bench.join()
    bench.offer(late := ask(deadline=2.0), fresh := ask(deadline=2.5))
    bench.feed(2.0)  # the timer rang late

    assert list(instance.batches[0].requests) == [fresh]
    assert late.state is State.EXPIRED
    assert bench.stats.expired == 1


def test_one_whose_deadline_passes_while_others_run_never_reaches_a_worker() -> None:
    bench = Bench(Single())
    instance = bench.join()
    bench.offer(ask())
    bench.feed()
    bench.offer(late := ask(deadline=2.0))
    bench.feed()
    bench.now = 5.0
    bench.finish(instance, b"yes")

    assert instance.batches == []
    assert isinstance(late.ear.last, DeadlineExceeded)


def test_the_expired_are_counted_whoever_gave_them_up() -> None:
    lost = ask()
    bench = Bench(Scripted(Refuse([lost])))
    bench.join()
    bench.offer(lost, ask(deadline=1.0))
    bench.feed(2.0)

    assert bench.stats.expired == 2


# -- two places ----------------------------------------------------------------------------------------------------


def test_an_instance_with_two_places_is_sent_the_next_batch_ahead() -> None:
    bench = Bench(Scripted(ahead=0.0))
    instance = bench.join(places=2)
    bench.offer(ask())
    bench.feed()
    bench.offer(ask())
    bench.feed()
    bench.offer(ask())
    bench.feed()

    assert len(instance.batches) == 2
    assert len(bench.batcher.queue) == 1
    assert bench.scheduler.running == 2


def test_nothing_is_sent_ahead_while_another_instance_is_idle() -> None:
    bench = Bench(Scripted(Leave(1, "one"), Hold(5.0, "company"), ahead=0.0))
    busy, idle = bench.join("busy", places=2), bench.join("idle", places=2)
    bench.offer(ask())
    bench.feed()
    bench.offer(ask())
    bench.feed()

    assert [len(busy.batches), len(idle.batches)] == [1, 0]
    assert bench.alarm.time == 5.0


def test_the_time_to_send_ahead_wakes_it() -> None:
    bench = Bench(Scripted(ahead=4.0))
    instance = bench.join(places=2)
    bench.offer(ask())
    bench.feed()
    bench.offer(ask())
    bench.feed(1.0)
    assert bench.alarm.time == 4.0
    bench.feed(4.0)

    assert len(instance.batches) == 2


def test_an_instance_is_idle_again_only_when_it_holds_nothing() -> None:
    bench = Bench(Scripted(ahead=0.0))
    instance = bench.join(places=2)
    for _ in range(2):
        bench.offer(ask())
        bench.feed()
    bench.finish(instance, b"one")
    assert bench.fleet.idle == 0
    bench.finish(instance, b"two")

    assert bench.fleet.idle == 1


# -- ends ----------------------------------------------------------------------------------------------------------


def test_each_request_gets_its_own_answer_and_whoever_got_none_fails() -> None:
    bench = Bench()
    instance = bench.join()
    bench.offer(one := ask(), two := ask(), three := ask())
    bench.feed()
    bench.finish(instance, b"1", b"2", error=HandlerFailed("it raised"))

    assert (one.ear.bodies, two.ear.bodies) == ([b"1"], [b"2"])
    assert str(three.ear.last) == "it raised"
    assert (bench.stats.answered, bench.stats.failed) == (2, 1)


def test_a_full_queue_refuses() -> None:
    bench = Bench(limit=1)
    bench.offer(ask())

    with pytest.raises(QueueFull):
        bench.offer(ask())


def test_one_that_leaves_while_it_waits_is_never_sent() -> None:
    bench = Bench()
    bench.offer(gone := ask(), here := ask())
    bench.scheduler.withdraw(gone, 1.0)
    instance = bench.join()
    bench.feed()

    assert list(instance.batches[0].requests) == [here]
    assert instance.cancelled == []
    assert bench.stats.withdrawn == 1


def test_one_that_leaves_while_it_runs_is_cancelled_and_its_answer_unheard() -> None:
    bench = Bench()
    instance = bench.join()
    bench.offer(here := ask(), gone := ask())
    bench.feed()
    bench.scheduler.withdraw(gone, 1.0)
    bench.scheduler.withdraw(gone, 1.0)
    assert instance.cancelled == [(instance.batches[0], 1)]
    bench.finish(instance, b"heard", b"unheard")

    assert here.ear.bodies == [b"heard"]
    assert gone.ear.heard == []
    assert gone.block.released == 1
    assert bench.stats.withdrawn == 1


def test_one_that_leaves_after_its_answer_disturbs_nobody() -> None:
    bench = Bench()
    instance = bench.join()
    bench.offer(request := ask())
    bench.feed()
    bench.finish(instance, b"yes")
    bench.scheduler.withdraw(request, 1.0)

    assert bench.stats.withdrawn == 0
    assert instance.cancelled == []


def test_one_that_leaves_on_hearing_a_piece_hears_no_other() -> None:
    bench = Bench()
    instance = bench.join()
    request = ask()
    pieces: list[Outcome] = []

    def hear(request: Request, outcome: Outcome, is_last: bool) -> None:
        pieces.append(outcome)
        bench.scheduler.withdraw(request, 1.0)

    request.on_answer = hear
    bench.offer(request)
    bench.feed()
    batch = instance.batches[0]
    batch.deliver(0, Result(b"one"), False, 1.0)
    batch.deliver(0, Result(b"two"), False, 1.0)
    bench.finish(instance)

    assert len(pieces) == 1
    assert request.block.released == 1


# -- instances come and go -----------------------------------------------------------------------------------------


def test_what_a_dead_instance_held_runs_again_before_everybody_else() -> None:
    bench = Bench(Single())
    dying = bench.join("dying")
    bench.offer(first := ask(), second := ask())
    bench.feed()
    bench.kill(dying)
    healthy = bench.join("healthy")
    bench.feed()
    assert list(healthy.batches[0].requests) == [first]
    bench.finish(healthy, b"1")
    bench.finish(healthy, b"2")

    assert (first.ear.bodies, second.ear.bodies) == ([b"1"], [b"2"])


def test_two_batches_of_a_dead_instance_keep_their_order() -> None:
    bench = Bench(Scripted(ahead=0.0))
    dying = bench.join("dying", places=2)
    requests = [ask(), ask(), ask()]
    for request in requests:
        bench.offer(request)
        bench.feed()
    bench.kill(dying)
    healthy = bench.join("healthy")
    bench.feed()

    assert list(healthy.batches[0].requests) == requests


def test_a_request_that_kills_its_workers_fails_after_the_attempts_allowed() -> None:
    bench = Bench(max_attempts=2)
    bench.offer(poison := ask())
    for id in "ab":
        dying = bench.join(id)
        bench.feed()
        bench.kill(dying)

    assert isinstance(poison.ear.last, WorkerDied)
    assert poison.attempts == 2
    assert bench.stats.failed == 1


def test_a_hung_batch_fails_and_the_one_behind_it_runs_again() -> None:
    bench = Bench(Scripted(ahead=0.0))
    hanging = bench.join("hanging", places=2)
    bench.offer(stuck := ask())
    bench.feed()
    bench.offer(behind := ask())
    bench.feed()
    batch = hanging.batches[0]
    bench.scheduler.leave(hanging, 1.0, lambda batch: ResponseTimeout("too slow"), hung=batch)

    assert isinstance(stuck.ear.last, ResponseTimeout)
    assert behind.state is State.QUEUED


def test_an_instance_leaves_once() -> None:
    bench = Bench()
    instance = bench.join()
    bench.kill(instance)
    bench.kill(instance)

    assert (bench.fleet.size, bench.fleet.idle) == (0, 0)


def test_the_policy_hears_that_a_dead_instance_taught_nothing() -> None:
    policy = Scripted()
    bench = Bench(policy)
    instance = bench.join()
    bench.offer(ask())
    bench.feed()
    batch = instance.batches[0]
    bench.kill(instance)

    assert policy.told[-1] == ("done", batch)
    assert batch.stages is None


def test_one_that_left_a_dead_instance_does_not_run_again() -> None:
    bench = Bench()
    instance = bench.join()
    bench.offer(gone := ask())
    bench.feed()
    bench.scheduler.withdraw(gone, 1.0)
    bench.kill(instance)

    assert len(bench.batcher.queue) == 0
    assert gone.block.released == 1


def test_one_that_waits_again_after_a_death_can_leave() -> None:
    bench = Bench()
    instance = bench.join()
    bench.offer(gone := ask())
    bench.feed()
    bench.kill(instance)
    bench.scheduler.withdraw(gone, 1.0)

    assert instance.cancelled == []
    assert len(bench.batcher.queue) == 0
    assert gone.block.released == 1


def test_a_retiring_instance_finishes_what_it_holds_and_gets_nothing_more() -> None:
    bench = Bench(Single())
    retiring = bench.join("retiring", places=2)
    told: list[str] = []
    bench.offer(ask(), ask())
    bench.feed()
    bench.scheduler.retire(retiring, lambda: told.append("empty"))
    assert (bench.fleet.size, bench.fleet.idle) == (0, 0)
    assert told == []
    bench.finish(retiring, b"yes")
    bench.feed()

    assert told == ["empty"]
    assert retiring.batches == []
    assert len(bench.batcher.queue) == 1
    bench.kill(retiring)
    assert (bench.fleet.size, bench.fleet.idle) == (0, 0)


def test_a_retiring_instance_is_sent_nothing_ahead() -> None:
    bench = Bench(Scripted(ahead=0.0))
    retiring = bench.join("retiring", places=2)
    bench.offer(ask())
    bench.feed()
    bench.scheduler.retire(retiring, lambda: None)
    bench.offer(ask())
    bench.feed()

    assert len(retiring.batches) == 1
    assert len(bench.batcher.queue) == 1


def test_an_idle_instance_retires_at_once() -> None:
    bench = Bench()
    retiring, staying = bench.join("retiring"), bench.join("staying")
    told: list[str] = []
    bench.scheduler.retire(retiring, lambda: told.append("empty"))
    bench.offer(ask())
    bench.feed()

    assert told == ["empty"]
    assert (len(retiring.batches), len(staying.batches)) == (0, 1)
    assert (bench.fleet.size, bench.fleet.idle) == (1, 0)


def test_a_retiring_instance_that_dies_gives_its_batch_to_the_others() -> None:
    bench = Bench()
    retiring = bench.join("retiring")
    bench.offer(request := ask())
    bench.feed()
    bench.scheduler.retire(retiring, lambda: None)
    staying = bench.join("staying")
    bench.kill(retiring)
    bench.feed()

    assert list(staying.batches[0].requests) == [request]
    assert (bench.fleet.size, bench.fleet.idle) == (1, 0)


# -- idle ----------------------------------------------------------------------------------------------------------


def idle_of(bench: Bench) -> list[str]:
    told: list[str] = []
    bench.scheduler.when_idle(lambda: told.append("idle"))
    return told


def test_an_idle_scheduler_says_so_at_once_and_once() -> None:
    bench = Bench()
    told = idle_of(bench)
    bench.feed()

    assert told == ["idle"]


def test_everybody_who_waits_for_idleness_is_told() -> None:
    bench = Bench()
    bench.offer(request := ask())
    one, two = idle_of(bench), idle_of(bench)
    bench.scheduler.withdraw(request, 1.0)

    assert (one, two) == (["idle"], ["idle"])


def test_it_is_idle_when_the_last_batch_has_closed() -> None:
    bench = Bench()
    instance = bench.join()
    bench.offer(request := ask())
    bench.feed()
    told = idle_of(bench)
    bench.finish(instance, b"yes")

    assert told == ["idle"]
    assert request.has_ended


def test_it_is_not_idle_while_answers_are_being_handed_out() -> None:
    bench = Bench(Single())
    instance = bench.join()
    bench.offer(running := ask())
    bench.feed()
    bench.offer(ask(deadline=1.0))
    states: list[bool] = []
    bench.scheduler.when_idle(lambda: states.append(running.has_ended))
    bench.now = 2.0  # whoever waits expires as the instance is freed
    bench.finish(instance, b"yes")

    assert states == [True]


def test_it_is_idle_when_the_last_one_waiting_leaves() -> None:
    bench = Bench()
    bench.offer(request := ask())
    told = idle_of(bench)
    bench.scheduler.withdraw(request, 1.0)

    assert told == ["idle"]


def test_it_is_idle_when_the_last_one_waiting_expires() -> None:
    bench = Bench()
    bench.offer(ask(deadline=1.0))
    told = idle_of(bench)
    bench.feed(1.0)

    assert told == ["idle"]


def test_it_is_idle_when_the_last_batch_died_for_good() -> None:
    bench = Bench(max_attempts=1)
    instance = bench.join()
    bench.offer(ask())
    bench.feed()
    told = idle_of(bench)
    bench.kill(instance)
    assert bench.alarm.is_due
    bench.feed()

    assert told == ["idle"]


def test_it_is_idle_when_what_waited_was_ended() -> None:
    bench = Bench()
    bench.offer(request := ask())
    told = idle_of(bench)
    bench.scheduler.fail_waiting(lambda: Unavailable("no workers"), 1.0)

    assert isinstance(request.ear.last, Unavailable)
    assert told == ["idle"]
    assert bench.stats.failed == 1


def test_ending_what_waits_leaves_what_runs_alone() -> None:
    bench = Bench(Single())
    instance = bench.join()
    bench.offer(running := ask(), ask())
    bench.feed()
    told = idle_of(bench)
    bench.scheduler.fail_waiting(lambda: Unavailable("no workers"), 1.0)
    assert told == []
    bench.finish(instance, b"yes")

    assert running.ear.bodies == [b"yes"]
    assert told == ["idle"]

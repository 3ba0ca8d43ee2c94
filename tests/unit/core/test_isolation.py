import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.core.policy import Fixed
from shoal.core.request import State
from shoal.errors import DeadlineExceeded, HandlerFailed, ResponseTimeout, WorkerDied
from shoal.payload import Result
from tests.support import Asked, Bench, Scripted, StubInstance, ask


def run_until_idle(bench: Bench, guilty: set[int], requests: list[Asked], how: str) -> int:
    """Run batches; one with a guilty request in it raises, or takes its worker down. Gives the number of runs."""
    runs, made = 0, 0
    instance = bench.join("w0")
    bench.feed()
    while instance.batches:
        runs += 1
        assert runs < 500, "it never ends"
        batch = instance.batches[0]
        if not any(requests.index(request) in guilty for request in batch.requests):  # type: ignore[arg-type]
            bench.finish(instance, *[b"fine"] * len(batch))
        elif how == "raises":
            bench.finish(instance, error=HandlerFailed("bad item"))
        else:
            hung = batch if how == "hangs" else None
            bench.scheduler.leave(instance, bench.now, lambda _: WorkerDied("died"), hung=hung)
            made += 1
            instance = bench.join(f"w{made}")
        bench.feed()
    return runs


@pytest.mark.parametrize("how", ["raises", "crashes", "hangs"])
def test_one_guilty_of_32_hurts_nobody_else(how: str) -> None:
    bench = Bench(isolates=True)
    requests = [ask() for _ in range(32)]
    bench.offer(*requests)
    runs = run_until_idle(bench, {17}, requests, how)

    assert [request.ear.bodies for request in requests if request is not requests[17]] == [[b"fine"]] * 31
    assert isinstance(requests[17].ear.last, HandlerFailed if how == "raises" else WorkerDied)
    assert runs == 11
    assert (bench.stats.answered, bench.stats.failed) == (31, 1)


@given(
    count=st.integers(1, 40),
    guilty=st.sets(st.integers(0, 39)),
    how=st.sampled_from(["raises", "crashes", "hangs"]),
    attempts=st.integers(1, 4),
)
@settings(deadline=None)
def test_the_innocent_are_answered_the_guilty_fail_and_the_work_is_bounded(
    count: int, guilty: set[int], how: str, attempts: int
) -> None:
    bench = Bench(isolates=True, max_attempts=attempts)
    requests = [ask() for _ in range(count)]
    bench.offer(*requests)
    runs = run_until_idle(bench, guilty, requests, how)

    bad = {number for number in guilty if number < count}
    for number, request in enumerate(requests):
        assert (request.state is State.ANSWERED) is (number not in bad)
        assert request.block.released == 1
    halvings = math.ceil(math.log2(count)) if count > 1 else 0
    assert runs <= 1 + len(bad) * (2 * halvings + attempts)
    assert bench.scheduler.is_idle


def test_without_isolation_the_whole_batch_fails() -> None:
    bench = Bench(isolates=False)
    requests = [ask() for _ in range(4)]
    bench.offer(*requests)

    assert run_until_idle(bench, {1}, requests, "raises") == 1
    assert all(isinstance(request.ear.last, HandlerFailed) for request in requests)


def test_a_request_alone_in_its_batch_is_not_run_again_when_it_raises() -> None:
    bench = Bench(isolates=True)
    bench.offer(lone := ask())

    assert run_until_idle(bench, {0}, [lone], "raises") == 1
    assert bench.stats.reruns == 0


def test_those_who_were_answered_are_not_run_again() -> None:
    bench = Bench(isolates=True)
    instance = bench.join()
    bench.offer(*(requests := [ask() for _ in range(3)]))
    bench.feed()
    bench.finish(instance, b"1", b"2", error=HandlerFailed("the rest"))
    bench.feed()

    assert list(instance.batches[0].requests) == [requests[2]]
    assert bench.stats.reruns == 1


def test_one_of_whose_answer_a_piece_was_sent_is_not_run_again() -> None:
    bench = Bench(isolates=True)
    instance = bench.join()
    bench.offer(streamed := ask(), plain := ask())
    bench.feed()
    batch = instance.batches[0]
    from_piece = HandlerFailed("cut")
    batch.deliver(0, _piece(), False, 0.0)
    bench.finish(instance, error=from_piece)
    bench.feed()

    assert streamed.ear.last is from_piece
    assert list(instance.batches[0].requests) == [plain]


def _piece() -> Result:
    return Result(b"piece")


def test_a_fixed_delay_does_not_hold_what_runs_again() -> None:
    bench = Bench(Fixed(8, 60.0), isolates=True)
    instance = bench.join()
    bench.offer(*(ask() for _ in range(8)))
    bench.feed()
    bench.finish(instance, error=HandlerFailed("bad"))
    bench.feed()

    assert [len(batch) for batch in instance.batches] == [4]
    assert instance.batches[0].reason == "rerun"


def test_newcomers_do_not_mix_with_those_under_suspicion() -> None:
    bench = Bench(isolates=True)
    instance = bench.join()
    bench.offer(*(first := [ask(), ask()]))
    bench.feed()
    bench.finish(instance, error=HandlerFailed("bad"))
    bench.offer(newcomer := ask(arrived=1.0))
    bench.feed()
    seen = []
    while instance.batches:
        seen.append(list(instance.batches[0].requests))
        bench.finish(instance, *[b"x"] * len(seen[-1]))
        bench.feed()

    assert seen == [[first[0]], [first[1]], [newcomer]]


def test_nobody_is_put_behind_a_batch_under_suspicion() -> None:
    bench = Bench(Scripted(ahead=0.0), isolates=True)
    instance: StubInstance = bench.join(places=2)
    bench.offer(ask(), ask())
    bench.feed()
    bench.finish(instance, error=HandlerFailed("bad"))
    bench.offer(ask(arrived=1.0))
    bench.feed()

    assert [batch.reason for batch in instance.batches] == ["rerun"]


def test_a_batch_that_waited_behind_the_crash_stays_whole() -> None:
    bench = Bench(Scripted(ahead=0.0), isolates=True)
    dying = bench.join("dying", places=2)
    bench.offer(ask())
    bench.feed()
    bench.offer(*(behind := [ask(), ask()]))
    bench.feed()
    bench.kill(dying)
    healthy = bench.join("healthy")
    bench.feed()

    assert list(healthy.batches[0].requests) == behind
    assert healthy.batches[0].reason == "scripted"


def test_who_leaves_or_expires_while_waiting_to_run_again_is_gone() -> None:
    bench = Bench(isolates=True)
    instance = bench.join()
    left, late, patient = ask(), ask(deadline=5.0), ask()
    bench.offer(left, late, patient)
    bench.feed()
    dead = instance
    bench.scheduler.leave(dead, 0.0, lambda _: ResponseTimeout("slow"), hung=dead.batches[0])
    bench.scheduler.withdraw(left, 1.0)
    bench.feed(6.0)
    other = bench.join("b")
    bench.feed(6.0)

    assert left.state is State.WITHDRAWN
    assert isinstance(late.ear.last, DeadlineExceeded)
    assert [list(batch.requests) for batch in other.batches] == [[patient]]

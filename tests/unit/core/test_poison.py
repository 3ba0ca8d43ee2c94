import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core.poison import MOST, Poison, digest_of, size_of
from shoal.core.request import Request
from shoal.errors import Poisoned, ResponseTimeout, WorkerDied
from shoal.payload import Part, Payload
from tests.support import Bench, Ear, FakeBlock, Scripted


class Memory(FakeBlock):
    """Lent memory of a larger block, that counts how often it is looked at."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self._data = data + b"what lay there before"
        self.size = len(data)
        self.reads = 0

    @property
    def view(self) -> memoryview:
        assert not self.released, "read after it was given back"
        self.reads += 1
        return memoryview(self._data)


def carry(data: bytes | Memory, *, arrived: float = 0.0, name: str = "body", kind: str = "") -> Request:
    return Request(Payload([Part(name, kind, data)]), Ear(), arrived)


def crash_alone(bench: Bench, request: Request, *, hangs: bool = False) -> int:
    """Give a request to workers that die of it until it has ended; the number of deaths."""
    bench.offer(request)
    deaths = 0
    while not request.has_ended:
        instance = bench.join(f"w{bench.now}-{deaths}-{id(request)}")
        bench.feed()
        hung = instance.batches[0] if hangs else None
        bench.scheduler.leave(instance, bench.now, lambda _: WorkerDied("died"), hung=hung)
        deaths += 1
    return deaths


def test_content_that_took_down_its_workers_is_refused_at_once() -> None:
    bench = Bench(isolates=True, poison=Poison(3, 60.0))

    assert crash_alone(bench, carry(b"bad")) == 3
    with pytest.raises(Poisoned, match=r"took down its worker 3 times.*another 60 s"):
        bench.offer(carry(b"bad"))
    assert bench.stats.poisoned == 1


def test_other_content_of_the_same_size_is_taken() -> None:
    bench = Bench(isolates=True, poison=Poison(3, 60.0))
    crash_alone(bench, carry(b"bad"))
    bench.offer(carry(b"fin"), carry(b"bad", kind="text/plain"), carry(b"bad", name="other"))

    assert bench.stats.poisoned == 0


def test_it_is_taken_again_when_its_time_is_over() -> None:
    bench = Bench(isolates=True, poison=Poison(3, 60.0))
    crash_alone(bench, carry(b"bad"))
    bench.now = 59.9
    with pytest.raises(Poisoned):
        bench.offer(carry(b"bad", arrived=59.9))
    bench.now = 60.0
    bench.offer(carry(b"bad", arrived=60.0))

    assert len(bench.scheduler.poison) == 0


def test_fewer_deaths_than_the_limit_add_up_over_requests() -> None:
    bench = Bench(isolates=True, poison=Poison(3, 60.0), max_attempts=1)
    for _ in range(2):
        assert crash_alone(bench, carry(b"bad")) == 1
    crash_alone(bench, carry(b"bad"))

    with pytest.raises(Poisoned):
        bench.offer(carry(b"bad"))


def test_one_hang_of_a_lone_request_is_not_enough_and_three_are() -> None:
    bench = Bench(isolates=True, poison=Poison(3, 60.0))
    for _ in range(3):
        assert crash_alone(bench, carry(b"slow"), hangs=True) == 1

    with pytest.raises(Poisoned):
        bench.offer(carry(b"slow"))


def test_the_guilty_of_a_batch_is_remembered_and_its_neighbours_are_not() -> None:
    bench = Bench(isolates=True, poison=Poison(3, 60.0))
    bodies = [b"%02d" % number for number in range(8)]
    requests = [carry(body) for body in bodies]
    bench.offer(*requests)
    instance, made = bench.join("w0"), 0
    bench.feed()
    while instance.batches:
        if requests[5] in instance.batches[0].requests:
            bench.scheduler.leave(instance, 0.0, lambda _: WorkerDied("died"))
            made += 1
            instance = bench.join(f"w{made}")
        else:
            bench.finish(instance, *[b"x"] * len(instance.batches[0]))
        bench.feed()
    for number, body in enumerate(bodies):
        if number == 5:
            with pytest.raises(Poisoned):
                bench.offer(carry(body))
        else:
            bench.offer(carry(body))


def test_a_request_behind_the_one_that_crashed_is_not_blamed() -> None:
    bench = Bench(Scripted(ahead=0.0), isolates=True, poison=Poison(1, 60.0), max_attempts=1)
    dying = bench.join(places=2)
    bench.offer(first := carry(b"first"))
    bench.feed()
    bench.offer(behind := carry(b"other"))
    bench.feed()
    assert len(dying.batches) == 2
    bench.scheduler.leave(dying, 0.0, lambda _: WorkerDied("died"))

    assert first.has_ended and behind.has_ended
    with pytest.raises(Poisoned):
        bench.offer(carry(b"first"))
    bench.offer(carry(b"other"))


def test_where_nobody_is_isolated_nobody_of_a_crashed_batch_is_blamed() -> None:
    bench = Bench(isolates=False, poison=Poison(1, 60.0), max_attempts=1)
    instance = bench.join()
    bench.offer(carry(b"one"), carry(b"two"))
    bench.feed()
    bench.scheduler.leave(instance, 0.0, lambda _: WorkerDied("died"))

    assert len(bench.scheduler.poison) == 0


def test_a_request_that_only_raised_is_not_remembered() -> None:
    bench = Bench(isolates=True, poison=Poison(1, 60.0))
    instance = bench.join()
    bench.offer(carry(b"bad"))
    bench.feed()
    bench.finish(instance, error=ResponseTimeout("raised"))

    assert len(bench.scheduler.poison) == 0


def test_nothing_is_read_until_something_of_the_same_size_is_remembered() -> None:
    bench = Bench(isolates=True, poison=Poison(1, 60.0))
    first, second, third = Memory(b"12345"), Memory(b"12345"), Memory(b"123456")
    bench.offer(carry(first))
    assert first.reads == 0
    bench = Bench(isolates=True, poison=Poison(1, 60.0), max_attempts=1)
    crash_alone(bench, carry(b"12345"))
    bench.offer(carry(third))
    assert third.reads == 0
    with pytest.raises(Poisoned):
        bench.offer(carry(second))
    assert second.reads == 1
    assert second.released == 0, "whoever offered it gives it back"


def test_lent_memory_is_read_before_it_is_given_back_and_no_further_than_the_body() -> None:
    bench = Bench(isolates=True, poison=Poison(1, 60.0), max_attempts=1)
    crash_alone(bench, carry(Memory(b"12345")))

    with pytest.raises(Poisoned):
        bench.offer(carry(b"12345"))


def test_zero_deaths_as_the_limit_turn_it_off() -> None:
    bench = Bench(isolates=True, poison=Poison(0, 60.0))
    crash_alone(bench, carry(b"bad"))
    bench.offer(carry(b"bad"))

    assert len(bench.scheduler.poison) == 0


@given(st.lists(st.tuples(st.integers(0, 3 * MOST), st.integers(1, 4)), max_size=50), st.integers(1, 5))
def test_the_table_is_bounded_and_empties_itself(blames: list[tuple[int, int]], after: int) -> None:
    poison = Poison(after, 10.0)
    for number in range(MOST):
        poison.blame(b"%d" % number, number % 7, 1, 0.0)
    for time, (number, deaths) in enumerate(blames):
        poison.blame(b"%d" % number, number % 7, deaths, time / 100)
        assert len(poison) <= MOST
    poison.check(carry(b""), 100.0)

    assert len(poison) == 0
    assert poison._sizes == {}


def test_size_and_digest_tell_parts_apart() -> None:
    one = Payload([Part("a", "", b"xy"), Part("b", "", b"z")])
    other = Payload([Part("a", "", b"x"), Part("b", "", b"yz")])

    assert size_of(one) == size_of(other) == 3
    assert digest_of(one) != digest_of(other)

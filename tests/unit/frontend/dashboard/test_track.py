from shoal.frontend.dashboard.track import CELLS, KEPT, WAITING, WAITS, Track
from tests.support import Bench, StubInstance, ask
from tests.unit.frontend.api_fakes import Desk, join


class Bed:
    """A model with one instance, and the track of it."""

    def __init__(self) -> None:
        self.desk = Desk(limit=10_000)
        self.model = self.desk.add("m")
        self.instance: StubInstance = join(self.desk)
        self.bench: Bench = self.desk.benches["m", "1.0"]
        self.track = Track(self.model, 0.0)
        self.model.scheduler.stats.on_batch.append(self.track.hear)

    def run(self, *arrived: float, left: float, ended: float) -> None:
        self.bench.offer(*(ask(arrived=time) for time in arrived))
        self.bench.feed(left)
        self.bench.now = ended
        self.bench.finish(self.instance, *(b"x" for _ in arrived))


def test_a_cell_tells_what_happened_since_the_last_look() -> None:
    bed = Bed()
    bed.run(0.0, 0.1, left=0.2, ended=0.5)
    bed.track.look(1.0)
    bed.track.look(2.0)

    first, second = bed.track.cells
    assert (first.at, first.seconds, first.arrived, first.answered, first.batches, first.rows) == (1.0, 1.0, 2, 2, 1, 2)
    assert (first.busy, first.waiting, first.failed) == (0.3, 0, 0)
    assert first.p50 is not None and abs(first.p50 - 400) < 20  # from arrival to answer
    assert first.p99 is not None and abs(first.p99 - 500) < 25
    assert (second.arrived, second.batches, second.busy, second.p50) == (0, 0, 0.0, None)
    assert bed.track.sizes() == {2: 1}
    assert bed.track.reasons() == {"scripted": 1}


def test_two_looks_at_once_make_no_cell_without_time() -> None:
    bed = Bed()
    bed.run(0.0, left=0.0, ended=0.5)
    bed.track.look(1.0)
    bed.track.look(1.0001)

    assert [cell.seconds for cell in bed.track.cells] == [1.0, 0.001]  # by which a page divides


def test_a_long_batch_keeps_its_instance_busy_in_every_cell() -> None:
    bed = Bed()
    bed.bench.offer(ask())
    bed.bench.feed(0.5)
    bed.track.look(1.0)
    bed.track.look(2.0)
    bed.bench.now = 2.25
    bed.bench.finish(bed.instance, b"x")
    bed.track.look(3.0)

    assert [cell.busy for cell in bed.track.cells] == [0.5, 1.0, 0.25]


def test_batches_that_overlap_are_busy_time_once() -> None:
    bed = Bed()
    bed.instance.places = 2
    bed.bench.policy.opens = 0.0  # type: ignore[attr-defined]  # the scripted policy sends ahead
    bed.bench.offer(ask())
    bed.bench.feed(0.0)
    bed.bench.offer(ask())
    bed.bench.feed(0.2)
    assert len(bed.instance.batches) == 2
    bed.bench.now = 0.4
    bed.bench.finish(bed.instance, b"x")
    bed.bench.now = 0.6
    bed.bench.finish(bed.instance, b"y")
    bed.track.look(1.0)

    assert bed.track.cells[0].busy == 0.6


def test_what_ran_before_anybody_looked_does_not_count() -> None:
    bed = Bed()
    bed.bench.offer(ask())
    bed.bench.feed(0.0)
    late = Track(bed.model, 10.0)
    late.look(11.0)

    assert late.cells[0].busy == 1.0
    assert late.cells[0].arrived == 0  # it had arrived before


def test_arrivals_are_counted_whether_they_wait_run_or_ended() -> None:
    bed = Bed()
    bed.run(0.0, left=0.0, ended=0.1)
    bed.bench.offer(ask())
    bed.bench.feed(0.2)  # runs
    bed.bench.offer(ask(), ask())  # wait
    bed.track.look(1.0)
    assert (bed.track.cells[0].arrived, bed.track.cells[0].waiting) == (4, 2)

    bed.track.look(2.0)
    assert bed.track.cells[1].arrived == 0  # nobody is counted twice


def test_failures_are_told_apart_from_answers() -> None:
    bed = Bed()
    bed.bench.offer(ask(), ask())
    bed.bench.feed(0.0)
    bed.bench.finish(bed.instance, b"x")
    bed.track.look(1.0)

    assert (bed.track.cells[0].answered, bed.track.cells[0].failed) == (1, 1)


def test_batches_are_remembered_only_where_somebody_follows_them() -> None:
    bed = Bed()
    bed.run(0.0, left=0.1, ended=0.2)
    assert bed.track.ended_since(0, 10) == ([], 0)
    bed.track.viewers = 1
    bed.run(0.5, 0.55, left=0.6, ended=0.7)

    ((number, instance, reason, left, ended, rows, requests, failed, waits),), missed = bed.track.ended_since(0, 10)
    assert (number, instance, reason, left, ended, rows, requests, failed) == (2, "a", "scripted", 0.6, 0.7, 2, 2, 0)
    assert waits == [100.0, 50.0]
    assert missed == 0
    assert bed.track.ended_since(1, 10) == ([], 0)


def test_who_cannot_be_told_everything_is_told_how_much_is_missing() -> None:
    bed = Bed()
    bed.track.viewers = 1
    for _ in range(KEPT + 20):
        bed.run(0.0, left=0.0, ended=0.0)

    told, missed = bed.track.ended_since(0, 100)
    assert [batch.number for batch in told] == list(range(KEPT - 79, KEPT + 21))
    assert missed == KEPT + 20 - 100
    told, missed = bed.track.ended_since(0, 10_000)
    assert (len(told), missed) == (KEPT, 20)


def test_nothing_grows_without_end() -> None:
    bed = Bed()
    bed.track.viewers = 1
    bed.run(*[0.0] * 100, left=0.0, ended=0.0)
    assert len(bed.track.ended[0].waits) == WAITS
    bed.bench.offer(ask())
    bed.bench.feed()
    bed.bench.offer(*(ask(arrived=float(number)) for number in range(200)))
    assert bed.track.waiting() == [float(number) for number in range(WAITING)]
    for second in range(CELLS + 50):
        bed.track.look(float(second))
    assert len(bed.track.cells) == CELLS
    assert len(bed.track.cells_since(CELLS + 40)) == 10
    assert len(bed.track.cells_since(0)) == CELLS
    assert bed.track.sizes() == {}  # that batch is older than the oldest cell


def test_what_runs_now_is_told_with_its_waits() -> None:
    bed = Bed()
    bed.bench.offer(ask(arrived=1.0), ask(arrived=1.5))
    bed.bench.feed(2.0)

    assert [tuple(held) for held in bed.track.held()] == [(1, "a", "scripted", 2.0, 2, 2, [1000.0, 500.0])]

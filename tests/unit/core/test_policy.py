from benchmarks.policy_sim import EMPTY, FifoLane
from shoal.core.batch import Batch
from shoal.core.policy import Fixed, Fleet, Hold, Leave, Policy, Single
from shoal.core.request import Outcome, Request

FREE = Fleet(size=1, idle=1)
BUSY = Fleet(size=1, idle=0)


def ignore(request: Request, outcome: Outcome, is_last: bool) -> None: ...


def lane_for(policy: Policy, *arrivals: float, fleet: Fleet = FREE) -> FifoLane:
    lane = FifoLane()
    for moment in arrivals:
        join(policy, lane, moment, fleet)
    return lane


def join(policy: Policy, lane: FifoLane, now: float, fleet: Fleet = FREE) -> None:
    request = Request(EMPTY, ignore, now)
    lane.add(request)
    policy.arrived(request, lane, fleet, now)


def send(policy: Policy, lane: FifoLane, rows: int, now: float) -> Batch:
    batch = Batch(1, lane.pop(rows), "test", now)
    policy.sent(batch, BUSY, now)
    return batch


def test_the_delay_counts_from_when_the_instance_was_free_not_from_the_arrival() -> None:
    policy = Fixed(8, 0.050)
    lane = lane_for(policy, 0.0, 0.2, fleet=BUSY)  # both have waited long when an instance takes the first

    assert policy.decide(lane, FREE, 1.0) == Hold(1.050, "delay")
    assert policy.decide(lane, FREE, 1.049) == Hold(1.050, "delay")
    assert policy.decide(lane, FREE, 1.050) == Leave(8, "delay")


def test_an_arrival_during_the_delay_does_not_start_it_again() -> None:
    policy = Fixed(8, 0.050)
    lane = lane_for(policy, 0.0)
    policy.decide(lane, FREE, 0.0)
    join(policy, lane, 0.040)

    assert policy.decide(lane, FREE, 0.040) == Hold(0.050, "delay")


def test_a_full_batch_leaves_at_once() -> None:
    policy = Fixed(3, 10.0)
    lane = lane_for(policy, 0.0, 0.0)
    assert isinstance(policy.decide(lane, FREE, 0.0), Hold)
    join(policy, lane, 0.001)

    assert policy.decide(lane, FREE, 0.001) == Leave(3, "full")


def test_what_a_full_batch_left_behind_waits_a_whole_delay_of_its_own() -> None:
    policy = Fixed(2, 0.050)
    lane = lane_for(policy, 0.0)
    policy.decide(lane, FREE, 0.0)
    join(policy, lane, 0.030)
    join(policy, lane, 0.030)
    send(policy, lane, 2, 0.030)

    assert policy.decide(lane, FREE, 0.040) == Hold(0.090, "delay")


def test_a_first_request_that_was_withdrawn_leaves_no_delay_behind() -> None:
    policy = Fixed(8, 0.050)
    lane = lane_for(policy, 0.0)
    policy.decide(lane, FREE, 0.0)
    lane.pop(1)  # withdrawn
    join(policy, lane, 0.045)

    assert policy.decide(lane, FREE, 0.045) == Hold(0.095, "delay")


def test_batch_size_one_never_waits() -> None:
    policy = Fixed(1, 5.0)

    assert policy.decide(lane_for(policy, 0.0), FREE, 0.0) == Leave(1, "full")


def test_delay_zero_takes_at_most_one_extra_request() -> None:
    policy = Fixed(8, 0.0)
    lane = lane_for(policy, 0.0, 0.0, 0.0)

    assert policy.decide(lane, FREE, 0.0) == Leave(2, "delay")


def test_an_instance_has_one_batch_in_flight() -> None:
    policy = Fixed(8, 0.0)

    assert policy.ahead(lane_for(policy, 0.0), "0", 0.0) is None


def test_single_sends_every_request_alone() -> None:
    policy = Single()
    lane = lane_for(policy, 0.0, 0.0)

    assert policy.decide(lane, FREE, 0.0) == Leave(1, "single")


def test_a_first_request_of_another_group_does_not_start_the_delay_again() -> None:
    policy = Fixed(8, 0.050)
    lane = lane_for(policy, 0.0)
    assert policy.decide(lane, FREE, 0.0) == Hold(0.050, "delay")

    stranger, other = Request(EMPTY, ignore, 0.030, group="other"), FifoLane()
    other.add(stranger)
    policy.arrived(stranger, other, FREE, 0.030)

    assert policy.decide(lane, FREE, 0.030) == Hold(0.050, "delay")

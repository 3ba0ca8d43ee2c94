import math
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.policy_sim import EMPTY, Simulation, Workload, World, curve
from shoal.core.adaptive import Adaptive
from shoal.core.policy import Fixed
from shoal.core.request import Request
from shoal.core.returns import CONNECTIONS, HISTORY, SHARE, SILENCE, Returns, hold_for, hold_for_most
from tests.unit.core.adaptive_server import ignore


def answered(returns: Returns, clients: range, now: float) -> None:
    returns.answered([Request(EMPTY, ignore, now, client=client) for client in clients], 1.0, now)


def test_the_number_of_connections_remembered_is_bounded() -> None:
    returns = Returns()
    for start in range(0, 4 * CONNECTIONS, 1024):
        answered(returns, range(start, start + 1024), now=1.0)

    assert len(returns) <= CONNECTIONS + 1024


def test_the_number_of_those_who_only_asked_is_bounded() -> None:
    returns = Returns()
    for client in range(3 * CONNECTIONS):
        returns.arrived(client, 1.0, soon=0.01)

    assert len(returns) <= CONNECTIONS


def test_silent_connections_are_forgotten() -> None:
    returns = Returns()
    answered(returns, range(100), now=0.0)
    for turn in range(1, 4):
        answered(returns, range(1), now=turn * SILENCE)

    assert len(returns) == 1


def loop_of(returns: Returns, clients: range, rounds: int, now: float) -> float:
    """Clients that come straight back, so often; gives when."""
    for _ in range(rounds):
        now += 0.001
        for client in clients:
            returns.arrived(client, now, soon=0.01)
        now += 0.02
        answered(returns, clients, now)
    return now


def test_how_long_groups_usually_take_to_come_back() -> None:
    returns = Returns()
    assert returns.usual() == 0.0, "none has"

    now = loop_of(returns, range(10), 30, 0.0)
    assert returns.usual() == pytest.approx(0.001)

    returns.expire(now + 1.0, soon=0.01)
    assert returns.usual() == pytest.approx(0.001), "who stays away does not count"


def test_new_clients_that_come_straight_back_were_no_strangers() -> None:
    returns = Returns()
    now = loop_of(returns, range(10), 100, 0.0)
    assert returns.strangers < 1e-3

    now = loop_of(returns, range(10, 20), 1, now + 1.0)
    usual = 1.0 - 0.98**10  # share of the newcomers that are taken to come back
    assert returns.strangers == pytest.approx((1.0 - 0.98**10) * (1.0 - usual), rel=0.01)
    loop_of(returns, range(10, 20), 1, now)

    assert returns.strangers < 1e-3


def test_where_batches_overlap_new_clients_stay_strangers_until_they_are_known() -> None:
    returns = Returns()
    returns.is_overlapped = True
    now = loop_of(returns, range(10), 100, 0.0)
    loop_of(returns, range(10, 20), 2, now + 1.0)

    assert returns.strangers > 0.3


def test_who_comes_back_before_the_first_answer_is_a_stranger_until_it_came() -> None:
    returns = Returns()
    now = loop_of(returns, range(10), 100, 0.0)
    for _ in range(2):
        returns.arrived("both", now, soon=0.01)
    assert returns.strangers > 0.03
    returns.answered([Request(EMPTY, ignore, now, client="both")], 1.0, now)
    returns.arrived("both", now + 0.001, soon=0.01)

    assert returns.strangers == pytest.approx(0.98 * 0.02, rel=0.01)  # the second, which nobody could foresee


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from([0.001, 0.05])), max_size=80))
def test_strangers_are_those_whom_nobody_expected_and_who_did_not_come_straight_back(
    steps: list[tuple[int, float]],
) -> None:
    returns, now = Returns(), 0.0
    times: dict[int, list[float]] = {}  # by client: when it was answered
    quick: dict[int, bool] = {}  # whether the last came soon after the answer before it
    strange: list[float] = []
    firsts: dict[int, int] = {}
    newcomers = 0.0  # share of those who came straight back after their first answer
    for client, pause in steps:
        now += pause
        is_quick = client in times and now - times[client][-1] <= 0.01
        is_expected = is_quick and quick[client]
        is_second = client in times and len(times[client]) == 1
        strange.append(0.0 if is_expected or (is_second and is_quick) else 1.0 if client in times else 1.0 - newcomers)
        if is_second:
            newcomers += 0.02 * (is_quick - newcomers)
        if is_second and is_quick:
            strange[firsts[client]] = 0.0
        firsts.setdefault(client, len(strange) - 1)
        quick[client] = is_quick
        returns.arrived(client, now, soon=0.01)
        answered(returns, range(client, client + 1), now)
        times.setdefault(client, []).append(now)
    share = 1.0
    for one in strange:
        share += 0.02 * (one - share)

    assert returns.strangers == pytest.approx(share)


def test_a_hold_is_never_longer_than_its_share_of_the_saving() -> None:
    assert hold_for([0.010] * 32, apart=0.040, joint=0.030, riders=2, strangers=0.0).seconds == 0.0
    assert hold_for([0.007] * 32, apart=0.040, joint=0.030, riders=2, strangers=0.0).seconds == pytest.approx(0.008)


def test_a_saving_too_small_to_time_is_left_alone() -> None:
    assert hold_for([20e-6] * 32, apart=160e-6, joint=80e-6, riders=1, strangers=0.0).seconds == 0.0


def test_where_strangers_would_be_made_to_wait_a_small_gain_is_not_enough() -> None:
    assert hold_for([0.001] * 32, apart=0.040, joint=0.030, riders=2, strangers=1.0).seconds == 0.0
    assert hold_for([0.001] * 32, apart=0.040, joint=0.030, riders=2, strangers=0.0).seconds > 0.0
    assert hold_for([0.001] * 32, apart=0.040, joint=0.021, riders=2, strangers=1.0).seconds > 0.0


def test_groups_that_rarely_come_back_are_not_waited_for() -> None:
    assert hold_for([0.007] + [math.inf] * 31, apart=0.040, joint=0.030, riders=2, strangers=0.0).seconds == 0.0


def test_a_hold_that_gains_much_is_kept_although_some_clients_are_often_late() -> None:
    took = [0.001] * 7 + [math.inf] * 3

    assert hold_for(took, apart=0.0132, joint=0.0085, riders=5, strangers=0.1).seconds > 0.0
    assert hold_for(took, apart=0.0132, joint=0.0120, riders=5, strangers=0.1).seconds == 0.0


@pytest.mark.parametrize(("is_overlapped", "due"), [(False, 10), (True, 0)])
def test_after_a_long_ride_clients_may_be_longer_on_their_way(is_overlapped: bool, due: int) -> None:
    returns = Returns()
    returns.is_overlapped = is_overlapped
    now = loop_of(returns, range(10), 10, 0.0)
    returns.rode = 0.200

    returns.expire(now + 0.040, soon=0.01)
    assert returns.expected() == due
    returns.expire(now + 0.060, soon=0.01)
    assert returns.expected() == 0


def met_many(returns: Returns) -> float:
    """Loops have begun here before, so that newcomers are known to come straight back; gives when."""
    now = 0.0
    for start in range(1000, 1300, 50):
        now = loop_of(returns, range(start, start + 50), 3, now + 1.0)
        returns.expire(now + 1.0, soon=0.01)
    return now + 1.0


def test_newcomers_are_expected_back_where_newcomers_usually_come_straight_back() -> None:
    returns = Returns()
    loop_of(returns, range(20), 1, 0.0)
    assert returns.expected() == 0, "nobody knows yet"

    loop_of(returns, range(20, 40), 1, met_many(returns))
    assert returns.expected() == 20
    assert returns.strangers < 0.01


@pytest.mark.parametrize("regulars", [0, 10])
def test_newcomers_who_come_once_are_soon_not_expected_back(regulars: int) -> None:
    returns = Returns()
    now = met_many(returns)
    for turn in range(4):
        once = range(2000 + 20 * turn, 2020 + 20 * turn)
        now += 0.001
        for client in [*range(regulars), *once]:
            returns.arrived(client, now, soon=0.01)
        now += 0.02
        returns.answered([Request(EMPTY, ignore, now, client=client) for client in [*range(regulars), *once]], 1.0, now)
        if turn == 0:
            assert returns.expected() == regulars + 20

    assert returns.expected() == regulars
    assert returns.strangers > 0.2


def test_who_comes_late_after_a_first_answer_is_not_expected_back() -> None:
    returns = Returns()
    now = met_many(returns)
    for _ in range(2):
        for client in range(20):
            returns.arrived(client, now, soon=0.01)
        answered(returns, range(20), now + 0.02)
        now += 0.1

    assert returns.expected() == 0


def test_many_who_ride_apart_meet_where_enough_is_gained_and_else_stay_apart() -> None:
    returns = Returns()
    now = loop_of(returns, range(100), 40, 0.0)
    meeting = partial(returns.worth, 0.100, before=50, riders=50)

    assert meeting(joint=0.090, now=now) == pytest.approx(0.002)
    assert meeting(joint=0.098, now=now + 1000.0) == pytest.approx(0.0016), "it is forgotten, so it is tried"
    assert meeting(joint=0.098, now=now) == 0.0, "1 ms until all are back"
    assert meeting(before=4, riders=96, joint=0.098, now=now) == pytest.approx(0.0016), "they were left behind"
    returns.strangers = 0.02
    assert meeting(joint=0.090, now=now) == returns.worth(0.100, 0.090, 50)


def test_nothing_is_held_for_a_time_that_no_loop_can_tell() -> None:
    returns = Returns()
    now = 0.0
    for _ in range(40):
        now += 1e-6
        for client in range(100):
            returns.arrived(client, now, soon=0.01)
        now += 0.001
        answered(returns, range(100), now)
    for client in range(50):
        returns.arrived(client, now + 1e-6 * client, soon=0.01)

    assert returns.flows_until(saved=0.001, now=now + 50e-6) > 0.0
    assert returns.flows_until(saved=0.0001, now=now + 50e-6) == 0.0
    assert returns.worth(0.0011, 0.0010, 50, 50, now) == 0.0


@pytest.mark.parametrize(
    ("last", "is_overlapped", "seconds"), [(math.inf, False, 0.002), (0.006, False, 0.0), (math.inf, True, 0.0)]
)
def test_who_stays_away_for_good_is_not_late(last: float, is_overlapped: bool, seconds: float) -> None:
    returns = Returns()
    returns.is_overlapped = is_overlapped
    now = 0.0
    for number in range(HISTORY + 1):
        answered(returns, range(1), now)
        returns.arrived(0, now + (last if number == HISTORY and last < math.inf else 0.001), soon=0.01)
        now += 1.0
    if last == math.inf:
        answered(returns, range(1), now)
        returns.expire(now + 1.0, soon=0.01)
    returns.strangers = 0.0

    assert returns.worth(apart=0.0192, joint=0.0160, riders=1) == pytest.approx(seconds)


def test_who_comes_later_than_the_others_of_a_group_is_late() -> None:
    returns = Returns()
    now = loop_of(returns, range(10), HISTORY + 20, 0.0)
    assert returns.worth(apart=0.0192, joint=0.0160, riders=1) > 0.0
    for client in range(9):
        returns.arrived(client, now + 0.001, soon=0.01)
    returns.expire(now + 1.0, soon=0.01)

    assert returns.worth(apart=0.0192, joint=0.0160, riders=1) == 0.0
    assert returns.is_loop()


@pytest.mark.parametrize(("rows", "is_many"), [(0, True), (3, True), (8, False), (9, False), (10, False)])
def test_many_are_missing_while_more_are_than_a_hold_for_most_leaves_behind(rows: int, is_many: bool) -> None:
    returns = Returns()
    now = loop_of(returns, range(10), 3, 0.0)
    for client in range(rows):
        returns.arrived(client, now + 0.001, soon=0.01)

    assert returns.are_many_missing(rows) is is_many
    returns.is_overlapped = True
    assert not returns.are_many_missing(rows)


def test_many_clients_of_whom_a_few_are_late_ride_together_nevertheless() -> None:
    world = World(curve("dented"), Workload("late", 50), seed=4)
    ours = Simulation(world, Adaptive()).run(8000)
    fixed = Simulation(world, Fixed(64, 0.001)).run(8000)

    assert ours.throughput > 0.97 * fixed.throughput
    assert ours.p99 < 1.1 * fixed.p99


def test_where_all_come_back_in_time_nobody_is_left_behind() -> None:
    world = World(curve("h200"), Workload("closed", 20), seed=4)
    simulation = Simulation(world, Adaptive())
    simulation.run(4000)
    simulation.run(4000)

    whole = sum(rows == 20 for rows in simulation.batches[-100:])
    assert whole >= 95


def with_one_late(clients: int) -> Returns:
    returns = Returns()
    now = 0.0
    for _ in range(64):
        answered(returns, range(clients), now)
        for client in range(clients - 1):
            returns.arrived(client, now + 0.001, soon=0.1)
        returns.arrived(clients - 1, now + 0.012, soon=0.1)
        now += 0.06
    return returns


def test_one_late_client_of_many_is_left_behind() -> None:
    assert with_one_late(50).worth(apart=0.045, joint=0.025, riders=49) == pytest.approx(0.001)


def test_a_few_clients_are_waited_for_until_the_last() -> None:
    assert with_one_late(5).worth(apart=0.045, joint=0.025, riders=4) == pytest.approx(SHARE * 0.020)


def test_one_who_is_later_than_ever_is_waited_for_as_long_again() -> None:
    usual = [0.0006] * HISTORY

    assert hold_for(usual, apart=0.0105, joint=0.0055, riders=1, strangers=0.0).seconds == pytest.approx(0.0012)
    assert hold_for(usual, apart=0.0065, joint=0.0055, riders=1, strangers=0.0).seconds == pytest.approx(SHARE * 0.001)


def test_until_enough_groups_came_back_all_of_them_are_waited_for() -> None:
    returns = Returns()
    for number in range(HISTORY):
        answered(returns, range(50), 0.06 * number)
        for client in range(50):
            returns.arrived(client, 0.06 * number + (0.012 if client == 49 else 0.001), soon=0.1)

    assert returns.worth(apart=0.045, joint=0.025, riders=49) == pytest.approx(SHARE * 0.020)


def test_what_those_left_behind_do_not_save_counts() -> None:
    at_once = [0.001] * 4

    soon = hold_for_most([0.001, 0.001, 0.001, 0.002], at_once, apart=0.045, joint=0.025, strangers=0.0)
    late = hold_for_most([0.001, 0.001, 0.014, 0.015], [0.015] * 4, apart=0.045, joint=0.025, strangers=0.0)

    assert soon.seconds == 0.002
    assert late.seconds == 0.001
    assert soon.gain > late.gain > 0.0


def test_nobody_is_left_behind_where_that_saves_little() -> None:
    assert hold_for_most([0.001] * 4, [0.001] * 4, apart=0.041, joint=0.040, strangers=0.0).gain == 0.0


def test_for_most_of_them_too_nothing_is_held_that_an_event_loop_cannot_time() -> None:
    at_once = [20e-6] * 4

    assert hold_for_most(at_once, [math.inf] * 4, apart=160e-6, joint=80e-6, strangers=0.0).seconds == 0.0


def test_a_hold_that_somebody_is_missing_from_ends_with_a_timer_that_is_late() -> None:
    within = [0.001] * 4

    prompt = hold_for_most(within, [0.001] * 4, apart=0.045, joint=0.025, strangers=0.0)
    timed = hold_for_most(within, [math.inf] * 4, apart=0.045, joint=0.025, strangers=0.0)

    assert prompt.gain > timed.gain > 0.0

import math

import pytest

from benchmarks.policy_sim import EMPTY
from shoal.core.request import Request
from shoal.core.returns import CONNECTIONS, SILENCE, Returns, hold_for
from tests.unit.core.adaptive_server import ignore


def answered(returns: Returns, clients: range, now: float) -> None:
    returns.answered([Request(EMPTY, ignore, now, client=client) for client in clients], 1.0, now)


def test_the_number_of_connections_remembered_is_bounded() -> None:
    returns = Returns()
    for start in range(0, 4 * CONNECTIONS, 1024):
        answered(returns, range(start, start + 1024), now=1.0)

    assert len(returns) <= CONNECTIONS + 1024


def test_silent_connections_are_forgotten() -> None:
    returns = Returns()
    answered(returns, range(100), now=0.0)
    for turn in range(1, 4):
        answered(returns, range(1), now=turn * SILENCE)

    assert len(returns) == 1


def test_a_hold_is_never_longer_than_its_share_of_the_saving() -> None:
    assert hold_for([0.010] * 32, apart=0.040, joint=0.030, riders=2, strangers=0.0) == 0.0
    assert hold_for([0.007] * 32, apart=0.040, joint=0.030, riders=2, strangers=0.0) == pytest.approx(0.008)


def test_a_saving_too_small_to_time_is_left_alone() -> None:
    assert hold_for([20e-6] * 32, apart=160e-6, joint=80e-6, riders=1, strangers=0.0) == 0.0


def test_where_strangers_would_be_made_to_wait_a_small_gain_is_not_enough() -> None:
    assert hold_for([0.001] * 32, apart=0.040, joint=0.030, riders=2, strangers=1.0) == 0.0
    assert hold_for([0.001] * 32, apart=0.040, joint=0.030, riders=2, strangers=0.0) > 0.0
    assert hold_for([0.001] * 32, apart=0.040, joint=0.021, riders=2, strangers=1.0) > 0.0


def test_groups_that_rarely_come_back_are_not_waited_for() -> None:
    assert hold_for([0.007] + [math.inf] * 31, apart=0.040, joint=0.030, riders=2, strangers=0.0) == 0.0


def test_a_hold_that_gains_much_is_kept_although_some_clients_are_often_late() -> None:
    took = [0.001] * 7 + [math.inf] * 3

    assert hold_for(took, apart=0.0132, joint=0.0085, riders=5, strangers=0.1) > 0.0
    assert hold_for(took, apart=0.0132, joint=0.0120, riders=5, strangers=0.1) == 0.0

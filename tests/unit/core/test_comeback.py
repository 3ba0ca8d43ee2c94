import math

import pytest

from shoal.core.comeback import FORGOTTEN, LATELY, TICK, Comebacks, Group


def group_of(clients: int, since: float = 0.0, each: float = 1.0) -> Group:
    group = Group(since, each)
    group.clients = group.missing = clients
    return group


def test_clients_flow_until_a_pause_of_a_quarter_of_the_time_for_which_they_have() -> None:
    group = group_of(100)
    assert group.flows_until() == -math.inf, "nobody has come"
    for number in range(41):
        group.came(0.010 + 1e-4 * number)

    assert group.flows_until() == pytest.approx(0.015)
    assert group.rest() == pytest.approx(59e-4)


def test_a_pause_that_no_timer_can_tell_is_none() -> None:
    group = group_of(100)
    group.came(0.010)
    assert group.flows_until() == -math.inf, "one is no flow"
    group.came(0.0101)

    assert group.flows_until() == pytest.approx(0.0101 + TICK)


def test_who_come_at_once_do_not_flow() -> None:
    group = group_of(100)
    for _ in range(50):
        group.came(0.010)

    assert group.flows_until() == -math.inf
    assert group.rest() == 0.0


def note(
    comebacks: Comebacks, clients: int, since: float, took: float, *, each: float = 1.0, expired: float = 0.0
) -> None:
    """A group is back after so long, or as many of it as are ever expected."""
    group = group_of(clients, since, each)
    for _ in range(clients - 1 if expired else clients):
        group.came(since + took)
    comebacks.note(group, since + max(took, expired))


def test_how_long_groups_of_a_size_took_is_known_for_a_while() -> None:
    comebacks = Comebacks()
    assert comebacks.of(100, now=0.0) is None
    note(comebacks, 100, since=1.0, took=0.004)
    note(comebacks, 100, since=2.0, took=0.006)

    assert comebacks.of(100, now=3.0) == pytest.approx(0.005)
    assert comebacks.of(104, now=3.0) == pytest.approx(0.005), "a size close to it"
    assert comebacks.of(50, now=3.0) is None, "another size"
    assert comebacks.of(100, now=2.1 + FORGOTTEN) is None


def test_only_the_latest_groups_of_a_size_count() -> None:
    comebacks = Comebacks()
    for number in range(10 * LATELY):
        note(comebacks, 10, since=float(number), took=0.002 if number < 5 * LATELY else 0.006, each=10.0)
    assert comebacks.of(100, now=10.0 * LATELY) == pytest.approx(0.006, rel=0.02)

    later = 100.0 * FORGOTTEN
    note(comebacks, 100, since=later, took=0.001)
    assert comebacks.of(100, now=later + 1.0) == pytest.approx(0.001), "what is long ago does not"


def test_who_is_not_expected_any_more_was_not_waited_for_so_long() -> None:
    comebacks = Comebacks()
    note(comebacks, 100, since=1.0, took=0.004, expired=0.040)

    assert comebacks.of(100, now=2.0) == pytest.approx(0.004)


def test_how_long_a_few_took_is_not_remembered() -> None:
    comebacks = Comebacks()
    note(comebacks, 7, since=1.0, took=0.004)

    assert comebacks.of(7, now=2.0) is None

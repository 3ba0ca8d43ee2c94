"""Where a batch is cut: between volleys, and into even shares of a closed loop."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.policy_sim import Simulation, Triton, Workload, World, curve
from shoal.core.adaptive import Adaptive
from shoal.core.batch import Batch
from shoal.core.comeback import Group
from shoal.core.cuts import FAIR, GAP, Load, even_share, oldest_first
from shoal.core.policy import Fixed, Leave
from tests.unit.core.adaptive_server import Server

STEEP = [0.001 * (1 + rows) for rows in range(101)]  # 1 ms a row: going together saves little
PROFILE = {rows: STEEP[rows] for rows in (1, 2, 4, 8, 16, 32, 64, 100)}
FLAT = [0.020 + 1e-4 * rows for rows in range(101)]
BEST_32 = curve("weak")  # 32 is the most efficient size
tables = st.lists(st.floats(1e-5, 0.1), min_size=3, max_size=60).map(sorted)


def test_of_two_volleys_the_older_goes_first() -> None:
    came = [0.0] * 10 + [0.020] * 10

    assert oldest_first(STEEP, came, now=0.022, price=0.0) == 10


def test_rows_that_came_together_go_together() -> None:
    assert oldest_first(STEEP, [0.0] * 20, now=0.022, price=0.0) == 20


def test_rows_without_a_gap_between_them_are_not_parted() -> None:
    gap = 0.9 * GAP * STEEP[20]

    assert oldest_first(STEEP, [gap * row for row in range(20)], now=20 * gap, price=0.0) == 20


def test_volleys_are_not_parted_where_a_second_batch_costs_as_much_as_the_first() -> None:
    assert oldest_first(FLAT, [0.0] * 10 + [0.020] * 10, now=0.022, price=0.0) == 20


def test_a_server_with_no_time_to_spare_does_not_part_volleys() -> None:
    came = [0.0] * 10 + [0.020] * 10

    assert oldest_first(STEEP, came, now=0.022, price=99.0) == 20


def test_requests_that_come_one_by_one_are_not_parted_by_chance() -> None:
    draw = random.Random(1)
    lanes = [sorted(0.020 * draw.random() for _ in range(draw.randint(2, 100))) for _ in range(1000)]

    parted = sum(oldest_first(STEEP, came, now=0.022, price=0.0) < len(came) for came in lanes)

    assert parted < 10


@given(tables, st.data(), st.floats(0.0, 10.0))
def test_a_cut_never_makes_the_longest_wait_longer(table: list[float], data: st.DataObject, price: float) -> None:
    count = len(table) - 1
    came = sorted(data.draw(st.lists(st.floats(0.0, 0.2), min_size=count, max_size=count)))
    rows = oldest_first(table, came, 0.2, price)

    assert 1 <= rows <= count
    if rows < count:
        longest = max(0.2 - came[0] + table[rows], 0.2 - came[rows] + table[rows] + table[count - rows])
        assert longest <= 0.2 - came[0] + table[count] + 1e-12
        assert came[rows] - came[rows - 1] >= GAP * table[count]


def test_a_closed_loop_is_shared_out_evenly_so_that_nobody_waits_for_a_batch_more() -> None:
    shares = [even_share(BEST_32, 100, 32, turn) for turn in range(3)]

    assert sorted(shares) == [33, 33, 34]


def test_a_share_never_exceeds_the_largest_batch() -> None:
    assert even_share(STEEP, 101, 100, 0) in (50, 51)


def test_where_even_shares_are_slow_the_best_size_stays() -> None:
    table = [1.0 if rows <= 32 else 2.0 for rows in range(65)]  # only 32 is any good

    assert even_share(table, 33, 32, 0) == 32


@given(tables, st.integers(1, 500), st.integers(0, 50))
def test_shares_are_possible_nearly_as_fast_as_the_best_size_and_add_up(
    table: list[float], rows: int, turn: int
) -> None:
    cap = max(range(1, len(table)), key=lambda size: size / table[size])
    rows = max(rows, cap)
    first = even_share(table, rows, cap, turn)
    assert 1 <= first < len(table)
    if first == cap:
        return
    batches = min((rows // cap, math.ceil(rows / cap)), key=lambda count: abs(rows / max(1, count) - first))
    shares = [even_share(table, rows, cap, number) for number in range(batches)]
    assert sum(shares) == rows
    assert sum(table[share] for share in shares) <= rows / FAIR * table[cap] / cap * (1 + 1e-9)


def test_the_price_of_server_time_rises_with_the_load() -> None:
    prices = []
    for share in (0.1, 0.5, 0.9, 3.0):
        load = Load()
        for number in range(300):
            load.note(share * 0.1, 0.1 * number)
        prices.append(load.price)

    assert prices == pytest.approx([1 / 9, 1.0, 9.0, 99.0], rel=0.05)


def test_a_load_nobody_knows_is_taken_to_be_full() -> None:
    assert Load().price == pytest.approx(99.0)


# -- the rule as a whole -----------------------------------------------------------------------------------------------


def not_busy(server: Server) -> None:
    """A while in which there is little to do."""
    for _ in range(200):
        server.now += 1.0
        server.arrive()
        server.end(server.leave_when_due())


def two_volleys_wait(server: Server, after: float = 1.0) -> None:
    server.now += after
    server.arrive()
    running = server.leave_when_due()
    for _ in range(10):
        server.arrive()
    server.now += 0.020
    for _ in range(10):
        server.arrive()
    server.end(running, took=0.022)


def test_where_requests_come_in_volleys_the_older_volley_leaves_first() -> None:
    server = Server(Adaptive(100, PROFILE))
    not_busy(server)
    two_volleys_wait(server)

    assert server.decide() == Leave(10, "oldest")


def test_a_server_whose_load_nobody_knows_yet_parts_nothing() -> None:
    server = Server(Adaptive(100, PROFILE))
    two_volleys_wait(server)

    assert server.decide() == Leave(20, "idle")


def test_a_server_that_small_batches_keep_busy_parts_nothing() -> None:
    server = Server(Adaptive(100, PROFILE))
    for _ in range(400):
        server.now += 0.05 * STEEP[1]
        server.arrive()
        server.end(server.leave_when_due(), took=STEEP[1])
    two_volleys_wait(server, after=0.0)

    assert server.decide() == Leave(20, "idle")


def test_clients_that_come_back_together_are_not_parted_as_volleys() -> None:
    server = Server(Adaptive(100, PROFILE))
    not_busy(server)
    server.loop(clients=10, rounds=40)
    assert server.policy.describe()["is_closed_loop"]
    two_volleys_wait(server)

    assert server.decide() == Leave(20, "idle")


def test_with_deadlines_around_the_deadlines_decide() -> None:
    server = Server(Adaptive(100, PROFILE))
    not_busy(server)
    server.now += 1.0
    server.end(arrived_alone(server, patience=10.0))
    two_volleys_wait(server)

    assert server.decide() == Leave(20, "idle")


def arrived_alone(server: Server, patience: float) -> Batch:
    server.arrive(patience=patience)
    return server.leave_when_due()


def test_a_hundred_clients_of_a_model_that_likes_32_rows_wait_three_batches_not_four() -> None:
    world = World(BEST_32, Workload("closed", 100), seed=3)
    profile = {2**power: BEST_32[2**power] for power in range(7)}
    ours = Simulation(world, Adaptive(64, profile)).run(6000)
    fixed = Simulation(world, Fixed(32, 0.001)).run(6000)

    assert ours.throughput > 0.97 * fixed.throughput
    assert ours.p99 < 0.9 * fixed.p99


def test_those_who_are_due_back_count_among_those_who_go_round() -> None:
    server = Server(Adaptive(64, {2**power: BEST_32[2**power] for power in range(7)}))
    answered = Group(server.now, each=1.0)
    answered.missing = 50
    server.policy.returns.due.append(answered)
    for _ in range(50):
        server.arrive()

    assert server.decide() == Leave(33, "full")


def test_volleys_have_a_shorter_p99_than_greedy_batches_give_them() -> None:
    seconds = curve("rtx3090")
    world = World(seconds, Workload("volleys", 0.1), seed=21)
    profile = {2**power: seconds[2**power] for power in range(9)}
    ours = Simulation(world, Adaptive(256, profile)).run(20_000)
    greedy = Simulation(world, Triton(256, 0.0)).run(20_000)

    assert ours.p99 < 0.95 * greedy.p99

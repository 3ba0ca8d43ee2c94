from shoal.core.spread import even_wait, rows_for_one, slots_of

LINEAR = [0.003 * max(rows, 0.001) for rows in range(65)]  # nothing is saved by going together
FLAT = [0.020 + 0.0001 * rows for rows in range(65)]


def test_there_are_as_many_slots_as_the_fleet_has_instances_soonest_first() -> None:
    assert slots_of([(9.0, 3), (4.0, 2)], idle=1, size=2, now=3.0) == [(0.0, 0), (1.0, 2)]


def test_rows_are_split_evenly_where_size_costs_time() -> None:
    assert rows_for_one(LINEAR, [(0.0, 0)] * 4, 8, rate=0.0, loop=False) == 2


def test_rows_stay_together_where_only_the_batch_costs_time() -> None:
    assert rows_for_one(FLAT, [(0.0, 0), (0.015, 4)], 8, rate=0.0, loop=False) == 8


def test_an_instance_that_is_free_much_later_takes_no_part() -> None:
    assert rows_for_one(LINEAR, [(0.0, 0), (1.0, 4)], 8, rate=0.0, loop=False) == 8


def test_the_only_idle_instance_waits_half_way_to_the_next_end() -> None:
    wait = even_wait(FLAT, [(0.0, 0), (0.020, 4)], idle=1, rows=1, rate=1000.0)

    assert 0.008 < wait < 0.010


def test_nothing_is_spaced_when_all_or_none_are_idle() -> None:
    assert even_wait(FLAT, [(0.0, 0), (0.0, 0)], idle=2, rows=1, rate=1000.0) == 0.0
    assert even_wait(FLAT, [(0.010, 1), (0.020, 1)], idle=0, rows=1, rate=1000.0) == 0.0

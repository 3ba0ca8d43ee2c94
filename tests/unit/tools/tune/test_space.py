from hypothesis import given
from hypothesis import strategies as st

from shoal.tools.tune.setting import Setting
from shoal.tools.tune.space import Space

SETTINGS = st.sampled_from(list(Space(limits=(1, 4, 16), delays=(1.0, 5.0), workers=(1, 2), instances=(1, 2)).grid()))


def test_the_grid_begins_with_the_default_and_has_nothing_twice() -> None:
    grid = list(Space().grid())

    assert grid[0] == Setting()
    assert len(grid) == len(set(grid))
    assert len(grid) == (1 + 1 + 8 + 8 * 4) * 3 * 2 * 3 * 3


@given(SETTINGS)
def test_no_race_has_the_setting_it_starts_from_or_one_twice(base: Setting) -> None:
    for group in Space(limits=(1, 4, 16), delays=(1.0, 5.0), workers=(1, 2)).groups(base):
        assert base not in group
        assert len(group) == len(set(group))


@given(SETTINGS)
def test_a_race_changes_one_thing(base: Setting) -> None:
    workers, instances, batching, stages, near = Space(limits=(1, 4, 16), delays=(1.0, 5.0), workers=(1, 2)).groups(
        base
    )

    assert all(each.with_knob("batching", base) == base for each in (*batching, *near))
    assert all(each.with_knob("workers", base) == base for each in workers)
    assert all(each.with_knob("instances", base) == base for each in instances)
    assert all(each.with_knob("micro-batches", base).with_knob("stage threads", base) == base for each in stages)


def test_batches_larger_than_the_requests_there_are_are_left_out() -> None:
    space = Space().within(in_flight=20, is_staged=True, most_workers=100)

    assert max(space.limits) == 32


def test_an_open_loop_has_any_number_of_requests() -> None:
    assert max(Space().within(in_flight=0, is_staged=True, most_workers=100).limits) == 256


def test_a_model_without_stages_has_no_micro_batches_and_no_stage_threads() -> None:
    space = Space().within(in_flight=8, is_staged=False, most_workers=100)

    assert {(each.micro, each.threads) for each in space.grid()} == {(0, (1, 1, 1))}


def test_workers_that_do_not_fit_into_memory_are_not_tried() -> None:
    assert Space(workers=(1, 2, 4, 8)).within(in_flight=8, is_staged=False, most_workers=3).workers == [1, 2]
    assert Space(workers=(4,)).within(in_flight=8, is_staged=False, most_workers=3).workers == [1]


def test_the_neighbours_of_a_fixed_batching_are_tried() -> None:
    near = list(Space(delays=(1.0, 5.0, 20.0)).groups(Setting(limit=16, delay=5.0)))[-1]

    assert {(each.limit, each.delay) for each in near} == {(8, 5.0), (32, 5.0), (16, 1.0), (16, 20.0)}


def test_one_at_a_time_has_no_delay_to_try() -> None:
    assert list(Space().groups(Setting(limit=1, delay=0.0)))[-1] == []

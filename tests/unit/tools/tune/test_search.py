"""What the tuner measures next, whatever the model is like: these rules alone, with made-up outcomes."""

import random
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.tools.tune.goal import FAILED, Merit
from shoal.tools.tune.search import LAST, TOP, Outcome, Search, Trial
from shoal.tools.tune.setting import KNOBS, Setting, knob_label
from shoal.tools.tune.space import Space

SMALL = Space(limits=(1, 4, 16, 64), delays=(1.0, 10.0), workers=(1, 2, 4), instances=(1, 2))
World = Callable[[Trial], Merit]


def run(search: Search, space: Space, world: World, most: int = 10_000) -> list[Trial]:
    """Play the measuring part; gives every trial in order."""

    def measured(trial: Trial) -> Outcome:
        merit = world(trial)
        draws = [Merit(merit.rank, merit.value * (1 + 0.002 * place)) for place in range(-5, 6)]
        return Outcome(trial, merit, draws if merit.rank >= 0 else [])

    done = [search.begin()]
    search.record(measured(done[0]))
    steps = search.explore(space)
    trial = next(steps, None)
    while trial is not None and len(done) < most:
        done.append(trial)
        try:
            trial = steps.send(measured(trial))
        except StopIteration:
            trial = None
    for last in search.closing():
        done.append(last)
        search.record(measured(last))
    return done


def noisy(seed: int) -> World:
    """A world without rhyme or reason: any setting may fail, miss the goal or be good, each time anew."""
    source = random.Random(seed)
    return lambda trial: Merit(source.choice([-1, 0, 1, 1, 1]), source.uniform(1, 100))


def smooth(seed: int) -> World:
    """A world in which each knob has a best value of its own."""
    source = random.Random(seed)
    worth: dict[tuple[str, str], float] = {}

    def merit(trial: Trial) -> Merit:
        setting, value = trial.setting, 1000.0
        for knob in KNOBS:
            value *= worth.setdefault((knob, knob_label(setting, knob)), source.uniform(0.3, 1.0))
        return Merit(1, value)

    return merit


@given(st.integers(0, 100_000))
@settings(max_examples=60, deadline=None)
def test_it_ends_and_measures_nothing_twice_at_the_same_rung(seed: int) -> None:
    done = run(Search(Setting()), SMALL, noisy(seed))

    assert len(done) == len(set(done))
    assert len(done) < 400


@given(st.integers(0, 100_000))
@settings(max_examples=60, deadline=None)
def test_the_default_is_measured_first_and_last(seed: int) -> None:
    done = run(Search(Setting(workers=2)), SMALL, noisy(seed))

    assert done[0] == Trial(Setting(workers=2), TOP)
    assert done[-1] == Trial(Setting(workers=2), LAST)


@given(st.integers(0, 100_000), st.integers(1, 60))
@settings(max_examples=80, deadline=None)
def test_the_best_so_far_never_gets_worse_and_always_had_a_long_look(seed: int, most: int) -> None:
    search = Search(Setting())
    world = noisy(seed)
    seen: list[Merit] = []

    def watching(trial: Trial) -> Merit:
        if (best := search.outcome(search.best)) is not None:
            seen.append(best.merit)
        return world(trial)

    run(search, SMALL, watching, most)
    best = search.outcome(search.best)

    assert best is not None and best.trial.rung == TOP
    assert seen == sorted(seen)
    assert not seen or best.merit >= seen[-1]


@given(st.integers(0, 100_000))
@settings(max_examples=40, deadline=None)
def test_where_knobs_do_not_hinder_each_other_the_best_workers_and_instances_are_found(seed: int) -> None:
    search = Search(Setting())
    world = smooth(seed)
    done = run(search, SMALL, world)
    workers = {count: world(Trial(Setting(workers=count), TOP)).value for count in SMALL.workers}
    instances = {count: world(Trial(Setting(instances=count), TOP)).value for count in SMALL.instances}

    assert workers[search.best.workers] >= 0.98 * max(workers.values())
    assert instances[search.best.instances] >= 0.98 * max(instances.values())
    assert len(done) < len(list(SMALL.grid())) / 5


def test_a_setting_that_fails_never_wins() -> None:
    def world(trial: Trial) -> Merit:
        return Merit(1, 10.0) if trial.setting == Setting() else FAILED

    search = Search(Setting())
    done = run(search, SMALL, world)

    assert search.best == Setting()
    assert all(trial.rung == 0 for trial in done[1:-1])


def test_one_that_keeps_the_goal_takes_the_place_of_one_that_does_not() -> None:
    search = Search(Setting())
    run(search, SMALL, lambda trial: Merit(1, 5.0) if trial.setting.workers == 4 else Merit(0, -0.5))

    assert search.best.workers == 4


def test_a_difference_too_small_to_matter_changes_nothing() -> None:
    search = Search(Setting())
    run(search, SMALL, lambda trial: Merit(1, 100.0 + 0.5 * (trial.setting != Setting())))

    assert search.best == Setting()


def test_what_lost_by_far_is_not_tried_from_another_base() -> None:
    """One at a time is ten times slower here, whatever else is changed; micro-batches, tried after it, help."""

    def world(trial: Trial) -> Merit:
        return Merit(1, 100.0 * (2 if trial.setting.micro == 4 else 1) * (0.1 if trial.setting.limit == 1 else 1.0))

    search = Search(Setting())
    done = run(search, SMALL, world)

    assert search.best.micro == 4
    assert [trial.setting.micro for trial in done if trial.setting.limit == 1] == [0]


def test_only_the_better_half_of_a_race_gets_a_longer_look() -> None:
    def world(trial: Trial) -> Merit:
        return Merit(1, 100.0 + trial.setting.limit)

    done = run(Search(Setting()), Space(limits=(2, 4, 8, 16, 32, 64, 128, 256), workers=(1,), instances=(1,)), world)
    race = [trial for trial in done[1:] if trial.setting.delay == 5.0]
    first = [trial.setting.limit for trial in race if trial.rung == 0][:3]
    second = [trial.setting.limit for trial in race if trial.rung == 1]

    assert sorted(first) == [4, 32, 256]
    assert second[:2] == [256, 32]
    assert 4 not in second


def test_the_end_puts_each_changed_knob_back_alone() -> None:
    search = Search(Setting())
    done = run(search, SMALL, lambda trial: Merit(1, 100.0 * trial.setting.workers * trial.setting.instances))

    assert search.changed == ["workers", "instances"]
    back = {Trial(search.best.with_knob(knob, Setting()), TOP) for knob in search.changed}
    assert back <= set(done)
    assert done[-2:] == [Trial(search.best, LAST), Trial(Setting(), LAST)]

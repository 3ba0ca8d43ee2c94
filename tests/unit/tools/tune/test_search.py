"""What the tuner looks at next, whatever the model is like: these rules alone, with made-up outcomes."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain

from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.tools.tune.goal import FAILED, Merit
from shoal.tools.tune.search import FINALISTS, ROUNDS, THOROUGH, Search
from shoal.tools.tune.setting import KNOBS, Setting, knob_label
from shoal.tools.tune.space import Space

SMALL = Space(limits=(1, 4, 16, 64), delays=(1.0, 10.0), workers=(1, 2, 4), instances=(1, 2))
World = Callable[[Setting], Merit]


def run(search: Search, space: Space, world: World, most: int = 10_000) -> list[Setting]:
    """Play the measuring part; gives every look in order."""
    done = [search.default]
    search.record(search.default, world(search.default))
    for setting in search.explore(space):
        if len(done) >= most:
            break
        done.append(setting)
        search.record(setting, world(setting))
    for setting in chain(search.finals(), search.closing()):
        done.append(setting)
        search.record(setting, world(setting))
    return done


def noisy(seed: int) -> World:
    """A world without rhyme or reason: any setting may fail, miss the goal or be good, each time anew."""
    source = random.Random(seed)
    return lambda setting: Merit(source.choice([-1, 0, 1, 1, 1]), source.uniform(1, 100))


def smooth(seed: int) -> World:
    """A world in which each knob has a best value of its own."""
    source = random.Random(seed)
    worth: dict[tuple[str, str], float] = {}

    def merit(setting: Setting) -> Merit:
        value = 1000.0
        for knob in KNOBS:
            value *= worth.setdefault((knob, knob_label(setting, knob)), source.uniform(0.3, 1.0))
        return Merit(1, value)

    return merit


@given(st.integers(0, 100_000))
@settings(max_examples=40, deadline=None)
def test_it_ends_and_looks_at_nothing_more_often_than_it_may(seed: int) -> None:
    search = Search(Setting())
    done = run(search, SMALL, noisy(seed))
    settings = set(done) - {search.default}

    assert len(done) < 600
    assert all(done.count(each) <= THOROUGH[0] + ROUNDS for each in settings if each != search.best)
    assert all(search.looks.count(each) == done.count(each) for each in done)


@given(st.integers(0, 100_000))
@settings(max_examples=40, deadline=None)
def test_the_default_is_looked_at_first_and_at_the_end_of_the_finals(seed: int) -> None:
    search = Search(Setting(workers=2))
    done = run(search, SMALL, noisy(seed))
    back = list(search.put_back().values())
    while done[-1] in back and done.count(done[-1]) == 1:
        done.pop()

    assert done[0] == Setting(workers=2)
    assert done[-1] == Setting(workers=2)


@given(st.integers(0, 100_000), st.integers(1, 60))
@settings(max_examples=40, deadline=None)
def test_the_finals_are_few_and_decide_the_best_from_all_looks(seed: int, most: int) -> None:
    search = Search(Setting())
    done = run(search, SMALL, noisy(seed), most)
    last = {each for each in done if search.last.count(each)}
    best = [each for each in search.looks.ranked() if each in last]

    assert Setting() in last
    assert len(last) <= FINALISTS + 1
    assert not best or search.best == best[0]


@given(st.integers(0, 100_000))
@settings(max_examples=40, deadline=None)
def test_where_knobs_do_not_hinder_each_other_the_best_workers_and_instances_are_found(seed: int) -> None:
    search = Search(Setting())
    world = smooth(seed)
    done = run(search, SMALL, world)
    workers = {count: world(Setting(workers=count)).value for count in SMALL.workers}
    instances = {count: world(Setting(instances=count)).value for count in SMALL.instances}

    assert workers[search.best.workers] >= 0.97 * max(workers.values())
    assert instances[search.best.instances] >= 0.97 * max(instances.values())
    assert len(set(done)) < len(list(SMALL.grid())) / 5


def test_a_setting_that_fails_never_wins_and_is_not_looked_at_again() -> None:
    def world(setting: Setting) -> Merit:
        return Merit(1, 10.0) if setting == Setting() else FAILED

    search = Search(Setting())
    done = run(search, SMALL, world)

    assert search.best == Setting()
    assert all(done.count(each) == 1 for each in done if each != Setting())


def test_one_that_keeps_the_goal_takes_the_place_of_one_that_does_not() -> None:
    search = Search(Setting())
    run(search, SMALL, lambda setting: Merit(1, 5.0) if setting.workers == 4 else Merit(0, -0.5))

    assert search.best.workers == 4


def test_a_base_is_not_left_for_a_difference_too_small_to_matter() -> None:
    search = Search(Setting())
    search.record(Setting(), Merit(1, 100.0))
    for setting in search.explore(SMALL):
        search.record(setting, Merit(1, 100.0 + 0.5 * (setting != Setting())))

    assert search.best == Setting()


@dataclass
class Misleading:
    """A world in which the first look at some of the settings says something else than all later ones."""

    is_meant: Callable[[Setting], bool]
    first: float
    truth: float
    seen: list[Setting] = field(default_factory=list)

    def __call__(self, setting: Setting) -> Merit:
        self.seen.append(setting)
        if not self.is_meant(setting):
            return Merit(1, 100.0)
        return Merit(1, self.first if self.seen.count(setting) == 1 else self.truth)


def test_one_lucky_look_does_not_make_a_setting_the_best() -> None:
    """One at a time is a tenth slower in truth; its first look says that it is a tenth faster."""
    world = Misleading(lambda setting: setting.limit == 1, first=110.0, truth=90.0)
    search = Search(Setting())
    run(search, SMALL, world)

    assert search.best.limit != 1
    assert world.seen.count(Setting(limit=1, delay=0.0)) > 1


def test_one_unlucky_look_does_not_lose_a_setting() -> None:
    """Two workers are a fifth faster in truth; the first look at them says that they are a little slower."""
    search = Search(Setting())
    run(search, SMALL, Misleading(lambda setting: setting.workers == 2, first=98.0, truth=120.0))

    assert search.best.workers == 2


def test_what_lost_by_far_is_not_tried_from_another_base() -> None:
    """One at a time is ten times slower here, whatever else is changed; micro-batches, tried after it, help."""

    def world(setting: Setting) -> Merit:
        return Merit(1, 100.0 * (2 if setting.micro == 4 else 1) * (0.1 if setting.limit == 1 else 1.0))

    search = Search(Setting())
    done = run(search, SMALL, world)

    assert search.best.micro == 4
    assert [setting.micro for setting in done if setting.limit == 1] == [0]


def test_what_is_plainly_worse_is_looked_at_once() -> None:
    search = Search(Setting())
    done = run(search, SMALL, lambda setting: Merit(1, 100.0 if setting == Setting() else 50.0))

    assert search.best == Setting()
    assert all(done.count(each) == 1 for each in done if each != Setting())


def test_the_best_is_measured_with_each_changed_knob_put_back_alone() -> None:
    search = Search(Setting())
    done = run(search, SMALL, lambda setting: Merit(1, 100.0 * setting.workers * setting.instances))

    assert search.changed == ["workers", "instances"]
    assert set(search.put_back().values()) <= set(done)
    assert search.last.count(search.best) >= 2


def test_what_the_best_is_worth_is_told_by_the_finals_alone() -> None:
    best = Setting(workers=2)
    search = Search(Setting())
    for setting, value in ((Setting(), 100.0), (best, 200.0)):
        search.record(setting, Merit(1, value))
    before = search.worth(best)
    search.is_final = True
    for setting, value in ((best, 110.0), (Setting(), 100.0)):
        search.record(setting, Merit(1, value))

    assert before == 1.0
    assert round(search.worth(best), 6) == 0.1
    assert 0.05 < search.doubt(best) < 1


def test_the_finals_end_once_those_that_are_left_are_equally_good() -> None:
    search = Search(Setting())
    done = run(search, SMALL, lambda setting: Merit(1, 300.0 if setting.workers == 4 else 100.0))

    assert search.best.workers == 4
    assert 2 <= search.last.count(search.best) < ROUNDS
    assert all(search.last.count(each) <= search.last.count(Setting()) for each in done)

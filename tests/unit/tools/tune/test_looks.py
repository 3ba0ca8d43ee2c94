"""What several looks say together."""

import random

import pytest

from shoal.tools.tune.effects import shared
from shoal.tools.tune.goal import FAILED, Merit
from shoal.tools.tune.looks import NOISE, Looks
from shoal.tools.tune.setting import Setting

ONE, TWO, FOUR = Setting(), Setting(workers=2), Setting(workers=4)


def looked(**found: list[Merit]) -> Looks:
    looks = Looks()
    for name, merits in found.items():
        for merit in merits:
            looks.add({"one": ONE, "two": TWO, "four": FOUR}[name], merit)
    return looks


def good(*values: float) -> list[Merit]:
    return [Merit(1, value) for value in values]


def test_looks_at_a_setting_are_averaged() -> None:
    assert looked(one=good(90.0, 100.0, 110.0)).merit(ONE) == Merit(1, 100.0)


def test_what_most_looks_found_counts_and_of_two_the_worse() -> None:
    missed = Merit(0, -0.1)

    assert looked(one=[*good(90.0, 110.0), missed]).merit(ONE) == Merit(1, 100.0)
    assert looked(one=[*good(90.0), missed]).merit(ONE) == missed
    assert looked(one=[*good(90.0), FAILED, FAILED]).merit(ONE) == FAILED


def test_a_setting_that_nobody_looked_at_has_failed() -> None:
    assert Looks().merit(ONE) == FAILED
    assert Looks().doubt(ONE, TWO) == float("inf")


def test_settings_that_failed_are_not_ranked() -> None:
    looks = looked(one=good(100.0), two=good(120.0), four=[FAILED])

    assert looks.ranked() == [TWO, ONE]


def test_noise_is_what_looks_at_the_same_setting_differ_by() -> None:
    draw = random.Random(1)
    quiet, loud = Looks(), Looks()
    for setting in (ONE, TWO, FOUR):
        for _ in range(20):
            quiet.add(setting, Merit(1, 100 * setting.workers))
            loud.add(setting, Merit(1, draw.gauss(100 * setting.workers, 20 * setting.workers)))

    assert quiet.noise < NOISE / 4
    assert 0.15 < loud.noise < 0.25
    assert Looks().noise == pytest.approx(NOISE)


def test_more_looks_leave_less_doubt() -> None:
    few, many = looked(one=good(100.0), two=good(100.0)), looked(one=good(*[100.0] * 9), two=good(*[100.0] * 9))

    assert many.doubt(ONE, TWO) < few.doubt(ONE, TWO) / 2


def test_a_setting_is_judged_with_what_others_say_of_its_knobs() -> None:
    """Two workers are a tenth better with every batching but one that had a single look."""
    looks = Looks()
    for limit in (0, 8, 16, 64):
        for workers in (1, 2):
            for off in (0.9, 1.1) * 3:
                looks.add(Setting(limit, None, workers), Merit(1, off * (100.0 + 10 * (workers - 1))))
    poor = Setting(32, None, 2)
    looks.add(poor, Merit(1, 95.0))
    looks.add(Setting(32, None, 1), Merit(1, 100.0))

    assert looks.merit(poor).value == 95.0
    assert 95.0 < looks.estimate(poor).value < 110.0
    assert looks.measured_gain(poor, Setting(32, None, 1)) == pytest.approx(-0.05)
    assert looks.gain(poor, Setting(32, None, 1)) > 0


def test_without_noise_every_setting_is_worth_what_was_measured() -> None:
    means = {ONE: (100.0, 1), TWO: (90.0, 1), FOUR: (130.0, 2)}

    assert shared(means, 0.0) == pytest.approx({setting: value for setting, (value, _) in means.items()})
    assert shared({}, 0.1) == {}


def test_what_is_far_below_the_best_says_nothing_of_it() -> None:
    near = {ONE: (100.0, 1), TWO: (90.0, 1)}
    far = {**near, Setting(1, 0.0): (5.0, 1)}

    found = shared(far, 0.05)

    assert {setting: found[setting] for setting in near} == pytest.approx(shared(near, 0.05))
    assert found[Setting(1, 0.0)] == 5.0


def test_a_setting_with_more_looks_is_taken_more_at_its_own_word() -> None:
    others = {Setting(limit, None, workers): (100.0, 9) for limit in (0, 8, 16) for workers in (1, 2)}
    few, many = (shared({**others, TWO: (115.0, count)}, 0.1)[TWO] for count in (1, 40))

    assert 100 < few < many < 115


def test_noise_counts_each_setting_as_one_look_less_than_it_had() -> None:
    """So many pairs of looks that what was believed before does not matter: each pair is 10 % apart."""
    looks = Looks()
    for workers in range(1, 1001):
        for value in (95.0, 105.0):
            looks.add(Setting(workers=workers), Merit(1, value))

    assert looks.noise == pytest.approx(0.05 * 2**0.5, rel=0.01)

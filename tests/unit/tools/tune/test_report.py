"""What is recommended, and how a tuning reads."""

import json

import msgspec
import pytest

from shoal.tools import machine
from shoal.tools.tune.goal import FAILED, Goals, Merit
from shoal.tools.tune.looks import LIKELY, SURE
from shoal.tools.tune.page import to_html
from shoal.tools.tune.report import Report, bought, bought_lines, cells, front, rows_of, to_markdown, verdict
from shoal.tools.tune.search import Search
from shoal.tools.tune.setting import Setting
from shoal.tools.tune.trials import Run

BEST = Setting(limit=32, delay=5.0, workers=2)


def searched(*found: tuple[Setting, float], last: int = 0, rank: int = 1, best: Setting = BEST) -> Search:
    """A search that measured these values, so many of them in the finals."""
    search = Search(Setting())
    for number, (setting, value) in enumerate(found):
        search.is_final = number >= len(found) - last
        search.record(setting, Merit(1 if setting != Setting() else rank, value))  # type: ignore[arg-type]
    search.best = best
    return search


def measured(setting: Setting, throughput: float, p99: float, look: int = 1) -> Run:
    figures = {"throughput": throughput, "mean": p99 / 2, "p50": p99 / 2, "p90": p99, "p95": p99, "p99": p99}
    return Run(setting, look, 0.0, 1.0, figures, 1_000_000, Merit(1, throughput), 8.0)


RUNS = [measured(Setting(), 100.0, 0.02), measured(BEST, 152.0, 0.03), measured(BEST, 148.0, 0.03, 2)]
FINALS = ((BEST, 150.0), (Setting(), 100.0), (BEST, 150.0), (Setting(), 100.0))


def test_a_setting_that_is_clearly_better_is_recommended() -> None:
    search = searched((Setting(), 100.0), (BEST, 155.0), *FINALS, last=4)

    found = verdict(search, Goals(), rows_of(search, RUNS))

    assert (found.setting, found.is_default, found.is_met) == (BEST, False, True)
    assert found.gain == pytest.approx(0.5)
    assert "150/s" in found.words and "+50.0 % over the default (give or take " in found.words


def test_looks_before_the_finals_say_whether_it_is_better_and_the_finals_by_how_much() -> None:
    before = [(Setting(), 100.0), (BEST, 130.0)] * 8
    search = searched(*before, (BEST, 105.0), (Setting(), 100.0), last=2)

    found = verdict(search, Goals(), [])

    assert not found.is_default, "two looks alone would not be enough"
    assert "+5.0 %" in found.words


def test_the_finals_count_not_the_looks_before_them() -> None:
    search = searched((Setting(), 100.0), (BEST, 200.0), (BEST, 101.0), (Setting(), 100.0), last=2)

    assert verdict(search, Goals(), []).is_default


def test_a_gain_within_the_noise_of_looks_changes_nothing() -> None:
    search = searched((Setting(), 100.0), (BEST, 108.0), (BEST, 108.0), (Setting(), 90.0), (Setting(), 115.0), last=3)

    found = verdict(search, Goals(), [])

    assert (found.setting, found.is_default) == (Setting(), True)
    assert "already best within noise" in found.words
    assert f"chance alone makes up to {100 * found.noise:.1f} %. Change nothing" in found.words
    assert found.noise > 0.12


def test_a_gain_that_chance_rarely_makes_is_recommended_as_probable() -> None:
    search = searched(
        (Setting(), 94.0), (BEST, 104.0), (BEST, 116.0), (Setting(), 94.0), (BEST, 104.0), (Setting(), 106.0), last=4
    )

    found = verdict(search, Goals(), [])

    assert found.gain == pytest.approx(0.1)
    assert 0.1 < found.noise < 0.1 * SURE / LIKELY
    assert (found.setting, found.is_default) == (BEST, False)
    assert found.words.endswith(": probably better, a longer search can make sure")


def test_of_settings_that_miss_the_goal_by_about_as_much_the_default_is_the_nearest() -> None:
    search = Search(Setting())
    search.is_final = True
    for _ in range(3):
        search.record(Setting(), Merit(0, -43.8))
        search.record(BEST, Merit(0, -43.2))
    search.best = BEST

    found = verdict(search, Goals({"p99": 0.001}), [])

    assert (found.setting, found.is_default, found.is_met) == (Setting(), True, False)
    assert "nothing that was tried keeps the goal" in found.words


def test_a_gain_of_two_per_cent_changes_nothing_however_sure_it_is() -> None:
    search = searched((Setting(), 100.0), *((BEST, 102.0), (Setting(), 100.0)) * 100, last=200)

    found = verdict(search, Goals(), [])

    assert found.is_default and found.noise < 0.02


def test_a_default_that_nothing_beat_is_said_to_be_best() -> None:
    search = searched((Setting(), 100.0), (Setting(), 99.0), last=1, best=Setting())

    found = verdict(search, Goals(), [])

    assert found.is_default and found.is_met
    assert "the default is already best: adaptive, 1 worker" in found.words
    assert bought(search) == []


def test_a_setting_that_keeps_the_goal_is_recommended_over_a_default_that_does_not() -> None:
    search = searched((Setting(), -0.2), (BEST, 50.0), (BEST, 50.0), (Setting(), -0.2), last=2, rank=0)

    found = verdict(search, Goals({"p99": 0.05}), [])

    assert (found.is_default, found.is_met, found.gain) == (False, True, None)
    assert "keeps the goal, which the default does not" in found.words


def test_a_goal_that_nothing_keeps_is_said_to_be_missed() -> None:
    search = searched((Setting(), -0.2), (Setting(), -0.2), rank=0, best=Setting())

    found = verdict(search, Goals({"p99": 0.001}), [])

    assert not found.is_met
    assert found.words.startswith("nothing that was tried keeps the goal (p99 1.00 ms at most;")


def test_a_tuning_that_was_cut_short_judges_by_what_it_has() -> None:
    search = searched((Setting(), 100.0), (BEST, 150.0))

    assert verdict(search, Goals(), []).setting == BEST


def test_every_changed_knob_says_what_it_bought() -> None:
    one, two = Setting(workers=2), Setting(limit=32, delay=5.0)
    search = searched((Setting(), 100.0), (BEST, 150.0), (one, 120.0), (two, 75.0))

    found = {each.knob: each for each in bought(search)}

    assert found["batching"].gain == pytest.approx(0.25)
    assert found["workers"].gain == pytest.approx(1.0)
    assert (found["workers"].default, found["workers"].best) == ("1", "2")


def test_a_knob_that_was_not_put_back_says_so() -> None:
    found = bought(searched((Setting(), 100.0), (BEST, 150.0)))

    assert [each.is_known for each in found] == [False, False]


def test_a_knob_that_was_only_tried_on_the_default_says_what_it_gave_there() -> None:
    two, one = Setting(workers=2), Setting(limit=32, delay=5.0)
    found = {each.knob: each for each in bought(searched((Setting(), 100.0), (two, 180.0), (BEST, 190.0)))}

    assert found["workers"].is_known and found["workers"].gain == pytest.approx(0.8)
    assert found["batching"].is_known and found["batching"].gain == pytest.approx(190 / 180 - 1)
    found = {each.knob: each for each in bought(searched((Setting(), 100.0), (one, 90.0), (BEST, 190.0)))}
    assert found["batching"].gain == pytest.approx(-0.1)


def test_looks_at_one_setting_are_one_row_the_best_first() -> None:
    search = searched((Setting(), 100.0), (BEST, 152.0), (BEST, 148.0))
    best, default = rows_of(search, RUNS)

    assert (best.setting, best.looks, best.figures["throughput"]) == (BEST, 2, 150.0)
    assert (default.setting, default.looks) == (Setting(), 1)


def test_the_front_has_what_nothing_beats_in_both() -> None:
    runs = [
        measured(Setting(), 100.0, 0.010),
        measured(BEST, 200.0, 0.020),
        measured(Setting(workers=2), 150.0, 0.025),
    ]
    rows = rows_of(searched(*((run.setting, run.figures["throughput"]) for run in runs)), runs)

    assert {rows[number].setting for number in front(rows)} == {Setting(), BEST}


def test_a_trial_that_failed_says_why() -> None:
    failed = Run(BEST, 1, 0.0, 1.0, {}, 0, FAILED, problem="no server could be started: no memory")
    search = searched((Setting(), 100.0))
    search.record(BEST, FAILED)

    assert cells(rows_of(search, [failed])[0])[-1] == "no server could be started: no memory"


def made() -> Report:
    search = searched((Setting(), 100.0), (BEST, 150.0), *FINALS, last=4)
    rows = rows_of(search, RUNS)
    decided = verdict(search, Goals(), rows)
    files = {"settings.toml": "[models.m]\n", "model-config.yaml": "a: 1\n", "config.pbtxt": "x {}\n"}
    known = ("m<i>", "the most", "32 connections", "text, 1 bytes", machine.facts(), decided, BEST, Setting())
    return Report(*known, bought(search), RUNS, rows, front(rows), 12.0, files)


def test_the_report_reads_in_every_form() -> None:
    report = made()
    text, page = to_markdown(report), to_html(report)

    assert "| batches of 32 within 5 ms, 2 workers | 2 | 150 |" in text
    assert "[models.m]" in text and "+50.0 % over the default" in text
    assert "3 looks at 2 settings in 12 s" in text
    assert "m&lt;i&gt;" in page and "<i>" not in page
    assert page.count("<circle") == len(report.rows)
    assert "http" not in page
    assert bought_lines(report)[0].startswith("batching: batches of 32 within 5 ms instead of adaptive: ")
    assert json.loads(msgspec.json.encode(report))["verdict"]["gain"] == pytest.approx(0.5)


def test_nothing_is_said_to_have_been_bought_where_the_goal_is_missed() -> None:
    report = made()
    missed = msgspec.structs.replace(report, verdict=msgspec.structs.replace(report.verdict, is_met=False))

    assert bought_lines(report) and not bought_lines(missed)

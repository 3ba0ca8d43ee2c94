"""What is recommended, and how a tuning reads."""

import json

import msgspec
import pytest

from shoal.tools import machine
from shoal.tools.tune.goal import Goals, Merit
from shoal.tools.tune.page import to_html
from shoal.tools.tune.report import Report, bought, bought_lines, cells, front, to_markdown, verdict
from shoal.tools.tune.search import LAST, TOP, Outcome, Search, Trial
from shoal.tools.tune.setting import Setting
from shoal.tools.tune.trials import Run

BEST = Setting(limit=32, delay=5.0, workers=2)


def searched(*found: tuple[Setting, int, float], rank: int = 1, best: Setting = BEST) -> Search:
    """A search that measured these values; draws are half a per cent around each."""
    search = Search(Setting())
    for setting, rung, value in found:
        merit = Merit(1 if setting != Setting() else rank, value)  # type: ignore[arg-type]
        draws = [Merit(merit.rank, value * (1 + step / 1000)) for step in range(-5, 6)]
        search.record(Outcome(Trial(setting, rung), merit, draws))
    search.best = best
    return search


def measured(setting: Setting, throughput: float, p99: float, rung: int = TOP) -> Run:
    figures = {"throughput": throughput, "mean": p99 / 2, "p50": p99 / 2, "p90": p99, "p95": p99, "p99": p99}
    return Run(setting, rung, 0.0, 1.0, figures, 1_000_000, Merit(1, throughput), 8.0)


RUNS = [measured(Setting(), 100.0, 0.02), measured(BEST, 150.0, 0.03), measured(BEST, 148.0, 0.03, LAST)]


def test_a_setting_that_is_clearly_better_is_recommended() -> None:
    search = searched((Setting(), TOP, 100.0), (BEST, TOP, 155.0), (BEST, LAST, 150.0), (Setting(), LAST, 100.0))

    found = verdict(search, Goals(), RUNS)

    assert (found.setting, found.is_default, found.is_met) == (BEST, False, True)
    assert found.gain == pytest.approx(0.5)
    assert "+50.0 % over the default" in found.words


def test_the_second_look_at_the_best_counts_not_the_first() -> None:
    search = searched((Setting(), TOP, 100.0), (BEST, TOP, 200.0), (BEST, LAST, 101.0), (Setting(), LAST, 100.0))

    assert verdict(search, Goals(), RUNS).is_default


def test_a_gain_within_the_defaults_own_noise_changes_nothing() -> None:
    search = searched((Setting(), TOP, 100.0), (BEST, TOP, 115.0), (BEST, LAST, 115.0), (Setting(), LAST, 112.0))

    found = verdict(search, Goals(), RUNS)

    assert (found.setting, found.is_default) == (Setting(), True)
    assert "already best within noise" in found.words
    assert "by 12.0 %. Change nothing" in found.words


def test_a_gain_of_two_per_cent_changes_nothing() -> None:
    search = searched((Setting(), TOP, 100.0), (BEST, TOP, 102.0), (BEST, LAST, 102.0), (Setting(), LAST, 100.0))

    assert verdict(search, Goals(), RUNS).is_default


def test_a_default_that_nothing_beat_is_said_to_be_best() -> None:
    search = searched((Setting(), TOP, 100.0), (Setting(), LAST, 99.0), best=Setting())

    found = verdict(search, Goals(), RUNS[:1])

    assert found.is_default and found.is_met
    assert "the default is already best: adaptive, 1 worker" in found.words
    assert bought(search) == []


def test_a_setting_that_keeps_the_goal_is_recommended_over_a_default_that_does_not() -> None:
    search = searched((Setting(), TOP, -0.2), (BEST, TOP, 50.0), (BEST, LAST, 50.0), (Setting(), LAST, -0.2), rank=0)

    found = verdict(search, Goals({"p99": 0.05}), RUNS)

    assert (found.is_default, found.is_met, found.gain) == (False, True, None)
    assert "keeps the goal, which the default does not" in found.words


def test_a_goal_that_nothing_keeps_is_said_to_be_missed() -> None:
    search = searched((Setting(), TOP, -0.2), (Setting(), LAST, -0.2), rank=0, best=Setting())

    found = verdict(search, Goals({"p99": 0.001}), RUNS[:1])

    assert not found.is_met
    assert found.words.startswith("nothing that was tried keeps the goal (p99 1.00 ms at most;")


def test_a_tuning_that_was_cut_short_judges_by_what_it_has() -> None:
    search = searched((Setting(), TOP, 100.0), (BEST, TOP, 150.0))

    assert verdict(search, Goals(), RUNS[:2]).setting == BEST


def test_every_changed_knob_says_what_it_bought() -> None:
    one, two = Setting(workers=2), Setting(limit=32, delay=5.0)
    search = searched((Setting(), TOP, 100.0), (BEST, TOP, 150.0), (one, TOP, 120.0), (two, TOP, 75.0))

    found = {each.knob: each for each in bought(search)}

    assert found["batching"].gain == pytest.approx(0.25)
    assert found["workers"].gain == pytest.approx(1.0)
    assert (found["workers"].default, found["workers"].best) == ("1", "2")


def test_a_knob_that_was_not_put_back_says_so() -> None:
    found = bought(searched((Setting(), TOP, 100.0), (BEST, TOP, 150.0)))

    assert [each.is_known for each in found] == [False, False]


def test_the_front_has_what_nothing_beats_in_both() -> None:
    runs = [
        measured(Setting(), 100.0, 0.010),
        measured(BEST, 200.0, 0.020),
        measured(Setting(workers=2), 150.0, 0.025),
        measured(Setting(workers=4), 300.0, 0.005, rung=0),
    ]

    assert front(runs) == [0, 1]


def test_a_trial_that_failed_says_why() -> None:
    failed = Run(BEST, 0, 0.0, 1.0, {}, 0, Merit(-1, 0.0), problem="no server could be started: no memory")

    assert cells(failed)[-1] == "no server could be started: no memory"


def made() -> Report:
    search = searched((Setting(), TOP, 100.0), (BEST, TOP, 150.0), (BEST, LAST, 150.0), (Setting(), LAST, 100.0))
    facts = machine.facts()
    decided = verdict(search, Goals(), RUNS)
    files = {"settings.toml": "[models.m]\n", "model-config.yaml": "a: 1\n", "config.pbtxt": "x {}\n"}
    return Report(
        *("m<i>", "the most", "32 connections", "text, 1 bytes", facts, decided, BEST, Setting(), bought(search), RUNS),
        *(front(RUNS), 12.0, files),
    )


def test_the_report_reads_in_every_form() -> None:
    report = made()
    text, page = to_markdown(report), to_html(report)

    assert "| batches of 32 within 5 ms, 2 workers | long | 150 |" in text
    assert "[models.m]" in text and "+50.0 % over the default" in text
    assert "m&lt;i&gt;" in page and "<i>" not in page
    assert page.count("<circle") == len(RUNS)
    assert "http" not in page
    assert bought_lines(report)[0].startswith("batching: batches of 32 within 5 ms instead of adaptive: ")
    assert json.loads(msgspec.json.encode(report))["verdict"]["gain"] == pytest.approx(0.5)

import logging
from typing import Any

import pytest

from shoal.errors import InvalidInput, ServingError
from shoal.frontend.kserve.settings import LOG, TRACE, LogSettings, TraceSettings
from shoal.frontend.kserve.status import UnknownFormat, Unsupported


def test_a_models_trace_settings_are_the_common_ones_until_they_are_changed() -> None:
    settings = TraceSettings()
    assert settings.read() == settings.read("m") == TRACE

    assert settings.change({"trace_rate": "5", "unknown": 3, "trace_mode": "x"})["trace_rate"] == "5"
    assert settings.change({"trace_rate": "9", "trace_count": "-1"}, "m")["trace_rate"] == "9"
    assert settings.read("other")["trace_rate"] == "5"
    assert settings.change({"trace_rate": None}, "m")["trace_rate"] == "5"
    assert settings.change({"trace_rate": None}) == TRACE


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"trace_level": ["TIMESTAMPS"]}, "trace file name is not given"),
        ({"trace_level": "OFF"}, "is a list"),
        ({"trace_level": [1]}, "is a list"),
        ({"trace_rate": 5}, "is a string that is a number"),
        ({"trace_rate": "x"}, "Unable to parse 'trace_rate', got: x"),
        ({"trace_rate": "-1"}, "Expecting value >= 0"),
        ({"trace_count": "-2"}, "Unable to parse 'trace_count'. Expecting value >= -1, got:-2"),
        ({"log_frequency": "²"}, "Unable to parse 'log_frequency'"),
        ({"log_frequency": "9" * 30}, "Unable to parse 'log_frequency'"),
    ],
)
def test_a_trace_setting_that_means_nothing_changes_nothing(changes: dict[str, Any], words: str) -> None:
    settings = TraceSettings()
    with pytest.raises(InvalidInput, match=words):
        settings.change({"log_frequency": "7", **changes})
    assert settings.read() == TRACE


def test_files_are_not_named_by_clients() -> None:
    with pytest.raises(Unsupported, match="trace file location can not be updated"):
        TraceSettings().change({"trace_file": "x"})
    with pytest.raises(Unsupported, match="log file location can not be updated"):
        LogSettings(lambda _: None).change({"log_file": "x"})


def test_a_trace_level_of_nothing_is_off() -> None:
    assert TraceSettings().change({"trace_level": ["OFF", "X"]}) == TRACE


@pytest.mark.parametrize(
    ("changes", "level"),
    [
        ({"log_info": False}, logging.WARNING),
        ({"log_info": False, "log_warning": False}, logging.ERROR),
        ({"log_info": False, "log_warning": False, "log_error": False}, logging.CRITICAL),
        ({"log_verbose_level": 2, "log_info": False}, logging.DEBUG),
        ({"log_format": "ISO8601"}, logging.INFO),
    ],
)
def test_log_settings_decide_the_level(changes: dict[str, Any], level: int) -> None:
    levels: list[int] = []
    settings = LogSettings(levels.append)

    assert settings.change({"unknown": 1}) == LOG and not levels
    assert settings.change(changes) == {**LOG, **changes} == settings.read()
    assert levels == [level]


@pytest.mark.parametrize(
    "changes",
    [
        {"log_info": 1},
        {"log_verbose_level": -1},
        {"log_verbose_level": "1"},
        {"log_verbose_level": 2**32},
        {"log_format": "x"},
    ],
)
def test_a_log_setting_that_means_nothing_changes_nothing(changes: dict[str, Any]) -> None:
    levels: list[int] = []
    settings = LogSettings(levels.append)
    with pytest.raises(ServingError) as refused:
        settings.change({"log_warning": False, **changes})
    assert isinstance(refused.value, UnknownFormat) == ("log_format" in changes)
    assert settings.read() == LOG and not levels


def test_where_the_level_is_not_theirs_clients_read_and_change_nothing() -> None:
    settings = LogSettings(None)
    assert settings.read() == settings.change({}) == settings.change({"unknown": 1}) == LOG
    with pytest.raises(Unsupported, match="not changed by its clients"):
        settings.change({"log_info": False})
    assert settings.read() == LOG

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import InvalidInput
from shoal.tools import units


@pytest.mark.parametrize(
    ("text", "seconds"), [("50ms", 0.05), ("3s", 3.0), ("2m", 120.0), ("1.5", 1.5), ("250us", 0.00025), ("1h", 3600.0)]
)
def test_durations_are_read_as_people_write_them(text: str, seconds: float) -> None:
    assert units.seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "0", "0ms", "-1s", "fast", "5 days", "1e3s", "nan"])
def test_what_is_no_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidInput, match="50ms, 3s or 2m"):
        units.seconds(text)


@pytest.mark.parametrize(
    ("text", "levels"),
    [
        ("1,8,64", [1, 8, 64]),
        ("1:64:x2", [1, 2, 4, 8, 16, 32, 64]),
        ("1:100:x10", [1, 10, 100]),
        ("10:50:20", [10, 30, 50]),
        ("1:9", [1, 2, 4, 8]),
        ("8,1,8", [8, 1]),
        ("1,4:8:+2", [1, 4, 6, 8]),
    ],
)
def test_levels_are_lists_and_ranges(text: str, levels: list[int]) -> None:
    assert units.levels(text, "--concurrency") == levels


@pytest.mark.parametrize("text", ["0", "0,1", "a", "1:", "8:1", "1:8:x1", "0:8:x2", "1,,2", "-1", "1:1000:1"])
def test_levels_that_mean_nothing_are_refused_by_their_flag(text: str) -> None:
    with pytest.raises(InvalidInput, match="--concurrency"):
        units.levels(text, "--concurrency")


def test_rates_may_have_fractions() -> None:
    assert units.rates("0.5,100") == [0.5, 100.0]


@pytest.mark.parametrize("text", ["0", "-1", "inf", "nan", "x", "1,,2"])
def test_rates_that_mean_nothing_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="--rate"):
        units.rates(text)


def test_shares_are_per_cent() -> None:
    assert units.percent("5%") == units.percent("5") == 0.05
    for text in ("0%", "100%", "x", "-3"):
        with pytest.raises(InvalidInput, match="5%"):
            units.percent(text)


@given(st.floats(0.001, 1e9))
def test_numbers_keep_what_matters(value: float) -> None:
    shown = float(units.show(value).replace(",", ""))

    assert shown == pytest.approx(value, rel=0.05, abs=0.0006)


def test_memory_has_a_unit() -> None:
    assert units.show_bytes(999) == "999 B"
    assert units.show_bytes(21_000_000) == "21 MB"
    assert units.show_bytes(-1500) == "-2 KB"
    assert units.show_bytes(3.2e12) == "3200.0 GB"

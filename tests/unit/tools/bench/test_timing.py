import pytest

from shoal.tools.bench import timing
from shoal.tools.bench.messages import Split

HEADER = 'queue;dur=0.31, preprocess;dur=2.10, inference;dur=8.02, postprocess;dur=0.10, batch;desc="4 volley-over"'


def test_the_servers_words_are_read() -> None:
    split = Split()

    timing.note(split, HEADER)

    assert {name: times.total for name, times in split.times.items()} == pytest.approx(
        {"queue": 0.00031, "preprocess": 0.0021, "inference": 0.00802, "postprocess": 0.0001}
    )
    assert split.rows == {4: 1}
    assert split.reasons == {"volley-over": 1}


@pytest.mark.parametrize("header", ["", "cache", "db;dur=x", 'batch;desc="many"', "a;b;c", "x;dur=1.2.3"])
def test_other_servers_words_do_no_harm(header: str) -> None:
    split = Split()

    timing.note(split, header)

    assert (split.rows, split.times) == ({}, {})


def test_samples_are_put_together_in_the_order_of_a_request() -> None:
    first, second = Split(), Split()
    timing.note(first, 'inference;dur=1, batch;desc="2 full"')
    timing.note(second, 'queue;dur=1, inference;dur=3, batch;desc="1 idle"')
    timing.note(second, 'batch;desc="2 idle"')

    found = timing.together([first, second])

    assert list(found.times) == ["queue", "inference"]
    assert found.times["inference"].mean == pytest.approx(0.002)
    assert (found.rows, found.reasons) == ({1: 1, 2: 2}, {"idle": 2, "full": 1})


def test_the_mean_of_batches_is_not_the_mean_of_their_riders() -> None:
    assert timing.mean_rows({1: 1, 3: 3}) == 2.0  # one batch of 1 and one of 3
    assert timing.mean_rows({}) == 0.0

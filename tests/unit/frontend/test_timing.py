"""What an answer says about its time: durations as text."""

import math

from hypothesis import given
from hypothesis import strategies as st

from shoal.frontend.timing import milliseconds


@given(st.floats(0.0, 1e8))
def test_a_duration_is_written_as_formatting_would_write_it_to_the_microsecond(seconds: float) -> None:
    written = milliseconds(seconds)
    whole, _, rest = written.partition(b".")
    assert whole.isdigit() and len(rest) == 3 and rest.isdigit()
    assert abs(float(written) - 1000 * seconds) <= 0.0005001 + 1e-12 * seconds


def test_what_is_below_a_millisecond_and_what_is_just_above_meet() -> None:
    written = [milliseconds(one) for one in (0.0, 0.9994e-6, 0.0009994, 0.0009996, 0.001, 20.1234567)]
    assert written == [b"0.000", b"0.001", b"0.999", b"1.000", b"1.000", b"20123.457"]


def test_what_is_no_duration_is_written_all_the_same() -> None:
    assert milliseconds(-0.001) == b"-1.000" and milliseconds(math.nan) == b"nan" and milliseconds(math.inf) == b"inf"

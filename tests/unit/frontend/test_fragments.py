"""A message in pieces says what it says in one."""

from hypothesis import given
from hypothesis import strategies as st

from shoal.frontend.fragments import Fragments

BYTES = st.binary(max_size=9)
PIECES: st.SearchStrategy[list[bytes | memoryview]] = st.lists(
    BYTES | BYTES.map(lambda text: memoryview(text)), max_size=6
)


@given(PIECES, st.integers(0, 60), st.integers(0, 60))
def test_a_cut_is_the_slice_of_the_whole(pieces: list[bytes | memoryview], start: int, end: int) -> None:
    whole, fragments = b"".join(pieces), Fragments(pieces)

    assert len(fragments) == len(whole)
    assert fragments.joined() == whole
    assert b"".join(fragments.cut(start, end)) == whole[start:end]


@given(PIECES, st.integers(0, 60), st.binary(max_size=3), st.integers(0, 9))
def test_what_it_starts_with_is_what_the_whole_starts_with(
    pieces: list[bytes | memoryview], at: int, text: bytes, size: int
) -> None:
    whole, fragments = b"".join(pieces), Fragments(pieces)

    assert fragments.startswith(text, at) == (whole[at : at + len(text)] == text)
    assert fragments.startswith(whole[at : at + size], at)

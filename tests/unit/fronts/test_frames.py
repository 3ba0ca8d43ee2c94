import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import ProtocolError
from shoal.fronts import frames
from shoal.fronts.frames import HEAD_SIZE, Frames, count_of, pack_count, pack_head

Told = tuple[int, int, bytes]
told = st.tuples(st.integers(0, 255), st.integers(0, 2**64 - 1), st.binary(max_size=200))


def packed(messages: list[Told]) -> bytes:
    return b"".join(pack_head(key, len(payload), kind) + payload for kind, key, payload in messages)


@given(st.lists(told, max_size=8), st.data())
def test_any_cut_of_the_stream_gives_the_same_frames(messages: list[Told], data: st.DataObject) -> None:
    stream = packed(messages)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    heard: list[Told] = []
    reader = Frames(lambda *frame: heard.append(frame))
    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        reader.feed(stream[start:stop])

    assert heard == messages
    assert not reader.is_inside


@given(st.lists(told, min_size=1, max_size=4), st.data())
def test_a_stream_that_ends_inside_a_frame_is_known(messages: list[Told], data: st.DataObject) -> None:
    stream = packed(messages)
    whole = {len(packed(messages[:count])) for count in range(len(messages) + 1)}
    stop = data.draw(st.integers(0, len(stream)))
    reader = Frames(lambda *frame: None)
    reader.feed(stream[:stop])

    assert reader.is_inside is (stop not in whole)


def test_a_frame_over_the_limit_is_refused_before_it_is_collected() -> None:
    reader = Frames(lambda *frame: None, largest=100)
    reader.feed(packed([(1, 2, bytes(100))]))
    with pytest.raises(ProtocolError, match="101 bytes"):
        reader.feed(pack_head(1, 101, 2) + b"x")


def test_no_kind_has_two_meanings() -> None:
    kinds = [value for name, value in vars(frames).items() if name.isupper() and isinstance(value, int) and value < 128]
    kinds.remove(HEAD_SIZE)

    assert len(kinds) == len(set(kinds)) == 27


def test_a_count_has_eight_bytes() -> None:
    assert count_of(pack_count(2**40)) == 2**40
    with pytest.raises(ProtocolError):
        count_of(b"\0" * 7)

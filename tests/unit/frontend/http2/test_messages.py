"""Messages inside the data of a stream."""

import gzip
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.frontend.fragments import Fragments
from shoal.frontend.http2.messages import LARGE, Messages, Refused
from shoal.frontend.rpc import Code
from tests.unit.frontend.http2.fakes import message


def feed(messages: Messages, *pieces: bytes) -> list[bytes | Fragments]:
    got: list[bytes | Fragments] = []
    for piece in pieces:
        if messages.missing > len(piece):
            messages.extend(memoryview(piece), len(piece))
        else:
            got += messages.feed(memoryview(piece))
    return got


@given(st.lists(st.binary(max_size=20), max_size=6), st.data())
def test_messages_come_out_however_they_are_cut(texts: list[bytes], draw: st.DataObject) -> None:
    raw = b"".join(map(message, texts))
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(raw)), max_size=8)))
    pieces = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    messages = Messages(b"identity", 100)

    assert feed(messages, *pieces) == texts
    assert messages.held == 0


@given(st.lists(st.integers(0, 3 * LARGE), max_size=3), st.integers(1000, 2 * LARGE))
def test_large_messages_are_left_in_pieces_for_whoever_wants_them_so(sizes: list[int], step: int) -> None:
    texts = [bytes([number]) * size for number, size in enumerate(sizes)]
    raw = b"".join(map(message, texts))
    messages = Messages(b"identity", 2**20, in_pieces=True)

    got = feed(messages, *(raw[at : at + step] for at in range(0, len(raw), step)))

    assert [text if isinstance(text, bytes) else text.joined() for text in got] == texts
    assert [isinstance(text, Fragments) for text in got] == [size >= LARGE for size in sizes]
    assert messages.held == 0


def test_a_large_message_that_was_compressed_comes_whole() -> None:
    messages = Messages(b"gzip", 2**20, in_pieces=True)

    assert feed(messages, message(gzip.compress(bytes(LARGE), mtime=0), 1)) == [bytes(LARGE)]


def test_what_is_held_is_counted() -> None:
    messages = Messages(b"identity", 100)
    raw = message(b"abc") + message(b"defgh")

    held = []
    for place in range(len(raw)):
        feed(messages, raw[place : place + 1])
        held.append(messages.held)

    assert held == [1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0]


@pytest.mark.parametrize(
    ("encoding", "raw"), [(b"gzip", gzip.compress(b"hello" * 9, mtime=0)), (b"deflate", zlib.compress(b"hello" * 9))]
)
def test_compressed_messages_are_decompressed(encoding: bytes, raw: bytes) -> None:
    messages = Messages(encoding, 100)

    assert feed(messages, message(raw, 1) + message(b"plain")) == [b"hello" * 9, b"plain"]


@pytest.mark.parametrize(
    ("encoding", "raw", "code"),
    [
        (b"identity", message(b"x" * 101), Code.RESOURCE_EXHAUSTED),
        (b"identity", message(b"x", 1), Code.INTERNAL),
        (b"identity", message(b"x", 2), Code.INTERNAL),
        (b"gzip", message(b"x", 1), Code.INTERNAL),
        (b"gzip", message(gzip.compress(b"x", mtime=0)[:-3], 1), Code.INTERNAL),
        (b"gzip", message(gzip.compress(b"x", mtime=0) + b"y", 1), Code.INTERNAL),
        (b"gzip", message(zlib.compress(b"x"), 1), Code.INTERNAL),
        (b"gzip", message(gzip.compress(b"x" * 10_000, mtime=0), 1), Code.RESOURCE_EXHAUSTED),
    ],
)
def test_bad_messages_are_refused_after_the_good_ones(encoding: bytes, raw: bytes, code: Code) -> None:
    got = []
    with pytest.raises(Refused) as caught:
        for text in Messages(encoding, 100).feed(message(b"good") + raw):
            got.append(text)  # noqa: PERF402

    assert got == [b"good"]
    assert caught.value.code == code


def test_the_largest_message_is_taken() -> None:
    assert feed(Messages(b"identity", 100), message(b"x" * 100)) == [b"x" * 100]
    assert feed(Messages(b"gzip", 100), message(gzip.compress(b"x" * 100, mtime=0), 1)) == [b"x" * 100]


def test_a_message_too_large_is_refused_by_its_prefix() -> None:
    with pytest.raises(Refused, match="101 bytes"):
        feed(Messages(b"identity", 100), message(b"x" * 101)[:5])


def test_a_bomb_is_refused_before_it_is_whole() -> None:
    bomb = gzip.compress(bytes(20_000_000))
    tracemalloc.start()
    try:
        with pytest.raises(Refused, match="decompresses to more"):
            feed(Messages(b"gzip", 100_000), message(bomb, 1))
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_very_many_small_pieces_hold_little_more_than_their_bytes() -> None:
    messages = Messages(b"identity", 2**20)
    feed(messages, message(bytes(200_000))[:5])
    tracemalloc.start()
    try:
        for _ in range(199_999):
            feed(messages, bytes(1))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert messages.held == 200_004
    assert held < 600_000
    assert feed(messages, bytes(1)) == [bytes(200_000)]


def test_what_is_missing_is_known_once_the_prefix_is_there() -> None:
    messages = Messages(b"identity", 100)
    feed(messages, message(b"abcdef")[:4])
    assert messages.missing < 0
    feed(messages, message(b"abcdef")[4:7])
    assert messages.missing == 4

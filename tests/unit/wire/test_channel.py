import itertools
import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.errors import ProtocolError
from shoal.wire.channel import HEAD, BlockingChannel, FrameReader, PeerDied, frame
from shoal.wire.messages import Cancel, Stop, decode_command, encode

FRAMES = st.lists(st.tuples(st.integers(0, 300), st.lists(st.binary(max_size=40), max_size=4)), max_size=6)


def stream_of(frames: list[tuple[int, list[bytes]]]) -> bytes:
    return b"".join(b"".join(frame(Cancel(number, 0), data)) for number, data in frames)


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(stream) + 1) for place in places), len(stream)]
    return [stream[start:end] for start, end in itertools.pairwise(edges)]


@settings(max_examples=300, deadline=None)
@given(frames=FRAMES, places=st.lists(st.integers(0, 2000), max_size=12))
def test_a_stream_cut_anywhere_gives_the_same_frames(frames: list[tuple[int, list[bytes]]], places: list[int]) -> None:
    reader = FrameReader()
    pieces = cut(stream_of(frames), places)
    got = [(decode_command(message), data) for piece in pieces for message, data in reader.feed(piece)]

    assert [(message, bytes(data)) for message, data in got] == [(Cancel(n, 0), b"".join(data)) for n, data in frames]
    assert not reader.is_inside_frame


@given(frames=FRAMES)
def test_a_stream_that_comes_byte_by_byte_gives_the_same_frames(frames: list[tuple[int, list[bytes]]]) -> None:
    reader = FrameReader()
    got = [bytes(data) for byte in stream_of(frames) for _, data in reader.feed(bytes([byte]))]

    assert got == [b"".join(data) for _, data in frames]


@given(data=st.binary(max_size=60), place=st.integers(1, 10_000))
def test_a_reader_is_inside_a_frame_from_its_first_byte_to_its_last(data: bytes, place: int) -> None:
    reader = FrameReader()
    whole = b"".join(frame(Stop(), [data]))
    first = whole[: 1 + place % (len(whole) - 1)]
    assert list(reader.feed(first)) == []
    assert reader.is_inside_frame
    assert len(list(reader.feed(whole[len(first) :]))) == 1

    assert not reader.is_inside_frame


@given(frames=FRAMES.filter(bool), begun=st.sampled_from([0, 0, 5]), short=st.sampled_from([0, 0, 1, 30]))
def test_only_a_frame_that_is_whole_and_alone_is_taken_at_once(
    frames: list[tuple[int, list[bytes]]], begun: int, short: int
) -> None:
    reader = FrameReader()
    stream = stream_of(frames)
    list(reader.feed(stream[:begun]))  # less than a head
    piece = stream[begun : max(begun, len(stream) - short)]
    taken = reader.take_whole(piece)

    if not begun and not short:
        assert (taken is not None) == (len(frames) == 1)
    elif len(frames) == 1:
        assert taken is None
    if taken is None:  # and nothing of it: it is fed
        rest = [*reader.feed(piece), *reader.feed(stream[begun + len(piece) :])]
        assert [bytes(data) for _, data in rest] == [b"".join(data) for _, data in frames]
    else:
        (fed,) = FrameReader().feed(stream)
        assert [bytes(part) for part in taken] == [bytes(part) for part in fed]
        assert not reader.is_inside_frame


def test_a_frame_is_valid_while_it_is_held() -> None:
    reader = FrameReader()
    whole = b"".join(frame(Stop(), [b"first"]))
    split = [*reader.feed(whole[:15]), *reader.feed(whole[15:])]
    list(reader.feed(b"".join(frame(Stop(), [b"other"]))[:20]))

    assert bytes(split[0][1]) == b"first"


def test_an_empty_frame_is_a_frame() -> None:
    reader = FrameReader()

    assert [bytes(m) + bytes(d) for piece in (b"\0" * 5, b"\0" * 7) for m, d in reader.feed(piece)] == [b""]
    assert len(list(reader.feed(b"\0" * HEAD.size * 2))) == 2


@pytest.mark.parametrize("sizes", [(101, 0), (0, 1001), (2**32 - 1, 2**64 - 1)])
@pytest.mark.parametrize("is_cut", [False, True])
def test_an_oversize_frame_is_refused_before_anything_is_kept_for_it(sizes: tuple[int, int], is_cut: bool) -> None:
    reader = FrameReader(max_message=100, max_data=1000)
    head = HEAD.pack(*sizes)

    with pytest.raises(ProtocolError, match="over the limit"):
        for piece in (head[:5], head[5:]) if is_cut else (head,):
            list(reader.feed(piece))
    with pytest.raises(ProtocolError, match="over the limit"):
        FrameReader(max_message=100, max_data=1000).take_whole(head)


def test_a_frame_as_large_as_is_allowed_is_taken() -> None:
    reader = FrameReader(max_message=100, max_data=1000)

    assert len(list(reader.feed(HEAD.pack(100, 1000) + bytes(1100)))) == 1


def test_a_frame_refers_to_its_data_without_copying_it() -> None:
    data = bytearray(1000)
    buffers = frame(Stop(), [data])

    assert buffers[1] is data
    assert HEAD.unpack_from(bytes(buffers[0])) == (len(encode(Stop())), 1000)


# -- over a socket -------------------------------------------------------------------------------------------------


@contextmanager
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(20)
        theirs.settimeout(20)
        yield ours, theirs


def test_a_peer_that_closed_between_frames_has_ended() -> None:
    with pair() as (ours, theirs):
        channel = BlockingChannel(ours)
        BlockingChannel(theirs).send(Stop())
        theirs.close()

        assert channel.receive() is not None
        assert channel.receive() is None


@pytest.mark.parametrize("kept", [1, HEAD.size - 1, HEAD.size, HEAD.size + 1, -1])
def test_a_peer_that_closed_inside_a_frame_has_died(kept: int) -> None:
    with pair() as (ours, theirs):
        channel = BlockingChannel(ours)
        theirs.sendall(b"".join(frame(Stop(), [b"data"])) + b"".join(frame(Stop(), [b"data"]))[:kept])
        theirs.close()
        assert channel.receive() is not None

        with pytest.raises(PeerDied):
            channel.receive()


def test_frames_that_came_in_one_read_are_given_one_by_one() -> None:
    with pair() as (ours, theirs):
        channel = BlockingChannel(ours)
        theirs.sendall(stream_of([(1, [b"a"]), (2, []), (3, [b"c", b"d"])]))
        got = [channel.receive() for _ in range(3)]

    assert [bytes(frame[1]) for frame in got if frame] == [b"a", b"", b"cd"]


@pytest.mark.parametrize("count", [1, 511, 512, 1500, 5000])
def test_more_buffers_than_one_call_may_gather_arrive_whole(count: int) -> None:
    pieces = [b"%d," % number for number in range(count)]
    with pair() as (ours, theirs):
        sender = threading.Thread(target=BlockingChannel(theirs).send, args=(Stop(), pieces))
        sender.start()
        got = BlockingChannel(ours).receive()
        sender.join(20)

    assert got is not None
    assert bytes(got[1]) == b"".join(pieces)


def test_a_frame_larger_than_the_socket_holds_reaches_a_slow_reader_whole() -> None:
    pieces = [random.Random(7).randbytes(size) for size in (0, 100_000, 1, 0, 400_000, 3)]
    with pair() as (ours, theirs):
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sender = threading.Thread(target=BlockingChannel(theirs).send, args=(Cancel(9, 1), pieces))
        sender.start()
        reader = FrameReader()
        got: list[tuple[object, bytes]] = []
        while not got:
            got = [(decode_command(message), bytes(data)) for message, data in reader.feed(ours.recv(777))]
        sender.join(20)

    assert got == [(Cancel(9, 1), b"".join(pieces))]


def test_a_closed_channel_closes_its_socket() -> None:
    with pair() as (ours, theirs):
        BlockingChannel(theirs).close()

        assert ours.recv(1) == b""

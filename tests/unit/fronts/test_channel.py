import asyncio
from collections.abc import Iterator

import pytest

from shoal.fronts.channel import JOINED
from shoal.fronts.frames import pack_head
from tests.unit.fronts.wires import Wire


@pytest.fixture
def wire() -> Iterator[Wire]:
    async def make() -> Wire:
        return Wire()

    yield asyncio.run(make())


def test_all_frames_of_a_turn_leave_in_one_write(wire: Wire) -> None:
    wire.put(1, 7, b"a")
    wire.put(2, 8)
    wire.put(3, 9, b"b", b"c")
    assert wire.transport.writes == []
    (flush,) = wire.turns
    flush()
    assert len(wire.transport.writes) == 1
    assert wire.turn() == [(1, 7, b"a"), (2, 8, b""), (3, 9, b"bc")]


def test_large_pieces_keep_their_place_among_small_ones(wire: Wire) -> None:
    large = bytes(JOINED + 1)
    wire.put(1, 1, b"head", large)
    wire.put(2, 2, b"x")
    assert wire.turn() == [(1, 1, b"head" + large), (2, 2, b"x")]


def test_the_last_frame_becomes_the_one_that_ends(wire: Wire) -> None:
    wire.put(1, 7, b"a", b"b")
    wire.end(7, 1, 9)
    assert wire.turn() == [(9, 7, b"ab")]


@pytest.mark.parametrize("between", ["other key", "other kind", "a turn", "it ended"])
def test_a_frame_that_is_not_the_last_any_more_stays_what_it_is(wire: Wire, between: str) -> None:
    wire.put(1, 7, b"a")
    left = []
    match between:
        case "other key":
            wire.put(1, 8, b"b")
        case "other kind":
            wire.put(2, 7, b"b")
        case "a turn":
            left = wire.turn()
        case "it ended":
            wire.end(7, 1, 5)
    wire.end(7, 1, 9)
    assert [*left, *wire.turn()][-1] == (9, 7, b"")


def test_what_cannot_be_understood_ends_the_channel(wire: Wire) -> None:
    def refuse(kind: int, key: int, payload: bytes) -> None:
        raise LookupError(key)

    wire._frames._take = refuse
    wire.data_received(pack_head(3, 0, 1))
    assert wire.transport.is_aborted
    wire.connection_lost(None)
    assert wire.lost == ["it said something that cannot be: LookupError(3)"]


def test_an_end_inside_a_frame_is_told_apart(wire: Wire) -> None:
    wire.data_received(pack_head(3, 10, 1))
    wire.connection_lost(None)
    assert wire.lost == ["it ended in the middle of a frame"]


def test_what_is_put_after_the_end_goes_nowhere(wire: Wire) -> None:
    wire.connection_lost(None)
    wire.put(1, 1, b"x")
    assert wire.turn() == []
    assert wire.blocked


def test_a_channel_that_catches_up_says_so(wire: Wire) -> None:
    wire.pause_writing()
    assert wire.blocked
    wire.resume_writing()
    assert not wire.blocked
    assert wire.paces == [True, False]

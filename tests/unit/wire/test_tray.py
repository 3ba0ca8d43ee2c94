"""Trays: what a worker lays down is read where it lies, and its place comes back once nobody looks at it."""

import gc
import mmap
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import ProtocolError
from shoal.wire import tray as trays
from shoal.wire.tray import LARGE, Tray, TrayWriter, order_of


class Pair:
    """Both ends of one tray."""

    def __init__(self, size: int = 4 * 2**20) -> None:
        self.front = Tray(size)
        self.worker = TrayWriter(self.front.fd)
        os.close(self.front.fd)

    def lay(self, *buffers: bytes) -> int:
        laid = self.worker.lay(buffers, sum(map(len, buffers)))
        assert laid is not None
        return laid.hand_over()

    def give_back(self) -> list[int]:
        gc.collect()
        freed = self.front.take_freed()
        self.worker.take_back(freed)
        return freed


def test_an_answer_is_read_where_the_worker_laid_it() -> None:
    pair = Pair()
    first, second = pair.lay(b"head", b"x" * LARGE), pair.lay(b"y" * 100_000)

    assert bytes(pair.front.read(first, LARGE + 4)) == b"head" + b"x" * LARGE
    assert bytes(pair.front.read(second, 100_000)) == b"y" * 100_000


def test_what_is_read_cannot_be_written() -> None:
    pair = Pair()
    view = pair.front.read(pair.lay(b"abc"), 3)
    with pytest.raises(TypeError):
        view[0] = 1


def test_a_place_comes_back_when_the_last_look_at_it_is_gone() -> None:
    pair = Pair()
    offset = pair.lay(b"z" * LARGE)
    view = pair.front.read(offset, LARGE)
    piece = view[5:10]
    del view
    assert pair.give_back() == []
    assert bytes(piece) == b"zzzzz"
    del piece
    assert pair.give_back() == [offset]
    assert pair.give_back() == []
    assert pair.lay(b"n" * LARGE) == offset


def test_a_place_is_not_used_again_while_it_is_looked_at() -> None:
    pair = Pair()
    offset = pair.lay(b"a" * LARGE)
    view = pair.front.read(offset, LARGE)
    assert pair.lay(b"b" * LARGE) != offset
    assert bytes(view[:1]) == b"a"


def test_a_full_tray_takes_no_more_and_then_again() -> None:
    pair = Pair(2 * LARGE)
    offsets = [pair.lay(b"x"), pair.lay(b"y")]
    assert pair.worker.lay([b"z"], 1) is None
    pair.worker.take_back(offsets[:1])
    assert pair.lay(b"z") == offsets[0]


def test_an_answer_larger_than_the_tray_is_not_taken() -> None:
    pair = Pair(2 * LARGE)
    assert pair.worker.lay([bytes(3 * LARGE)], 3 * LARGE) is None


def test_an_answer_that_is_given_up_leaves_its_place() -> None:
    pair = Pair(LARGE)
    laid = pair.worker.lay([b"abc"], 3)
    assert laid is not None and len(laid) == 3 and bytes(laid.view) == b"abc"
    assert pair.worker.lay([b"x"], 1) is None
    del laid
    gc.collect()
    assert pair.worker.lay([b"x"], 1) is not None


def test_an_answer_that_was_handed_over_keeps_its_place() -> None:
    pair = Pair(LARGE)
    pair.lay(b"abc")
    gc.collect()
    assert pair.worker.lay([b"x"], 1) is None


@pytest.mark.parametrize(("offset", "size"), [(-1, 1), (2**20, 1), (0, -1), (0, 2**20 + 1), (2**20 - LARGE + 1, 1)])
def test_a_place_outside_is_refused(offset: int, size: int) -> None:
    with pytest.raises(ProtocolError, match="no answer of"):
        Pair(2**20).front.read(offset, size)


def test_a_place_that_is_looked_at_cannot_be_given_a_second_time() -> None:
    pair = Pair()
    offset = pair.lay(b"abc")
    view = pair.front.read(offset, 3)
    with pytest.raises(ProtocolError):
        pair.front.read(offset, 3)
    assert bytes(view) == b"abc"


def test_a_place_that_was_not_lent_cannot_come_back() -> None:
    with pytest.raises(ProtocolError, match="no answer lies at 7"):
        Pair().worker.take_back([7])


def test_the_worker_cannot_change_the_size() -> None:
    front = Tray(LARGE)
    try:
        for size in (0, 2 * LARGE):
            with pytest.raises(PermissionError):
                os.ftruncate(front.fd, size)
    finally:
        os.close(front.fd)


def test_idle_places_beyond_what_is_kept_give_their_pages_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trays, "KEEP", 2 * LARGE)
    front = Tray(8 * LARGE)
    worker = TrayWriter(front.fd)
    laid = [worker.lay([bytes([n + 1]) * LARGE], LARGE) for n in range(6)]
    offsets = [each.hand_over() for each in laid if each is not None]
    full = os.fstat(front.fd).st_blocks * 512
    worker.take_back(offsets)
    left = os.fstat(front.fd).st_blocks * 512
    os.close(front.fd)
    assert full >= 6 * LARGE - mmap.PAGESIZE
    assert left == 2 * LARGE


@given(st.integers(0, trays.SIZE))
def test_every_size_has_a_place_that_is_large_enough_and_not_twice_too_large(size: int) -> None:
    room = 1 << order_of(size)
    assert room >= max(size, LARGE)
    assert room == LARGE or room < 2 * size

import gc
import itertools
import os
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.errors import ProtocolError
from shoal.wire import memory
from shoal.wire.memory import SMALLEST, Arena, ArenaBlock, ArenaReader

MIB = 2**20


@pytest.fixture
def arena() -> Iterator[Arena]:
    arena = Arena(4 * MIB)
    yield arena
    arena.close()


def lend(arena: Arena, size: int) -> ArenaBlock:
    block = arena.lend(size)
    assert block is not None
    return block


def used(arena: Arena) -> int:
    """Bytes of memory the system has given to the arena."""
    return os.fstat(arena.fd).st_blocks * 512


def fill(block: ArenaBlock, byte: int) -> None:
    block.view[:] = bytes([byte]) * block.size


def test_a_block_is_as_long_as_was_asked_and_holds_what_was_written(arena: Arena) -> None:
    block = lend(arena, 100)
    fill(block, 7)

    assert block.size == len(block.view) == 100
    assert bytes(arena.view(block.offset, 100)) == b"\x07" * 100


def test_nothing_is_used_before_it_is_written(arena: Arena) -> None:
    block = lend(arena, 2 * MIB)
    assert used(arena) == 0
    fill(block, 1)

    assert used(arena) == 2 * MIB


def test_no_more_is_lent_than_the_limit(arena: Arena) -> None:
    blocks = [lend(arena, MIB) for _ in range(4)]
    assert arena.lend(1) is None
    blocks[0].release()

    assert arena.lend(MIB) is not None
    assert arena.lent == 4 * MIB


@pytest.mark.parametrize("size", [0, -1, 4 * MIB + 1, 100 * MIB])
def test_a_size_that_cannot_be_lent_is_none(arena: Arena, size: int) -> None:
    assert arena.lend(size) is None
    assert arena.lent == 0


@pytest.mark.parametrize(
    ("size", "room"),
    [(1, SMALLEST), (SMALLEST, SMALLEST), (SMALLEST + 1, 2 * SMALLEST), (MIB, MIB), (MIB + 1, 2 * MIB)],
)
def test_room_is_the_next_power_of_two(arena: Arena, size: int, room: int) -> None:
    lend(arena, size)

    assert arena.lent == room


def test_a_block_given_back_is_lent_again(arena: Arena) -> None:
    block = lend(arena, 20_000)
    offset = block.offset
    block.release()

    assert lend(arena, 30_000).offset == offset


def test_giving_back_twice_is_giving_back_once(arena: Arena) -> None:
    block = lend(arena, 100)
    block.release()
    block.release()
    first, second = lend(arena, 100), lend(arena, 100)

    assert first.offset != second.offset
    assert arena.lent == 2 * SMALLEST


def test_a_block_is_not_read_after_it_was_given_back(arena: Arena) -> None:
    block = lend(arena, 100)
    block.release()

    with pytest.raises(AssertionError, match="given back"):
        _ = block.view


def test_as_much_as_was_in_use_lately_stays_warm_until_nothing_is_lent(
    arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "KEEP", MIB)
    blocks = [lend(arena, MIB) for _ in range(4)]
    for block in blocks:
        fill(block, 1)
    for block in blocks[1:]:
        block.release()
    assert used(arena) == 3 * MIB  # with a little of the peak forgotten already

    blocks[0].release()
    assert used(arena) == MIB


def test_what_was_in_use_long_ago_does_not_stay_warm(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "KEEP", MIB)
    held, *blocks = [lend(arena, MIB) for _ in range(4)]
    for block in (held, *blocks):
        fill(block, 1)
    for block in blocks:
        block.release()
    for _ in range(2**memory.FORGET * 2):
        lend(arena, MIB).release()

    blocks = [lend(arena, MIB) for _ in range(2)]
    for block in blocks:
        fill(block, 1)
    for block in blocks:
        block.release()
    assert used(arena) == 2 * MIB  # the one held, and one


def test_pages_of_many_idle_blocks_go_back_to_the_system(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "KEEP", MIB)
    monkeypatch.setattr(memory, "FORGET", 0)
    blocks = [lend(arena, MIB) for _ in range(4)]
    for block in blocks:
        fill(block, 1)
    assert used(arena) == 4 * MIB
    for block in blocks:
        block.release()
    assert used(arena) == MIB  # one stays warm

    again = [lend(arena, MIB) for _ in range(4)]
    assert len({block.offset for block in again} & {block.offset for block in blocks}) == 4
    fill(again[0], 2)
    fill(again[1], 2)
    assert used(arena) == 2 * MIB


def test_a_warm_block_is_lent_before_a_cold_one(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "KEEP", MIB)
    monkeypatch.setattr(memory, "FORGET", 0)
    one, two = lend(arena, MIB), lend(arena, MIB)
    warm = one.offset
    one.release()
    two.release()

    assert lend(arena, MIB).offset == warm


def test_what_is_kept_warm_is_counted_again_when_it_comes_back(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "KEEP", MIB)
    for _ in range(5):
        block = lend(arena, MIB)
        fill(block, 1)
        block.release()

        assert used(arena) == MIB


def test_sizes_do_not_fight_over_the_address_space() -> None:
    arena = Arena(MIB)
    for size in (16_000, 30_000, 60_000, 120_000, 250_000):  # all of the limit in one size, then in the next
        blocks = []
        while (block := arena.lend(size)) is not None:
            blocks.append(block)
        assert sum(block.size for block in blocks) > MIB // 2
        for block in blocks:
            block.release()
    arena.close()


def test_the_address_space_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "SPREAD", 1)
    arena = Arena(64 * 1024)
    small = lend(arena, SMALLEST)
    small.release()

    assert arena.lend(64 * 1024) is None
    assert arena.lent == 0
    arena.close()


def test_a_worker_reads_what_the_front_process_wrote(arena: Arena) -> None:
    block = lend(arena, 50)
    fill(block, 9)
    reader = ArenaReader(arena.fd)
    view = reader.read(block.offset, block.size)

    assert bytes(view) == b"\x09" * 50
    assert view.readonly


@pytest.mark.parametrize(("offset", "size"), [(-1, 10), (0, 32 * MIB + 1), (32 * MIB, 1), (0, -1)])
def test_a_worker_reads_nothing_outside_the_arena(arena: Arena, offset: int, size: int) -> None:
    reader = ArenaReader(arena.fd)

    with pytest.raises(ProtocolError, match="no block"):
        reader.read(offset, size)


def test_a_closed_arena_gives_its_memory_back() -> None:
    arena = Arena(MIB)
    fd = os.dup(arena.fd)
    lend(arena, 100)
    arena.close()
    gc.collect()

    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(arena.fd)
    os.close(fd)


def test_a_block_given_back_after_the_arena_closed_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "KEEP", 0)  # it would give pages back at once
    arena = Arena(MIB)
    block = lend(arena, 100)
    arena.close()
    block.release()


def test_an_arena_may_close_while_somebody_still_looks_at_a_block() -> None:
    arena = Arena(MIB)
    block = lend(arena, 100)
    fill(block, 3)
    view = block.view
    arena.close()

    assert bytes(view) == b"\x03" * 100
    block.release()  # late, and harmless
    view.release()


STEPS = st.lists(st.one_of(st.integers(-5, 300_000), st.tuples(st.integers(0, 50))), max_size=60)


@settings(max_examples=200, deadline=None)
@given(steps=STEPS, keep=st.sampled_from([0, 64 * 1024, MIB]))
def test_no_two_lent_blocks_overlap_and_none_changes_under_its_owner(steps: list[int | tuple[int]], keep: int) -> None:
    """A size lends, a 1-tuple gives that one of the lent back."""
    lent: list[tuple[ArenaBlock, bytes]] = []
    arena = Arena(MIB)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "KEEP", keep)
        for number, step in enumerate(steps):
            if isinstance(step, tuple):
                if lent:
                    lent.pop(step[0] % len(lent))[0].release()
            elif (block := arena.lend(step)) is not None:
                mark = b"%4d" % number
                block.view[:4], block.view[-4:] = (mark, mark) if step >= 4 else (mark[:step], mark[:step])
                lent.append((block, bytes(block.view)))
            check(arena, lent)
    arena.close()


def check(arena: Arena, lent: list[tuple[ArenaBlock, bytes]]) -> None:
    spans = sorted((block.offset, block.offset + block.size) for block, _ in lent)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans)), "two blocks overlap"
    assert not spans or spans[-1][1] <= arena.size
    assert sum(block.size for block, _ in lent) <= arena.lent <= arena.limit
    assert bool(arena.lent) == bool(lent)
    for block, content in lent:
        assert bytes(block.view) == content, "a block changed under its owner"


@given(
    st.integers(1, 5),
    st.integers(0, 40 * SMALLEST),
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 4 * SMALLEST)), max_size=30),
)
def test_parts_of_several_processes_never_overlap(parts: int, limit: int, sizes: list[tuple[int, int]]) -> None:
    limit = max(limit, parts * SMALLEST)
    first = Arena(limit, parts)
    arenas = [first, *(Arena(limit, parts, fd=os.dup(first.fd), part=part) for part in range(1, parts))]
    try:
        lent = [block for part, size in sizes if (block := arenas[part % parts].lend(size))]
        taken = sorted((block.offset, block.offset + memory.room_of(block.size)) for block in lent)
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(taken))
        assert sum(arena.lent for arena in arenas) == sum(end - start for start, end in taken) <= first.total <= limit
    finally:
        for arena in arenas:
            arena.close()


def test_a_part_whose_process_is_gone_gives_its_pages_back_and_no_other() -> None:
    first = Arena(8 * MIB, 2)
    second = Arena(8 * MIB, 2, fd=os.dup(first.fd), part=1)
    fill(lend(first, MIB), 1)
    fill(lend(second, 2 * MIB), 2)
    assert used(first) == 3 * MIB
    first.clear(1)
    assert used(first) == MIB
    second.close()
    first.close()


def test_a_part_that_is_used_up_by_many_sizes_lends_nothing_of_the_next() -> None:
    first = Arena(2 * 1024 * SMALLEST, 2)
    end = first.part(1).start
    highest = 0
    for order in range(11):
        blocks = [block for _ in range(1024 >> order) if (block := first.lend(SMALLEST << order))]
        highest = max([highest, *(block.offset + block.size for block in blocks)])
        for block in blocks:
            block.release()
    assert highest == end
    first.close()

from collections.abc import Iterator

import pytest

from shoal.config.server import ServerConfig
from shoal.errors import ProtocolError
from shoal.fronts.memory import LentBlocks, arena_of
from shoal.wire.memory import SMALLEST, Arena

LIMIT = 30 * SMALLEST


@pytest.fixture
def arena() -> Iterator[Arena]:
    arena = Arena(LIMIT, 3)
    yield arena
    arena.close()


def test_a_block_is_read_where_the_other_process_wrote_it_and_goes_back_once(arena: Arena) -> None:
    back: list[int] = []
    front = Arena(LIMIT, 3, fd=arena.fd, part=1)
    lent = front.lend(20_000)
    assert lent is not None
    lent.view[:5] = b"hello"
    blocks = LentBlocks(arena, 1, back.append)

    block = blocks.take(lent.offset, lent.size)

    assert bytes(block.view[:5]) == b"hello"
    assert blocks.lent == front.lent == 32_768
    block.release()
    block.release()
    assert back == [lent.offset]
    assert blocks.lent == 0


def test_a_dead_process_s_blocks_go_back_to_nobody_and_its_part_is_free_after_the_last(arena: Arena) -> None:
    back: list[int] = []
    free: list[bool] = []
    blocks = LentBlocks(arena, 1, back.append)
    start = arena.part(1).start
    first, second = blocks.take(start, 100), blocks.take(start + SMALLEST, 100)
    blocks.orphan(lambda: free.append(True))
    first.release()
    assert free == []
    second.release()
    assert free == [True]
    assert back == []


def test_a_dead_process_that_lent_nothing_leaves_a_free_part(arena: Arena) -> None:
    free: list[bool] = []
    LentBlocks(arena, 1, lambda offset: None).orphan(lambda: free.append(True))
    assert free == [True]


@pytest.mark.parametrize(
    ("shift", "size"), [(-1, 1), (0, 0), (0, -5), (8 * 10 * SMALLEST, 1), (8 * 10 * SMALLEST - 5, 6)]
)
def test_a_block_outside_the_part_of_its_process_is_refused(arena: Arena, shift: int, size: int) -> None:
    blocks = LentBlocks(arena, 1, lambda offset: None)
    with pytest.raises(ProtocolError, match="can be lent"):
        blocks.take(arena.part(1).start + shift, size)


def test_a_block_is_not_handed_over_twice(arena: Arena) -> None:
    blocks = LentBlocks(arena, 1, lambda offset: None)
    blocks.take(arena.part(1).start, 1)
    with pytest.raises(ProtocolError):
        blocks.take(arena.part(1).start, 1)


def test_the_memory_has_a_part_for_the_core_and_one_for_each_process() -> None:
    for frontends, parts in ((1, 1), (2, 3)):
        arena = arena_of(ServerConfig(frontends=frontends, shared_memory=3 * 10 * SMALLEST))
        assert arena is not None
        assert arena.limit == 30 // parts * SMALLEST
        assert arena.total == 30 * SMALLEST
        arena.close()
    assert arena_of(ServerConfig(shared_memory=0)) is None

from hypothesis import given
from hypothesis import strategies as st

from shoal.core.ceiling import FIRST, LONGEST, Ceiling, Ceilings, allowed, lowered, raised


def test_nothing_is_bounded_until_memory_ran_out() -> None:
    assert allowed(None, 64, 0.0) == 64
    assert raised(None, 64, 64) is None


def test_a_batch_that_did_not_fit_halves_the_ceiling() -> None:
    ceiling = lowered(None, 32, 64, 5.0)

    assert ceiling == Ceiling(16, 32, 5.0, FIRST)
    assert allowed(ceiling, 64, 5.0) == 16


def test_later_half_way_to_what_failed_is_tried_then_that_itself_then_more() -> None:
    ceiling = Ceiling(16, 32, 0.0, FIRST)

    assert allowed(ceiling, 256, FIRST - 0.1) == 16
    tried = []
    while ceiling is not None:
        tried.append(allowed(ceiling, 256, FIRST))
        assert len(tried) < 20, "it never recovers"
        ceiling = raised(ceiling, tried[-1], 256)  # type: ignore[assignment]  # None ends it
    assert tried == [24, 28, 30, 31, 32, 64, 128, 256]


def test_a_trial_that_fails_costs_a_longer_pause_and_nothing_that_was_known_to_fit() -> None:
    ceiling = lowered(Ceiling(16, 32, 0.0, FIRST), 24, 256, FIRST)

    assert ceiling == Ceiling(16, 24, FIRST, 2 * FIRST)
    for _ in range(20):
        assert ceiling is not None
        now = ceiling.since + ceiling.pause
        ceiling = lowered(ceiling, allowed(ceiling, 256, now), 256, now)
    assert ceiling is not None
    assert (ceiling.rows, ceiling.bad, ceiling.pause) == (16, 17, LONGEST)


def test_a_single_huge_request_says_nothing_about_batches() -> None:
    ceiling = Ceiling(4, 8, 0.0, FIRST)

    assert lowered(ceiling, 100, 256, 1.0) is ceiling
    assert lowered(None, 100, 64, 1.0) is None
    assert lowered(None, 1, 64, 1.0) is None


def test_more_room_than_before_shortens_the_next_pause() -> None:
    ceiling = raised(Ceiling(16, 17, 0.0, LONGEST), 17, 64)

    assert ceiling == Ceiling(17, 0, 0.0, FIRST)


@given(
    limit=st.integers(1, 300),
    room=st.lists(st.integers(1, 300), min_size=1, max_size=8),
    waiting=st.lists(st.integers(1, 400), min_size=1, max_size=80),
    steps=st.floats(0.1, 100.0),
)
def test_a_ceiling_stays_between_one_and_the_limit_and_recovers(
    limit: int, room: list[int], waiting: list[int], steps: float
) -> None:
    ceilings, now = Ceilings(), 0.0
    for number, rows in enumerate(waiting):
        has_room = room[number * len(room) // len(waiting)]
        sent = min(rows, ceilings.allowed("a", limit, now))
        assert 1 <= sent <= limit
        if sent <= has_room:
            ceilings.fitted("a", sent, limit)
        else:
            ceilings.failed("a", sent, limit, now)
        if ceiling := ceilings.known.get("a"):
            assert 1 <= ceiling.rows < limit
            assert FIRST <= ceiling.pause <= LONGEST
        now += steps
    for _ in range(40):  # memory is there again
        now += LONGEST
        ceilings.fitted("a", ceilings.allowed("a", limit, now), limit)
    assert ceilings.known == {}
    assert ceilings.allowed("a", limit, now) == limit


@given(limit=st.integers(2, 300), room=st.integers(1, 299))
def test_it_comes_as_near_as_memory_allows_and_no_nearer(limit: int, room: int) -> None:
    room = min(room, limit - 1)
    ceilings, now = Ceilings(), 0.0
    for _ in range(200):
        rows = ceilings.allowed("a", limit, now)
        if rows <= room:
            ceilings.fitted("a", rows, limit)
            now += LONGEST
        else:
            ceilings.failed("a", rows, limit, now)
    assert ceilings.known["a"].rows == room


def test_instances_have_ceilings_of_their_own() -> None:
    ceilings = Ceilings()
    ceilings.failed("a", 8, 8, 0.0)

    assert (ceilings.allowed("a", 8, 0.0), ceilings.allowed("b", 8, 0.0)) == (4, 8)

"""Where answers come together: large ones in shared memory where there is some, small ones on their way."""

import os
from collections.abc import Iterator

import pytest

from shoal.wire.messages import Answered, Pieces
from shoal.wire.tray import LARGE, Laid, Tray, TrayWriter
from shoal.worker.items import Written
from shoal.worker.outlet import Outlet, outlet
from tests.unit.worker.making import Listener, batch, inline

BIG = b"b" * LARGE


@pytest.fixture
def tray(monkeypatch: pytest.MonkeyPatch) -> Iterator[Tray]:
    made = Tray(4 * LARGE)
    monkeypatch.setattr(outlet, "tray", TrayWriter(made.fd))
    yield made
    os.close(made.fd)


def test_without_shared_memory_all_is_joined_and_sent() -> None:
    plain = Outlet()
    assert plain.join([b"a", BIG]) == b"a" + BIG
    assert plain.put([BIG, b"c"]) == ([], [BIG, b"c"])


def test_a_large_answer_is_laid_down_once_and_its_parts_may_change(tray: Tray) -> None:
    part = bytearray(BIG)
    joined = outlet.join([b"a", part])
    part[:3] = b"xyz"
    assert isinstance(joined, Laid) and bytes(joined.view) == b"a" + BIG


def test_a_small_answer_is_joined(tray: Tray) -> None:
    assert outlet.join([b"a", b"b"]) == b"ab"


def test_only_large_answers_of_a_batch_are_in_the_tray(tray: Tray) -> None:
    _, heard = inline(lambda items: [item * LARGE if item == b"x" else item for item in items], b"x", b"y", b"x")
    ((message, data),) = heard.frames
    assert isinstance(message, Answered)
    assert message.sizes == [LARGE, 1, LARGE]
    assert data == [b"y"]
    assert message.offsets[1] == -1
    assert [bytes(tray.read(message.offsets[place], LARGE)) for place in (0, 2)] == [b"x" * LARGE] * 2


def test_a_batch_of_small_answers_says_nothing_of_places(tray: Tray) -> None:
    _, heard = inline(lambda items: items, b"x", b"y")
    assert heard.ends[0].offsets == []


def test_a_full_tray_sends_the_rest(tray: Tray) -> None:
    bodies = [b"%d" % n * LARGE for n in range(6)]
    offsets, rest = outlet.put(bodies)
    assert [offset >= 0 for offset in offsets] == [True] * 4 + [False] * 2
    assert rest == bodies[4:]


def test_a_laid_answer_beside_a_failure_is_sent_and_its_place_is_free_again(tray: Tray) -> None:
    heard = Listener()
    made = batch(1, [b"x", b"y"], heard)
    (cut,) = made.slices(0)
    cut.answer([Written(outlet.join([BIG])), ValueError("no")], "test")
    made.close(cut)
    made.finish()
    pieces, data = heard.frames[0]
    assert isinstance(pieces, Pieces) and [piece.size for piece in pieces.pieces] == [LARGE, 0]
    assert data == [BIG]
    made.outcomes.clear()
    assert [outlet.put([BIG] * 4)[0].count(-1)] == [0]

"""Answers that lie in a worker's tray, as the front process hears of them."""

import asyncio
import gc
import os

import pytest

from shoal.payload import Result
from shoal.wire.channel import FrameReader
from shoal.wire.messages import Answered, Run, decode_command
from shoal.wire.tray import LARGE, Tray, TrayWriter
from tests.unit.pool.test_begun import Wired, within

STAGES = (0.0, 0.0, 0.0)


class Sent:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.is_cut = False

    def write(self, data: bytes) -> None:
        self.runs += [run for head, _ in FrameReader().feed(data) if isinstance(run := decode_command(head), Run)]

    def abort(self) -> None:
        self.is_cut = True


def with_tray(wired: Wired) -> tuple[TrayWriter, Sent]:
    sent = Sent()
    wired.link.connection_made(sent)  # type: ignore[arg-type]  # as much of one as is needed
    wired.link.tray = Tray(4 * LARGE)
    writer = TrayWriter(wired.link.tray.fd)
    os.close(wired.link.tray.fd)
    return writer, sent


def lay(writer: TrayWriter, body: bytes) -> int:
    laid = writer.lay([body], len(body))
    assert laid is not None
    return laid.hand_over()


@within
async def test_an_answer_is_read_in_place_and_its_place_goes_back_with_a_later_batch(wired: Wired) -> None:
    writer, sent = with_tray(wired)
    first = wired.ask()
    offset = lay(writer, b"x" * LARGE)
    wired.hear(Answered(1, [LARGE], ["t/x"], STAGES, [offset]))
    await asyncio.sleep(0)
    ((result, _),) = first.ear.heard
    assert isinstance(result, Result) and result.content_type == "t/x" and bytes(result.body) == b"x" * LARGE
    wired.ask()
    del result
    first.ear.heard.clear()
    gc.collect()
    wired.hear(Answered(2, [1], ["t/x"], STAGES), b"y")
    await asyncio.sleep(0)
    wired.ask()
    assert [run.freed for run in sent.runs] == [[], [], [offset]]


@within
async def test_a_worker_that_names_a_place_outside_is_cut_off_and_its_batch_is_still_its_own(wired: Wired) -> None:
    _, sent = with_tray(wired)
    asked = wired.ask()
    wired.hear(Answered(1, [LARGE], ["t/x"], STAGES, [64 * LARGE]))
    assert sent.is_cut
    assert list(wired.link.running) == [1]  # goes back to the queue with the connection
    assert asked.ear.heard == []


@pytest.mark.parametrize(
    ("sizes", "types"), [([1, 1], ["t/x"]), ([1, 1], ["t/x", "t/x"]), ([1], ["t/x", "t/x"]), ([1], [])]
)
def test_a_worker_that_answers_more_than_it_was_asked_is_cut_off_too(sizes: list[int], types: list[str]) -> None:
    @within
    async def story(wired: Wired) -> None:
        _, sent = with_tray(wired)
        asked = wired.ask()
        wired.hear(Answered(1, sizes, types, STAGES), b"xy")
        assert sent.is_cut
        assert list(wired.link.running) == [1]
        assert asked.ear.heard == []

    story()


@pytest.mark.parametrize("offsets", [[0, 0], []])
def test_places_that_are_not_as_many_as_answers_are_no_message(offsets: list[int]) -> None:
    @within
    async def story(wired: Wired) -> None:
        writer, sent = with_tray(wired)
        wired.ask()
        lay(writer, b"x" * LARGE)
        wired.hear(Answered(1, [LARGE], ["t/x"], STAGES, offsets), b"x" * LARGE if not offsets else b"")
        assert sent.is_cut is bool(offsets)

    story()

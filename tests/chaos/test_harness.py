"""The harness's own parts: the schedule, the book, and the client that hears too much."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from tests.chaos.book import Behind, Book
from tests.chaos.faults import Breaker
from tests.chaos.load import WEIGHTS as KINDS
from tests.chaos.requests import CUT, NO_ANSWER, Ask, End
from tests.chaos.rules import RULES, Verdict
from tests.chaos.schedule import RATE, WEIGHTS, schedule
from tests.chaos.server import Target
from tests.chaos.wire import Wire


def test_a_seed_reproduces_its_faults_and_a_longer_run_begins_like_a_shorter_one() -> None:
    assert schedule(5, 60) == schedule(5, 60)
    assert schedule(5, 60) == schedule(5, 600)[: len(schedule(5, 60))]
    assert schedule(5, 60) != schedule(6, 60)
    assert [fault.random.random() for fault in schedule(5, 10)] == [fault.random.random() for fault in schedule(5, 10)]


def test_ten_minutes_hold_thousands_of_faults_of_every_kind() -> None:
    faults = schedule(1, 600)

    assert len(faults) > 0.9 * 600 * RATE > 4000
    assert set(Counter(fault.what for fault in faults)) == set(WEIGHTS)


def test_every_fault_of_the_schedule_can_be_done(tmp_path: Path) -> None:
    async def hands() -> set[str]:
        target = Target(None, tmp_path, "", {"inference": 1})  # type: ignore[arg-type]  # nothing is done to it
        return set(Breaker(target, Book(), None, 1)._hands)  # type: ignore[arg-type]  # nor sent

    assert asyncio.run(hands()) == set(WEIGHTS)


def test_rules_are_about_kinds_that_are_sent() -> None:
    poison = {"raise", "memory", "segv", "hang", "late", "burst", "front killed"}

    assert set(RULES) <= set(KINDS) | poison


def test_a_request_is_opened_once_and_closed_once() -> None:
    book, ask = Book(), Ask("t1", "keep-alive", "m")
    book.begin(ask)
    with pytest.raises(ValueError, match="under way already"):
        book.begin(Ask("t1", "keep-alive", "m"))
    book.end(ask, End(200, b"t1 00000000 0 1.0"))

    with pytest.raises(ValueError, match="not under way"):
        book.end(ask, End(200, b"t1 00000000 0 1.0"))
    assert book.is_clean
    assert book.count(Verdict.RIGHT) == book.requests == 1


def test_what_is_still_open_at_the_end_is_lost() -> None:
    book = Book()
    book.begin(Ask("t1", "keep-alive", "m"))
    assert not book.is_clean

    book.close()

    assert book.count(Verdict.LOST) == 1
    assert not book.is_clean


def test_a_ledger_tells_who_was_run_twice_and_who_should_not_have_been_run(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    ledger.write_text("a 10.0\ne 10.0\nb 11.5\na 12.0\nc 13.0\n")
    book = Book(
        behind=[
            Behind("b", "client left", busy="a", over=10.2, takes=1.5),
            Behind("c", "client left", busy="a", over=11.6, takes=1.5),  # the worker may have been free by then
            Behind("c", "client left", busy="never begun", over=10.2, takes=1.5),
            Behind("d", "client left", busy="a", over=10.2, takes=1.5),
            Behind("e", "deadline passed", busy="a", over=10.2, takes=1.5),  # it left with the other, in time
        ]
    )

    assert book.read_ledger(ledger, at_most_once=False) == 1
    (problem,) = book.problems
    assert problem.startswith("run for nobody: b (client left) 1.30 s after that")
    assert book.doubled == 0
    book.read_ledger(ledger, at_most_once=True)
    assert book.doubled == 1


ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.mark.parametrize(
    ("said", "status", "surplus"),
    [
        (ANSWER, 200, 0),
        (ANSWER + ANSWER, 200, 1),
        (ANSWER + b"!", 200, 1),
        (ANSWER[:-1], CUT, 0),
        (b"", CUT, 0),
        (b"nonsense\r\n\r\n", CUT, 0),
    ],
)
def test_the_client_hears_an_answer_that_is_short_doubled_or_no_answer(said: bytes, status: int, surplus: int) -> None:
    async def heard() -> tuple[End, list[str]]:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(said)
            await writer.drain()
            writer.close()

        found: list[str] = []
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            wire = await Wire.open(server.sockets[0].getsockname()[1], found.append)
            end = await wire.ask(b"GET / HTTP/1.1\r\n\r\n", "t1", within=10)
            await wire.ended()
            return end, found

    end, found = asyncio.run(heard())

    assert end.status == status
    assert min(1, len(found)) == surplus


def test_the_client_does_not_wait_for_ever() -> None:
    async def heard() -> End:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            wire = await Wire.open(server.sockets[0].getsockname()[1], lambda _: None)
            end = await wire.ask(b"GET / HTTP/1.1\r\n\r\n", "t1", within=0.05)
            await wire.ended()
            return end

    assert asyncio.run(heard()).status == NO_ANSWER

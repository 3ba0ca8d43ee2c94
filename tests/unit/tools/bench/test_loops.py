"""The loops against a server in this process that does only what the test says."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from shoal.tools.bench.loops import Closed, Open
from shoal.tools.bench.messages import Kind, Load, Slice
from shoal.tools.bench.recorder import Recorder
from shoal.tools.calls import site_of

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Seen:
    """What a recorder would report, one request at a time."""

    def __init__(self) -> None:
        self.started: list[float] = []
        self.kinds: list[str] = []
        self.due_count = 0

    def answered(self, started: float, status: bytes, head: bytes) -> None:
        self.started.append(started)

    def failed(self, kind: str) -> None:
        self.kinds.append(kind)

    def due(self, lag: float) -> None:
        self.due_count += 1


@asynccontextmanager
async def serving(behave: Behaviour) -> AsyncIterator[int]:
    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await behave(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(client, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def load(port: int, kind: Kind = "closed", connections: int = 1, times: list[float] | None = None) -> Load:
    return Load(
        site=site_of(f"http://127.0.0.1:{port}"),
        requests=[b"one", b"two"],
        kind=kind,
        begin=time.monotonic(),
        slice=10.0,
        timeout=20.0,
        connections=connections,
        times=times or [],
    )


async def until(check: Callable[[], bool]) -> None:
    """Wait for what will happen, however slow the machine."""
    async with asyncio.timeout(20):
        while True:
            if check():
                return
            await asyncio.sleep(0.001)


async def finish(loop: Closed | Open, running: "asyncio.Task[None]") -> None:
    loop.halt()
    await asyncio.wait_for(running, 10)
    await loop.abandon()


def test_a_closed_loop_has_one_request_out_on_each_connection_and_sends_bodies_in_turn() -> None:
    async def run() -> None:
        received: list[bytes] = []
        gate = asyncio.Semaphore(0)

        async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while True:
                received.append(await reader.readexactly(3))
                await gate.acquire()
                writer.write(ANSWER)

        async with serving(behave) as port:
            seen = Seen()
            loop = Closed(load(port, connections=2), seen)  # type: ignore[arg-type]  # as far as a loop needs it
            running = asyncio.create_task(loop.run())
            await until(lambda: len(received) >= 2)
            await asyncio.sleep(0.02)
            assert sorted(received) == [b"one", b"two"]
            assert loop.waiting == 2
            gate.release()
            await until(lambda: len(received) >= 3)
            assert len(seen.started) == 1
            loop.halt()
            for _ in range(9):
                gate.release()
            await finish(loop, running)
            assert len(seen.started) == 3
            assert len(received) == 3  # nothing is sent after a halt

    asyncio.run(run())


def test_an_open_loop_counts_from_the_moment_a_request_was_due() -> None:
    async def run() -> None:
        gate = asyncio.Semaphore(0)

        async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while True:
                await reader.readexactly(3)
                await gate.acquire()
                writer.write(ANSWER)

        async with serving(behave) as port:
            seen = Seen()
            told = load(port, "trace", connections=1, times=[0.0, 0.0, 0.01])
            loop = Open(told, seen)  # type: ignore[arg-type]  # as far as a loop needs it
            running = asyncio.create_task(loop.run())
            await until(lambda: seen.due_count >= 3)
            assert loop.waiting == 3  # one out, two without a connection: all of them wait
            for _ in range(3):
                gate.release()
            await asyncio.wait_for(running, 10)  # a trace ends by itself
            await loop.abandon()
            assert [started - told.begin for started in seen.started] == pytest.approx([0.0, 0.0, 0.01])

    asyncio.run(run())


def test_an_open_loop_opens_as_many_connections_as_are_needed_and_allowed() -> None:
    async def run() -> None:
        connected = 0
        gate = asyncio.Semaphore(0)

        async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal connected
            connected += 1
            while True:
                await reader.readexactly(3)
                await gate.acquire()
                writer.write(ANSWER)

        async with serving(behave) as port:
            seen = Seen()
            loop = Open(load(port, "trace", connections=3, times=[0.0] * 8), seen)  # type: ignore[arg-type]  # likewise
            running = asyncio.create_task(loop.run())
            await until(lambda: connected >= 3)
            await asyncio.sleep(0.02)
            assert loop.waiting == 8
            for _ in range(8):
                gate.release()
            await asyncio.wait_for(running, 10)
            await loop.abandon()
            assert (connected, len(seen.started)) == (3, 8)

    asyncio.run(run())


@pytest.mark.parametrize("kind", ["closed", "trace"])
def test_a_connection_that_breaks_is_an_error_and_is_replaced(kind: Kind) -> None:
    async def run() -> None:
        connected = 0

        async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal connected
            connected += 1
            await reader.readexactly(3)
            if connected > 1:
                writer.write(ANSWER)
                await reader.read()

        async with serving(behave) as port:
            seen = Seen()
            told = load(port, kind, times=[0.0, 0.05])
            loop = (Closed if kind == "closed" else Open)(told, seen)  # type: ignore[arg-type]  # likewise
            running = asyncio.create_task(loop.run())
            await until(lambda: bool(seen.started))
            assert seen.kinds == ["closed"]
            loop.halt()
            await loop.abandon()
            running.cancel()

    asyncio.run(run())


@pytest.mark.parametrize("kind", ["closed", "trace"])
def test_a_server_that_is_not_there_refuses(kind: Kind) -> None:
    async def run() -> None:
        async with serving(lambda *_: asyncio.sleep(0)) as port:
            pass
        seen = Seen()
        loop = (Closed if kind == "closed" else Open)(load(port, kind, times=[0.0]), seen)  # type: ignore[arg-type]  # likewise
        running = asyncio.create_task(loop.run())
        await until(lambda: bool(seen.kinds))
        assert set(seen.kinds) == {"refused"}
        await finish(loop, running)

    asyncio.run(run())


def test_a_request_that_takes_too_long_is_given_up() -> None:
    async def run() -> None:
        async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()

        async with serving(behave) as port:
            seen = Seen()
            told = load(port)
            told.timeout = 0.05
            loop = Closed(told, seen)  # type: ignore[arg-type]  # likewise
            running = asyncio.create_task(loop.run())
            await until(lambda: bool(seen.kinds))
            assert seen.kinds[0] == "timeout"
            loop.halt()
            await loop.abandon()
            running.cancel()

    asyncio.run(run())


def test_a_recorder_reports_every_slice_and_nothing_after_the_end() -> None:
    async def run() -> None:
        reports: list[Slice] = []
        begin = time.monotonic()
        recorder = Recorder(begin, 0.02, lambda: 7, reports.append)
        recorder.start()
        head = b'HTTP/1.1 200 OK\r\nServer-Timing: queue;dur=2, batch;desc="3 full"\r\n'
        recorder.answered(begin - 1.0, b"200", head)
        recorder.answered(begin, b"503", head)
        recorder.failed("reset")
        recorder.due(0.25)
        await until(lambda: len(reports) >= 3)
        recorder.stop()
        count = len(reports)
        await asyncio.sleep(0.05)
        recorder.failed("reset")

        assert len(reports) == count
        assert [report.number for report in reports] == list(range(count))
        assert sum(report.answered for report in reports) == 1
        first = next(report for report in reports if report.answered)
        assert first.latencies.longest >= 1.0
        assert first.split.rows == {3: 1}
        assert sum(report.errors.get("503", 0) for report in reports) == 1
        assert sum(report.errors.get("reset", 0) for report in reports) == 1
        assert max(report.lag for report in reports) == 0.25
        assert {report.waiting for report in reports} == {7}

    asyncio.run(run())

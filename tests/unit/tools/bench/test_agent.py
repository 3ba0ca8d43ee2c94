"""A load process in this process: what it hears and what it reports on its socket."""

import asyncio
import socket
import time

import pytest

from shoal.tools.bench import agent
from shoal.tools.bench.agent import Agent
from shoal.tools.bench.loops import Closed
from shoal.tools.bench.messages import Halt, Halted, Load, Ready, Report, decode_report
from shoal.tools.calls import site_of
from shoal.wire.channel import FrameReader, frame


class Tool:
    """The other end of its socket."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair()
        self._ours.setblocking(False)
        theirs.setblocking(False)
        self._frames = FrameReader()
        self._agent = asyncio.ensure_future(Agent().serve(theirs))

    async def tell(self, word: Load | Halt) -> None:
        await asyncio.get_running_loop().sock_sendall(self._ours, b"".join(frame(word)))

    async def hear(self, kind: type[Report]) -> Report | None:
        """The next report of this kind; None at the end."""
        async with asyncio.timeout(10):
            while data := await asyncio.get_running_loop().sock_recv(self._ours, 65536):
                for message, _ in self._frames.feed(data):
                    report: Report = decode_report(message)
                    if isinstance(report, kind):
                        return report
        return None

    async def end(self) -> None:
        self._ours.close()
        await self._agent


def load() -> Load:
    """One that nobody hears: the port is bound, and refuses."""
    site = site_of("http://127.0.0.1:1")
    return Load(site, [b"x"], "closed", time.monotonic(), slice=10.0, timeout=10.0, connections=2)


def test_a_load_that_ends_as_its_grace_does_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody hears of the end otherwise, and waits."""

    async def hearing() -> None:
        monkeypatch.setattr(agent, "GRACE", 0.0)
        tool = Tool()
        await tool.hear(Ready)

        for _ in range(2):
            await tool.tell(load())
            await asyncio.sleep(0.05)
            await tool.tell(Halt())

            assert await tool.hear(Halted) == Halted(0)
        await tool.end()

    asyncio.run(hearing())


def test_a_halt_that_comes_with_its_load_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hearing() -> None:
        monkeypatch.setattr(agent, "GRACE", 0.0)
        tool = Tool()
        await tool.hear(Ready)

        await tool.tell(load())
        await tool.tell(Halt())

        assert await tool.hear(Halted) == Halted(0)
        await tool.end()

    asyncio.run(hearing())


def test_a_load_that_fails_ends_the_process_for_whoever_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hearing() -> None:
        async def fail(self: Closed) -> None:
            raise ValueError("x")

        monkeypatch.setattr(Closed, "run", fail)
        tool = Tool()
        await tool.hear(Ready)

        await tool.tell(load())

        assert await tool.hear(Halted) is None
        with pytest.raises(ValueError, match="x"):
            await tool.end()

    asyncio.run(hearing())

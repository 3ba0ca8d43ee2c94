"""A server that is busy itself says so in its log, until it is drained."""

import asyncio
import logging
import time

import pytest

from shoal.app import App
from shoal.config.server import ServerConfig
from shoal.strain import Watcher

BUSY = "the server's own process was busy for 100 %"


def test_a_running_server_looks_at_itself_until_it_is_drained(caplog: pytest.LogCaptureFixture) -> None:
    looks: list[float] = []
    enough = asyncio.Event()

    def spent() -> float:  # as busy as can be
        looks.append(time.monotonic())
        if len(looks) == 3:
            enough.set()
        return looks[-1]

    async def run() -> int:
        app = App(ServerConfig(port=0, management_port=0, metrics_port=0))
        app.strain = Watcher(1, cpus=lambda: 16, spent=spent, window=0.02)
        await app.start()
        await asyncio.wait_for(enough.wait(), 10)
        await app.drain()
        drained = len(looks)
        await asyncio.sleep(0.1)
        return len(looks) - drained

    with caplog.at_level(logging.WARNING, "shoal"):
        after = asyncio.run(run())

    assert len(looks) >= 3 and after == 0
    assert [line for line in caplog.messages if BUSY in line] == caplog.messages
    assert len(caplog.messages) == 1

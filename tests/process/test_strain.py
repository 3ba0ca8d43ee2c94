"""A server that is busy itself says so in its log, until it is drained."""

import asyncio
import logging
import time
from functools import partial

import pytest

from shoal.app import App
from shoal.config.server import ServerConfig
from shoal.strain import Watcher

BUSY = "the server's own process was busy for 100 %"


@pytest.mark.parametrize("frontends", [1, 2])
def test_a_server_of_one_front_process_looks_at_itself_until_it_is_drained(
    frontends: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[float] = []
    enough = asyncio.Event()

    def spent() -> float:  # as busy as can be
        looks.append(time.monotonic())
        if len(looks) == 3:
            enough.set()
        return looks[-1]

    async def run() -> int:
        app = App(ServerConfig(port=0, management_port=0, metrics_port=0, frontends=frontends))
        await app.start()
        if frontends == 1:
            await asyncio.wait_for(enough.wait(), 10)
        else:
            await asyncio.sleep(0.1)
        await app.drain()
        drained = len(looks)
        await asyncio.sleep(0.1)
        return len(looks) - drained

    monkeypatch.setattr("shoal.app.Watcher", partial(Watcher, cpus=lambda: 16, spent=spent, window=0.02))
    with caplog.at_level(logging.WARNING, "shoal"):
        after = asyncio.run(run())

    assert after == 0
    assert (len(looks) >= 3) == (frontends == 1)
    assert [BUSY in line for line in caplog.messages] == [True] * (frontends == 1)

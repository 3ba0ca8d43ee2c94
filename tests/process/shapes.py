"""The crew of front processes that a listener under test gets, where its test runs in that shape."""

import asyncio
import os

from shoal.config.server import ServerConfig
from shoal.fronts.crew import Crew
from shoal.fronts.memory import arena_of


def crew_of(certificate: tuple[str, str] = ("", "")) -> Crew | None:
    """Make a crew of as many processes as the shape has; None where the server accepts by itself."""
    count = int(os.environ.get("SHOAL_FRONTENDS", "1"))
    if count == 1:
        return None
    config = ServerConfig(
        frontends=count, shared_memory=64 * 2**20, certificate_file=certificate[0], private_key_file=certificate[1]
    )
    return Crew(config, arena_of(config))


async def reports(crew: Crew, address: tuple[str, int] | str) -> None:
    """Wait for news of every process that is younger than this call: what a process refuses by itself is news.

    The first report may have been on its way already, so it takes two.
    """
    for _ in range(2):
        known = {number: front.stats for number, front in crew._fronts.items()}
        while any(front.stats is known.get(number) for number, front in crew._fronts.items()):
            if isinstance(address, str):
                reader, writer = await asyncio.open_unix_connection(address)
            else:
                reader, writer = await asyncio.open_connection(*address)
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.1 400")
            writer.close()
            await writer.wait_closed()
            await asyncio.sleep(0.01)

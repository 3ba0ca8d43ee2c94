"""The crew of front processes that a listener under test gets, where its test runs in that shape."""

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

"""Run inside the environment of a client: does every case of a run against a server and prints what came of it."""

import argparse
import asyncio
import json
import os
import sys
import traceback
from typing import Any

from tests.upstream.triton.answers import failure
from tests.upstream.triton.clients import Clients
from tests.upstream.triton.table import RUNS
from tests.upstream.triton.words import EVERY

VERBOSE = bool(os.environ.get("VERBOSE_CLIENTS"))


def answers(run: str, http: str, grpc: str) -> dict[str, Any]:
    """What the server gives to each case, with each client."""
    cases = next(one for one in RUNS if one.name == run).cases
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    found: dict[str, Any] = {}
    for transport in EVERY:
        client = Clients(transport, http, grpc, loop)
        for case in cases:
            if transport not in case.on:
                continue
            if VERBOSE:
                sys.stderr.write(f"{transport}/{case.name}\n")
            try:
                said = case.act(client)
            except Exception as error:
                said = failure(error)
                if "raised" in said:
                    sys.stderr.write(f"{transport}/{case.name}: {error!r}\n{traceback.format_exc() if VERBOSE else ''}")
            found[f"{transport}/{case.name}"] = said
        client.close()
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for flag in ("--run", "--http", "--grpc"):
        parser.add_argument(flag, required=True)
    given = parser.parse_args()
    json.dump(answers(given.run, given.http, given.grpc), sys.stdout)

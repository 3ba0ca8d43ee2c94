"""Asks the real servers every row and writes down what they say: `python -m tests.upstream.record [RUN...]`."""

import json
import sys
from pathlib import Path
from typing import Any

from tests.upstream import table
from tests.upstream.client import Answer, answer
from tests.upstream.rows import Run
from tests.upstream.servers import Kind, serving

RECORDED = Path(__file__).parent / "recorded"
Answers = dict[str, list[Answer]]


def load(server: str) -> dict[str, Answers]:
    """What was recorded of a server: run, row, answers."""
    path = RECORDED / f"{server}.json"
    recorded: dict[str, Answers] = json.loads(path.read_text()) if path.exists() else {}
    return recorded


def ask_all(run: Run, kind: Kind) -> Answers:
    """Start a server and ask it all rows of a run."""
    with serving(run, kind) as server:
        return {row.name: answer(server, row) for row in run.rows}


def save(server: str, runs: dict[str, Answers]) -> None:
    """Write the recordings of a server, in the order of the table."""
    order = [run.name for run in table.RUNS if run.server == server]
    kept: dict[str, Any] = {name: runs[name] for name in order if name in runs}
    (RECORDED / f"{server}.json").write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")


def main(names: list[str]) -> None:
    """Record the named runs (as server/run), or all of them."""
    for run in table.RUNS:
        if names and f"{run.server}/{run.name}" not in names:
            continue
        print(f"{run.server}/{run.name}: {len(run.rows)} rows", flush=True)
        runs = load(run.server)
        runs[run.name] = ask_all(run, "upstream")
        save(run.server, runs)


if __name__ == "__main__":
    main(sys.argv[1:])

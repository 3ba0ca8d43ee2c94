"""Asks the real server every case and writes down what it says: `python -m tests.upstream.triton.record [RUN...]`."""

import json
import sys
from pathlib import Path
from typing import Any

from tests.upstream.triton import table
from tests.upstream.triton.environments import ask_all
from tests.upstream.triton.servers import Kind, serving
from tests.upstream.triton.words import RELEASES, Run

RECORDED = Path(__file__).parents[1] / "recorded/triton.json"
Answers = dict[str, Any]


def load() -> dict[str, Answers]:
    """What was recorded: run, case, answer."""
    recorded: dict[str, Answers] = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    return recorded


def answers_of(run: Run, kind: Kind, release: str = RELEASES[0]) -> Answers:
    """Start a server and do all cases of a run with the clients of a release."""
    with serving(run, kind) as server:
        return ask_all(run, release, server)


def main(names: list[str]) -> None:
    """Record the named runs, or all of them."""
    for run in table.RUNS:
        if names and run.name not in names:
            continue
        print(f"{run.name}: {len(run.keys)} answers", flush=True)
        kept = {**load(), run.name: answers_of(run, "upstream")}
        text = json.dumps({one.name: kept[one.name] for one in table.RUNS if one.name in kept}, ensure_ascii=False)
        RECORDED.write_text(_lines(json.loads(text)) + "\n")


def _lines(runs: dict[str, Answers]) -> str:
    """JSON with one case a line."""
    blocks = []
    for name, answers in runs.items():
        lines = [
            f"  {json.dumps(key, ensure_ascii=False)}: {json.dumps(said, ensure_ascii=False)}"
            for key, said in answers.items()
        ]
        blocks.append(f" {json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n }")
    return "{\n" + ",\n".join(blocks) + "\n}"


if __name__ == "__main__":
    main(sys.argv[1:])

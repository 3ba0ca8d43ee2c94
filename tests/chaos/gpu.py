"""Memory that runs out and a device that is lost, on a real GPU: `python -m tests.chaos.gpu`.

Two workers share the GPU; one batch of nine rows is too large for it, and so are two of five. All must be answered; of
those beside a row that breaks the device only that row may fail. The exit code says whether it was so.
"""

import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from tests.serving import Served, serving

MODEL = Path(__file__).parent / "models" / "hungry.py"
ROWS = [b"x" * (1 + number) for number in range(24)]


def turn(server: Served, what: str, bodies: list[bytes], guilty: int = 0) -> bool:
    """Send bodies at once; tell how it ended."""
    with ThreadPoolExecutor(len(bodies)) as clients:
        replies = list(clients.map(lambda body: server.ask("/predictions/hungry", body, timeout=60), bodies))
    wrong = [
        reply
        for body, reply in zip(bodies, replies, strict=True)
        if (reply.status, reply.body) != (200, str(len(body)).encode())
    ]
    print(f"{what}: {len(bodies) - len(wrong)} of {len(bodies)} answered")
    for reply in wrong:
        print(f"  {reply.status} {reply.body[:200]!r}")
    return len(wrong) == guilty


def main() -> int:
    """Break it four times."""
    if not torch.cuda.is_available():
        print("this needs a GPU", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder), str(MODEL), "--workers", "2") as server:
        held = [
            turn(server, "24 at once, room for about nine", ROWS),
            turn(server, "the same again", ROWS),
            turn(server, "one of twelve breaks the device", [*ROWS[:11], b"assert"], guilty=1),
            turn(server, "twelve after it", ROWS[:12]),
        ]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())

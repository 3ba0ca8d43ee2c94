"""The front process' end of a worker, for tests: a real process at the other end of a real socket."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any

import msgspec

from shoal.payload import Buffer
from shoal.wire.channel import BlockingChannel
from shoal.wire.messages import (
    Answered,
    Cancel,
    Ended,
    Failure,
    Hello,
    Item,
    Load,
    Loaded,
    PartHead,
    Pieces,
    Run,
    Stop,
    decode_report,
)

ENTRY = (
    "import socket, sys\n"
    "from shoal.wire.memory import ArenaReader\n"
    "from shoal.worker.main import run\n"
    "arena = ArenaReader(int(sys.argv[2])) if len(sys.argv) > 2 else None\n"
    "run(socket.socket(fileno=int(sys.argv[1])), arena)\n"
)
SOURCE = str(Path(__file__).parents[2] / "src")


class Front:
    """Talks to one worker."""

    def __init__(self, sock: socket.socket, process: "subprocess.Popen[str]") -> None:
        self.socket = sock
        self.process = process
        self.channel = BlockingChannel(sock)

    def send(self, message: msgspec.Struct, data: Sequence[Buffer] = ()) -> None:
        self.channel.send(message, data)

    def receive(self) -> tuple[Any, bytes]:
        """The next report; None once the worker is gone."""
        got = self.channel.receive()
        return (None, b"") if got is None else (decode_report(got[0]), bytes(got[1]))

    def load(self, path: Path, **config: Any) -> Any:
        """Load a model and give the worker's word on it."""
        hello, _ = self.receive()
        assert hello == Hello(1, self.process.pid)
        self.send(Load({"name": "m", "path": str(path), **config}, "worker-1", True, 0))
        return self.receive()[0]

    def run(self, batch: int, *bodies: bytes, instance: int = 0, content_type: str = "") -> None:
        items = [Item([PartHead("body", content_type, len(body))]) for body in bodies]
        self.send(Run(batch, instance, items), bodies)

    def cancel(self, batch: int, index: int) -> None:
        self.send(Cancel(batch, index))

    def end(self, count: int = 1) -> tuple[int, list[bytes | Failure]]:
        """Read until a batch has ended: its number and what each of its `count` requests was told."""
        told: list[Any] = [b""] * count
        while True:
            report, data = self.receive()
            assert report is not None, "the worker is gone"
            if isinstance(report, Answered):
                return report.batch, cut(data, report.sizes)
            if isinstance(report, Ended):
                left = [report.failure if report.failure and not body else body for body in told]
                return report.batch, left
            assert isinstance(report, Pieces)
            for piece, body in zip(report.pieces, cut(data, [piece.size for piece in report.pieces]), strict=True):
                told[piece.index] = piece.failure or told[piece.index] + body

    def answer(self, batch: int, *bodies: bytes, **more: Any) -> list[bytes | Failure]:
        """Run one batch to its end."""
        self.run(batch, *bodies, **more)
        ended, told = self.end(len(bodies))
        assert ended == batch
        return told

    def stop(self) -> int:
        """Tell the worker to stop; its exit code."""
        self.send(Stop())
        assert self.receive()[0] is None
        return self.exit_code()

    def exit_code(self) -> int:
        return self.process.wait(20)


def cut(data: bytes, sizes: Sequence[int]) -> list[Any]:
    pieces, at = [], 0
    for size in sizes:
        pieces.append(data[at : at + size])
        at += size
    return pieces


@contextmanager
def worker(arena_fd: int = -1) -> Iterator[Front]:
    """A worker that has not loaded anything yet."""
    ours, its = socket.socketpair()
    ours.settimeout(90)  # torch may be imported first
    fds = [its.fileno()] + ([arena_fd] if arena_fd >= 0 else [])
    process = subprocess.Popen(
        [sys.executable, "-c", ENTRY, *map(str, fds)],
        pass_fds=fds,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": SOURCE, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": ""},
    )
    its.close()
    try:
        with process, ours:
            try:
                yield Front(ours, process)
            finally:
                process.kill()
    finally:
        process.wait(20)


@contextmanager
def serving(folder: Path, source: str, **config: Any) -> Iterator[Front]:
    """A worker that has loaded a handler with this source."""
    path = folder / "bees.py"
    path.write_text(dedent(source))
    with worker() as front:
        loaded = front.load(path, **config)
        assert isinstance(loaded, Loaded), loaded
        yield front

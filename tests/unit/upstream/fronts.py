"""A real worker process with an archive of another server's kind in it, and what it told about each request."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from shoal.wire.messages import Answered, Ended, Failure, Item, Loaded, Measure, Measured, PartHead, Piece, Pieces, Run
from tests.process.worker_front import Front, cut, worker

MODELS = Path(__file__).parents[2] / "models" / "upstream"
JSON = "application/json"


class Told(NamedTuple):
    """What one request was told."""

    body: bytes
    content_type: str = ""
    status: int = 200
    reason: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    pieces: int = 1


class Upstream:
    """Talks to a worker whose reports of metrics come between its answers."""

    def __init__(self, front: Front) -> None:
        self.front = front
        self.measures: list[Measure] = []
        self._number = 0

    def ask(self, *bodies: Any, kind: str = JSON, headers: Sequence[tuple[bytes, bytes]] = ()) -> list[Told | Failure]:
        """Run a batch with one body for each request."""
        encoded = [body if isinstance(body, bytes) else json.dumps(body).encode() for body in bodies]
        items = [
            Item([PartHead("body", kind, len(body))], f"id-{index}".encode(), list(headers))
            for index, body in enumerate(encoded)
        ]
        return self.send(items, encoded)

    def send(self, items: list[Item], data: list[bytes]) -> list[Told | Failure]:
        """Run a batch and give what each request was told in the end."""
        self._number += 1
        self.measures = []
        self.front.send(Run(self._number, 0, items), data)
        told: list[Any] = [None] * len(items)
        while True:
            report, body = self.front.receive()
            assert report is not None, "the worker is gone"
            if isinstance(report, Answered):
                types = report.content_types * (len(items) if len(report.content_types) == 1 else 1)
                told = [Told(part, kind) for part, kind in zip(cut(body, report.sizes), types, strict=True)]
                break
            if isinstance(report, Ended):
                told = [report.failure if one is None else one for one in told]
                break
            if isinstance(report, Pieces):
                for piece, part in zip(report.pieces, cut(body, [one.size for one in report.pieces]), strict=True):
                    told[piece.index] = _with(told[piece.index], piece, part)
        assert None not in told
        if not any(isinstance(one, Failure) for one in told):
            self.measures = self._measured().measures
        return told

    def _measured(self) -> Measured:
        report, _ = self.front.receive()
        assert isinstance(report, Measured)
        return report


def _with(before: Told | None, piece: Piece, body: bytes) -> Told | Failure:
    if piece.failure:
        return piece.failure
    if before:
        return before._replace(body=before.body + body, pieces=before.pieces + 1)
    headers = tuple((name, value) for name, value in piece.headers)
    return Told(body, piece.content_type, piece.status, piece.reason, headers)


@contextmanager
def upstream(model: str | Path, flavour: str = "torchserve", **config: Any) -> Iterator[Upstream]:
    """A worker that has loaded a folder of tests/models/upstream."""
    with worker() as front:
        path = model if isinstance(model, Path) else MODELS / model
        loaded = front.load(path, flavour=flavour, **config)
        assert isinstance(loaded, Loaded), loaded
        assert loaded.wants_headers
        yield Upstream(front)

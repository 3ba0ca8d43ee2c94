"""The front process' end of a worker that takes and gives tensors."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from shoal import tensor
from shoal.wire.messages import Answered, Ended, Failure, Item, Loaded, Measured, PartHead, Pieces, Run
from shoal.worker.backends.tensors import DATATYPES, DTYPES, bytes_of, read_bytes
from tests.process.worker_front import Front, cut, worker

MODELS = Path(__file__).parents[1] / "models" / "triton"
Values = dict[str, Any]
Told = Values | Failure


class Raw(msgspec.Struct):
    """A tensor with a datatype that its array does not tell, or bytes that its shape does not."""

    datatype: str
    shape: Sequence[int]
    data: bytes


def spec(name: str, datatype: str, *dims: int, **more: Any) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "dims": list(dims), **more}


def interface(inputs: Sequence[Any], outputs: Sequence[Any], rows: int = 0, decoupled: bool = False) -> dict[str, Any]:
    return {"inputs": inputs, "outputs": outputs, "max_batch_size": rows, "is_decoupled": decoupled}


def parameters(**values: object) -> dict[str, Any]:
    return {"parameters": {key: {"string_value": str(value)} for key, value in values.items()}}


def raw(value: Any) -> Raw:
    if isinstance(value, Raw):
        return value
    return Raw(DATATYPES[value.dtype], value.shape, bytes(bytes_of(value)))


def items(requests: Sequence[Values], **asked: Any) -> tuple[list[Item], list[bytes]]:
    """The requests of a batch and their bytes; `asked` is what all of them say."""
    made, bodies = [], []
    header = [(b"v2", msgspec.msgpack.encode(asked))] if asked else []
    for number, request in enumerate(requests):
        heads = []
        for name, value in request.items():
            part = raw(value)
            heads.append(PartHead(name, tensor.part_type(part.datatype, part.shape), len(part.data)))
            bodies.append(part.data)
        made.append(Item(heads, str(number).encode(), header))
    return made, bodies


def values(body: bytes) -> Values:
    """The tensors of an answer; what else it says is under `parameters`, `error` and `code`, if it is said."""
    answer, pieces = tensor.split(body)
    found: Values = {}
    for head, data in zip(answer.outputs, pieces, strict=True):
        if head.datatype == "BYTES":
            found[head.name] = read_bytes(data, head.shape, head.name)
        else:
            found[head.name] = np.frombuffer(data, DTYPES[head.datatype]).reshape(head.shape)
    more = {"parameters": answer.parameters, "error": answer.error, "code": answer.code}
    return found | {key: value for key, value in more.items() if value}


class TensorFront:
    """Talks tensors to one worker."""

    def __init__(self, front: Front) -> None:
        self.front = front
        self.number = 0
        self.measures: list[Any] = []
        self.ended: list[Any] = []

    def send(self, *requests: Values, instance: int = 0, **asked: Any) -> int:
        """Send a batch; its number."""
        self.number += 1
        made, bodies = items(requests, **asked)
        self.front.send(Run(self.number, instance, made), bodies)
        return self.number

    def ask(self, *requests: Values, instance: int = 0, **asked: Any) -> list[Told]:
        """Run one batch to its end; the one answer of each request."""
        told = self.hear(self.send(*requests, instance=instance, **asked), len(requests))
        return [answers[0] if answers else {} for answers in told]

    def one(self, request: Values, **asked: Any) -> Any:
        """Run one request and give its answer."""
        return self.ask(request, **asked)[0]

    def hear(self, number: int, count: int) -> list[list[Told]]:
        """Read until a batch has ended: everything that each of its requests was told."""
        told: list[list[Told]] = [[] for _ in range(count)]
        while True:
            report, data = self.front.receive()
            assert report is not None, "the worker is gone"
            if isinstance(report, Measured):
                self.measures += report.measures
                continue
            assert report.batch == number, report
            if isinstance(report, Answered):
                assert report.content_types == [tensor.ANSWER]
                for answers, body in zip(told, cut(data, report.sizes), strict=True):
                    answers.append(values(body))
            elif isinstance(report, Pieces):
                for piece, body in zip(report.pieces, cut(data, [each.size for each in report.pieces]), strict=True):
                    if piece.failure or piece.size:
                        assert piece.failure or piece.content_type == tensor.ANSWER
                        told[piece.index].append(piece.failure or values(body))
            if isinstance(report, Answered | Ended):
                self.ended.append(report)
                for answers in told:
                    if isinstance(report, Ended) and report.failure and not answers:
                        answers.append(report.failure)
                return told


@contextmanager
def serving(path: Path, backend: str, io: dict[str, Any], arena_fd: int = -1, **more: Any) -> Iterator[TensorFront]:
    """A worker that has loaded a model."""
    with worker(arena_fd) as front:
        loaded = load(front, path, backend, io, **more)
        assert isinstance(loaded, Loaded), loaded
        yield TensorFront(front)


def python_model(folder: Path, name: str) -> Path:
    """A version folder with one of the Python models, and a file beside it."""
    version = folder / "1"
    version.mkdir()
    shutil.copy(MODELS / f"{name}.py", version / "model.py")
    shutil.copy(MODELS / "beside.py", version)
    return version


def load(front: Front, path: Path, backend: str, io: dict[str, Any], **more: Any) -> Any:
    """Load a model and give the worker's word on it."""
    return front.load(path, **{"flavour": "triton", "backend": backend, "interface": io, "version": "1", **more})


def same(found: Any, expected: Any) -> bool:
    """Whether two arrays are alike in shape, type and values."""
    is_alike = found.shape == expected.shape and found.dtype == expected.dtype
    return is_alike and bool(np.array_equal(found, expected))
